#include "data/creation/file_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/creation/example_directory.h"

namespace bert {
namespace {

constexpr int64_t kMegabyte = 1'000'000;

}  // namespace

std::string FileMemory::check_files(const std::vector<InputFile>& files) const {
  const int64_t bytes = guess_text_bytes(files);
  const int64_t need = memory_of(workload_of_text(bytes, vocab_size_, examples_));
  if (need > allowed_) throw too_much(bytes, "takes about", need);
  return sentence(bytes, "takes about", need);
}

void FileMemory::check_text(const CorpusStatistics& so_far) const {
  const Workload work = workload(so_far);
  // The ids are in lists, which are copied when they grow.
  const int64_t need = std::max(memory_of(work), 2 * memory_of_documents(work));
  if (need > allowed_) throw too_much(so_far.bytes, "takes up to", need);
}

int64_t FileMemory::for_examples(const CorpusStatistics& text) const {
  return memory_for_examples(workload(text), allowed_);
}

TooMuchMemory FileMemory::exceeded(const CorpusStatistics& text) const {
  return too_much(text.bytes, "takes more than", allowed_);
}

Workload FileMemory::workload(const CorpusStatistics& text) const {
  return {.tokens = static_cast<double>(text.tokens),
          .sentences = static_cast<double>(text.sentences),
          .documents = static_cast<double>(text.documents),
          .vocab_size = vocab_size_,
          .examples = examples_};
}

std::string FileMemory::sentence(int64_t text_bytes, const char* takes, int64_t need) const {
  return fmt::format("a single file of examples of {} MB of text {} {} MB of memory; {} MB are available",
                     text_bytes / kMegabyte, takes, need / kMegabyte + 1, allowed_ / kMegabyte);
}

TooMuchMemory FileMemory::too_much(int64_t text_bytes, const char* takes, int64_t need) const {
  return TooMuchMemory(fmt::format("{}. --num-shards {} makes a directory of files in less than 2 GB",
                                   sentence(text_bytes, takes, need), text_bytes / kShardTextBytes + 1));
}

}  // namespace bert
