// The first pass over the text: documents to chunk files (Note [Two passes] in data/creation/example_directory.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "data/corpus/document_reader.h"
#include "data/creation/dataset.h"
#include "data/creation/example_directory.h"
#include "data/creation/work_directory.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

struct TextPass {
  const DirectoryOptions& options;
  const Tokenizer& tokenizer;
  const DatasetPlan& plan;
  WorkDirectory& work;
  bool overlap = true;  // three chunks are in memory: one is read, one tokenized, one written. Otherwise one is
  std::function<void(double done, double total)> progress;  // megabytes of the files as stored
  std::function<void(CreationStep)> reached;                // kChunk
};

/// The counts of a text that was read to its end.
struct TextRead {
  size_t chunks = 0;
  ReadStatistics read;
  std::vector<int64_t> text_bytes, documents;  // by target
};

/// Reads the text, deals its documents, and makes the chunk files that are missing, as far as they are for this process
/// to make. Throws what DocumentReader throws, DataError if there is no text, and IoError.
TextRead read_into_chunks(const TextPass& pass);

/// True if the chunk or target with this number is for this process to make.
inline bool is_mine(const DirectoryOptions& options, size_t number) {
  return static_cast<int64_t>(number) % options.world_size == options.rank;
}

}  // namespace bert
