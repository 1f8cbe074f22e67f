// Text of any size to a directory of files of examples.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/document_reader.h"
#include "data/creation/document_tokenizer.h"
#include "data/examples/pretraining_data.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

// Note [Two passes]
// The first pass reads the text once and writes the token ids of every 64 MB of it to a chunk file, by shard
// (Note [Dealing], Note [Chunk file]). The second pass makes the shards from the chunk files: each is what
// create_pretraining_data.py would make of its documents alone, with a seed derived from the seed and the number of the
// shard. So memory depends neither on the size of the text nor on the number of its documents, and the result neither on
// threads nor on processes.
//
// Any number of processes may work on one directory, on machines with a common file system. With world_size > 1 each
// reads the text, but tokenizes only the chunks, and makes only the shards, whose number modulo world_size is its rank.
// Processes without ranks share by locks (Note [Work on a directory]). The last process to finish writes dataset.json.

/// Bytes of text that a shard has by default, and that a chunk file has.
inline constexpr int64_t kShardTextBytes = 64'000'000;

/// Memory for the shards that are made at once, so that a process stays below 2 GB.
inline constexpr int64_t kDirectoryMemory = 1'500'000'000;

/// Moments at which tests end the process.
enum class CreationStep { kChunk, kTextRead, kExamplesMade, kFileNamed, kAllNamed };

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
  int64_t chunk_bytes = kShardTextBytes;
  int64_t memory_bytes = kDirectoryMemory;  // for the shards that are made at once
  /// What is done of a phase, in `unit`. Never called by two threads at once. May be empty.
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
};

struct DirectorySummary {
  bool complete = false;       // false: other processes have not finished yet
  bool nothing_to_do = false;  // everything was there
  CorpusStatistics statistics;
  ReadStatistics read;
  std::vector<ExampleFileFigures> files, validation_files;  // of the whole, or only those made here if not complete
};

/// Makes the files OUTPUT/00000-of-00016.shard and so on. Continues the work of a process that was killed. Throws what
/// DocumentReader throws, IoError, DataError if the directory has examples of other settings, or memory or text do not
/// suffice, and PeerError if other ranks make no progress for half an hour.
DirectorySummary create_directory(const DirectoryOptions& options, const Tokenizer& tokenizer);

}  // namespace bert
