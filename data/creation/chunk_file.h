// Temporary files with the token ids of a chunk of documents, by shard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/creation/document_tokenizer.h"
#include "data/examples/tokenized_documents.h"
#include "data/io/descriptor.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

// Note [Chunk file]
// Little-endian. A header (ChunkHeader in chunk_file.cc), a SectionEntry for each target (Dealer), then the sections, one
// after another. A section has the documents of a target in the order of the text: u32 sentences, then for each sentence
// u32 tokens and the ids, 2 bytes each if the vocabulary has at most 65536 entries, otherwise 4. XXH3-64 checksums guard
// the header, each entry and each section: a section is read with its entry alone, so the work for a target does not grow
// with the number of targets.

/// A document as its section holds it.
struct EncodedDocument {
  std::string bytes;  // empty for a document without tokens
  uint64_t sentences = 0, tokens = 0;
};

/// Tokenizes a document (tokenize_document) and adds its counts, but its bytes, to `statistics`.
EncodedDocument encode_document(const std::string& text, const Tokenizer& tokenizer, const ReaderOptions& reader,
                                CorpusStatistics& statistics);

/// Figures of a target's documents in one chunk, or in all.
struct SectionFigures {
  uint64_t documents = 0, sentences = 0, tokens = 0;
  void add(const SectionFigures& more);
};

/// Writes a chunk. `documents[i]` belongs to the target `targets[i]`. Throws IoError.
void write_chunk(const std::string& path, const std::vector<EncodedDocument>& documents,
                 const std::vector<uint32_t>& targets, size_t target_count, int64_t vocab_size,
                 const CorpusStatistics& statistics);

/// One chunk file, opened.
class ChunkFile {
 public:
  /// Throws InputMissing, IoError, and DataError if the header is damaged.
  explicit ChunkFile(const std::string& path);

  [[nodiscard]] const CorpusStatistics& statistics() const { return statistics_; }
  /// Adds the figures of each target to `sums`, which has one for each. Throws IoError, DataError.
  void add_figures(std::vector<SectionFigures>& sums) const;
  /// Appends the documents of a target. Throws IoError, and DataError if the section is damaged.
  void read(size_t target, TokenizedDocuments& documents) const;

 private:
  [[nodiscard]] std::string read_bytes(uint64_t start, uint64_t bytes) const;

  std::string path_;
  Descriptor file_;
  CorpusStatistics statistics_;
  uint64_t file_bytes_ = 0, targets_ = 0, id_bytes_ = 0;
};

}  // namespace bert
