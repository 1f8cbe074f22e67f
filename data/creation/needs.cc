#include "data/creation/needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "data/corpus/text_source.h"
#include "data/creation/document_tokenizer.h"
#include "data/creation/example_directory.h"
#include "data/examples/tokenized_documents.h"
#include "data/io/error.h"
#include "data/text/text_input.h"

namespace bert {
namespace {

constexpr int64_t kMegabyte = 1'000'000;

constexpr int64_t kPackedBlockBytes = 1 << 20;  // of PackedExamples, of which the last one is partly used
constexpr int64_t kFileBytes = 8'000'000;       // buffers of a writer, a section that is read, a block of examples
constexpr double kWriterBytes = 16;             // of an example: its place, in a list that is copied when it grows
constexpr double kPackedFactor = 4.5;           // bzip2 -9 makes English a quarter, xz -9 a little less

bool is_packed(const InputFile& file) { return !packed_format(StoredFile(file.path).beginning()).empty(); }

double id_bytes(const Workload& work) { return work.vocab_size > TokenizedDocuments::kNarrowVocabulary ? 4 : 2; }

/// Tokens masked in an example.
double masks_of_example(const Workload& work) {
  const PretrainingDataConfig& config = work.examples;
  if (config.masking == StoredMasks::kNone) return 0;
  return std::min(static_cast<double>(config.max_predictions_per_seq),
                  static_cast<double>(config.max_seq_length) * config.masked_lm_prob + 1);
}

/// Memory of an example in PackedExamples.
double bytes_of_example(const Workload& work, ExamplesIn where) {
  constexpr double kPlace = 8;
  constexpr double kSegments = 14;    // two places of up to 2^28 tokens, two lengths, flags, number of masks
  constexpr double kOther = 0.1 * 3;  // a tenth of the masked tokens has another id
  if (where == ExamplesIn::kScratchFile) return kPlace;
  const double masks = masks_of_example(work);
  if (masks == 0) return kPlace + kSegments;
  // The distance between two masks is geometric: from 2^5 and 2^12 tokens on it takes another byte.
  const double share = masks / static_cast<double>(work.examples.max_seq_length);
  return kPlace + kSegments + masks * (1 + std::exp(-32 * share) + std::exp(-4096 * share) + kOther);
}

}  // namespace

int64_t count_text_bytes(const std::vector<InputFile>& files, const std::string& encoding, int64_t num_threads) {
  std::atomic<int64_t> bytes = 0;
  for_each_in_parallel(files.size(), num_threads, [&](size_t i) {
    const InputFile& file = files[i];
    if (!file.regular) {
      throw DataError(file.path + ": is no file, so its text cannot be counted first: give --num-shards");
    }
    if (!is_packed(file)) {
      bytes += file.bytes;
      return;
    }
    TextSource source(file.path, encoding);
    while (!source.next().empty()) {
    }
    bytes += source.text_bytes();
  });
  return bytes;
}

int64_t guess_text_bytes(const std::vector<InputFile>& files) {
  double bytes = 0;
  for (const InputFile& file : files) {
    if (file.regular) bytes += static_cast<double>(file.bytes) * (is_packed(file) ? kPackedFactor : 1);
  }
  return static_cast<int64_t>(bytes);
}

Workload workload_of_text(int64_t text_bytes, int64_t vocab_size, const PretrainingDataConfig& examples) {
  const auto bytes = static_cast<double>(text_bytes);
  return {.tokens = bytes / 3.5,
          .sentences = bytes / 60,
          .documents = bytes / 600,
          .vocab_size = vocab_size,
          .examples = examples};
}

double examples_of(const Workload& work) {
  const PretrainingDataConfig& config = work.examples;
  const auto rounds = static_cast<double>(config.dupe_factor);
  if (config.objective == Objective::kMlm) {
    // Two sequences that follow each other have more tokens than fit into one. Long sentences are cut.
    const double room = static_cast<double>(config.max_seq_length) - 2;
    return rounds * (work.documents + std::min(2 * work.tokens / room, work.sentences + work.tokens / room));
  }
  // A chunk of sentences has at least the target length. A random next sentence, which half of the examples of nsp have,
  // uses up half of the chunk's sentences. The rest at the end of a document becomes 2 examples in the mean, or 1.
  const bool random_next = config.objective == Objective::kNsp;
  const double used = random_next ? 0.75 : 1, at_end = random_next ? 2 : 1;
  const auto of_target = [&](int64_t target) {
    return std::min(work.sentences, work.tokens / (used * static_cast<double>(target)) + at_end * work.documents);
  };
  const int64_t longest = config.max_seq_length - 3;
  double of_short = 0;  // the mean over the short target lengths, each with the same probability
  for (int64_t target = 2; target <= longest; ++target) of_short += of_target(target);
  of_short /= static_cast<double>(longest - 1);
  return rounds * (config.short_seq_prob * of_short + (1 - config.short_seq_prob) * of_target(longest));
}

int64_t memory_of_documents(const Workload& work) {
  return static_cast<int64_t>(work.tokens * id_bytes(work) + work.sentences * 8 + work.documents * 16);
}

int64_t memory_of(const Workload& work, ExamplesIn place) {
  return kFileBytes + memory_of_documents(work) +
         static_cast<int64_t>((bytes_of_example(work, place) + kWriterBytes) * examples_of(work));
}

int64_t memory_for_examples(const Workload& work, int64_t bytes, ExamplesIn place) {
  const double of_example = bytes_of_example(work, place);
  const auto for_all = static_cast<double>(bytes - kFileBytes - memory_of_documents(work));
  return kPackedBlockBytes + static_cast<int64_t>(for_all * of_example / (of_example + kWriterBytes));
}

int64_t disk_of_examples(const Workload& work, const std::string& format) {
  const auto length = static_cast<double>(work.examples.max_seq_length);
  const double masks = masks_of_example(work), examples = examples_of(work);
  if (format == "shard") {
    const double tokens =
        std::min(length, work.tokens * static_cast<double>(work.examples.dupe_factor) * 1.3 / examples);
    return static_cast<int64_t>(examples * (22 + tokens * id_bytes(work) + masks * (id_bytes(work) + 2)));
  }
  // Padded: an id of a TFRecord takes 2 to 3 bytes, mask and segment 1 each; gzip makes it a fifth.
  const double padded = examples * (200 + length * 4 + static_cast<double>(work.examples.max_predictions_per_seq) * 8);
  return static_cast<int64_t>(format == "tfrecord" ? padded : padded / 3);
}

int64_t disk_of_chunks(const Workload& work) {
  return static_cast<int64_t>(work.tokens * id_bytes(work) + work.sentences * 4 + work.documents * 4);
}

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
