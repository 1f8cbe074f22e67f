// Temporary files with the token ids of a chunk of documents, by shard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/creation/document_tokenizer.h"
#include "data/examples/tokenized_documents.h"
#include "data/io/descriptor.h"

namespace bert {

// Note [Chunk file]
// Little-endian. A header (ChunkHeader in chunk_file.cc), a SectionEntry for each target (Dealer), then the sections, one
// after another. A section has the documents of a target in the order of the text: u32 sentences, u32 tokens of each
// sentence, then the ids, 2 bytes each if the vocabulary has at most 65536 entries, otherwise 4. XXH3-64 checksums guard
// header and table, and each section.

/// Figures of a target's documents in one chunk, or in all.
struct SectionFigures {
  uint64_t documents = 0, sentences = 0, tokens = 0;
  void add(const SectionFigures& more);
};

/// Writes a chunk. `documents[i]` belongs to the target `targets[i]`. Throws IoError.
void write_chunk(const std::string& path, const std::vector<TokenizedDocument>& documents,
                 const std::vector<uint32_t>& targets, size_t target_count, int64_t vocab_size,
                 const CorpusStatistics& statistics);

/// One chunk file, opened.
class ChunkFile {
 public:
  /// Throws InputMissing, IoError, and DataError if the header or the table is damaged.
  explicit ChunkFile(const std::string& path);

  [[nodiscard]] const CorpusStatistics& statistics() const { return statistics_; }
  [[nodiscard]] size_t targets() const { return table_.size(); }
  [[nodiscard]] SectionFigures figures(size_t target) const;
  /// Appends the documents of a target. Throws IoError, and DataError if the section is damaged.
  void read(size_t target, TokenizedDocuments& documents) const;

 private:
  struct SectionEntry {
    uint64_t start, bytes, documents, sentences, tokens, checksum;
  };
  friend void write_chunk(const std::string&, const std::vector<TokenizedDocument>&, const std::vector<uint32_t>&,
                          size_t, int64_t, const CorpusStatistics&);
  [[nodiscard]] std::string read_bytes(uint64_t start, uint64_t bytes) const;

  std::string path_;
  Descriptor file_;
  CorpusStatistics statistics_;
  std::vector<SectionEntry> table_;
  uint64_t id_bytes_ = 0;
};

}  // namespace bert
