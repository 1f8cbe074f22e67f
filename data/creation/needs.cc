#include "data/creation/needs.h"

#include <algorithm>
#include <atomic>

#include "data/corpus/text_source.h"
#include "data/creation/document_tokenizer.h"
#include "data/examples/tokenized_documents.h"
#include "data/io/error.h"
#include "data/text/text_input.h"

namespace bert {
namespace {

constexpr double kPackedFactor = 4.5;  // bzip2 -9 makes English a quarter, xz -9 a little less

bool is_packed(const InputFile& file) { return !packed_format(StoredFile(file.path).beginning()).empty(); }

double id_bytes(const Workload& work) { return work.vocab_size > TokenizedDocuments::kNarrowVocabulary ? 4 : 2; }

double masks_of_example(const Workload& work) {
  const PretrainingDataConfig& config = work.examples;
  if (config.masking == StoredMasks::kNone) return 0;
  return std::min(static_cast<double>(config.max_predictions_per_seq),
                  static_cast<double>(config.max_seq_length) * config.masked_lm_prob + 1);
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
  // A random next sentence uses up one segment, on average half of an example. A document ends with a short example.
  const double share = work.examples.objective == Objective::kNsp ? 0.7 : 1;
  const auto length = static_cast<double>(work.examples.max_seq_length);
  const double of_documents = std::min(work.sentences, work.tokens / (share * length) + work.documents);
  return of_documents * static_cast<double>(work.examples.dupe_factor);
}

int64_t memory_of(const Workload& work) {
  const double documents = work.tokens * id_bytes(work) + work.sentences * 8 + work.documents * 16;
  const double of_example = 8 + 10 + 8 + 1.4 * masks_of_example(work);  // PackedExamples, and an offset in the writer
  return static_cast<int64_t>(documents + of_example * examples_of(work));
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

}  // namespace bert
