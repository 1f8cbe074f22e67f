// Text of any size to a directory of files of examples.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/document_reader.h"
#include "data/creation/document_tokenizer.h"
#include "data/examples/pretraining_data.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

// Note [Two passes]
// The first pass reads the text once and writes the token ids of every 16 MB of it to a chunk file, by shard
// (Note [Dealing], Note [Chunk file]). The second pass makes the shards from the chunk files: each is what
// create_pretraining_data.py would make of its documents alone, with a seed derived from the seed and the number of the
// shard. So memory depends neither on the size of the text nor on the number of its documents, and the result neither on
// threads nor on processes.
//
// The processes of a machine share memory_bytes. The first pass holds a chunk, or three of them (one is read, one tokenized,
// one written) where they fit. The second pass makes as many files at once as fit, at most one a thread. The need of a file
// is computed from the counts of its documents; a file that takes more, because the seed drew many short examples, is made
// alone at the end. A process whose share is too small for one file says so before it reads.
//
// Any number of processes may work on one directory, on machines with a common file system. With world_size > 1 each
// reads the text, but tokenizes only the chunks, and makes only the shards, whose number modulo world_size is its rank.
// Processes without ranks share by locks (Note [Work on a directory]). The last process to finish writes dataset.json.

/// Bytes of text that a shard has by default.
inline constexpr int64_t kShardTextBytes = 64'000'000;

/// Bytes of text, with kDocumentBytes for each document, after which a chunk ends. The result depends on it.
inline constexpr int64_t kChunkBytes = 16'000'000;

/// Memory that the processes of a machine take together, by default.
inline constexpr int64_t kDirectoryMemory = 2'000'000'000;

/// Memory that a process takes beside the chunks or the files in the making: program, vocabulary, readers.
inline constexpr int64_t kProcessMemory = 100'000'000;

/// Moments at which tests end the process. kRemoved comes for each file that `overwrite` removes.
enum class CreationStep { kChunk, kTextRead, kExamplesMade, kFileNamed, kAllNamed, kRemoved };

struct DirectoryOptions {
  std::vector<std::string> input;
  ReaderOptions reader = {.layout = Layout::kSentences};  // kSentences: one sentence a line; other layouts: prose
  std::string output, validation_output;                  // directories; the second may be empty
  std::string format = "shard";                           // one of example_formats()
  int64_t num_shards = 0;                                 // 0: as many as keep kShardTextBytes
  double validation_share = 0.05;
  PretrainingDataConfig examples, validation_examples;
  Parameters parameters;  // of the tokenizer and the reader: stored and compared with those of `examples`
  int64_t num_threads = 1;
  int64_t rank = 0, world_size = 1;
  bool overwrite = false;
  int64_t chunk_bytes = kChunkBytes;
  int64_t memory_bytes = kDirectoryMemory;                   // of all processes on this machine together
  int64_t processes_here = 1;                                // on this machine: they share its memory
  std::chrono::seconds patience = std::chrono::minutes(30);  // without progress of other processes
  /// The finished part of a phase, in `unit`. Never called by two threads at once. May be empty.
  std::function<void(std::string_view phase, double done, double total, std::string_view unit)> progress;
  std::function<void(CreationStep)> reached;    // may be empty
  std::function<void(const std::string&)> say;  // a line for people; may be empty
};

/// One file of examples, as dataset.json lists it.
struct ExampleFileFigures {
  std::string path;
  int64_t documents = 0, text_bytes = 0, examples = 0, tokens = 0, masked_tokens = 0, without_masks = 0,
          lone_tokens = 0;
  int64_t longest = 0, bytes = 0;
  std::string checksum{};  // XXH3-128 of the file

  /// The counts.
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("documents", self.documents);
    visit("text_bytes", self.text_bytes);
    visit("examples", self.examples);
    visit("tokens", self.tokens);
    visit("masked_tokens", self.masked_tokens);
    visit("without_masks", self.without_masks);
    visit("lone_tokens", self.lone_tokens);
    visit("longest", self.longest);
    visit("bytes", self.bytes);
  }
};

struct DirectorySummary {
  bool complete = false;       // false: other processes have not finished yet
  bool nothing_to_do = false;  // everything was there
  CorpusStatistics statistics;
  ReadStatistics read;
  std::vector<ExampleFileFigures> files, validation_files;  // of the whole, or only those made here if not complete
};

/// Other processes made no progress for DirectoryOptions::patience: exit code 69 of a program.
struct NoProgress : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Makes the files OUTPUT/00000-of-00016.shard and so on. Continues the work of a process that was killed. Throws what
/// DocumentReader throws, IoError, DataError if the directory has examples of other settings or the text is too
/// small, TooMuchMemory (data/creation/needs.h), and NoProgress.
DirectorySummary create_directory(const DirectoryOptions& options, const Tokenizer& tokenizer);

}  // namespace bert
