#include "data/formats/example_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/io/error.h"

namespace bert {
namespace {

/// Keeps the parameters that `other` has with the same value.
void intersect(std::vector<std::pair<std::string, std::string>>& parameters,
               const std::vector<std::pair<std::string, std::string>>& other) {
  std::erase_if(parameters,
                [&](const auto& each) { return std::find(other.begin(), other.end(), each) == other.end(); });
}

}  // namespace

std::vector<std::string> all_example_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    const std::vector<std::string> of_path = example_files(path);
    files.insert(files.end(), of_path.begin(), of_path.end());
  }
  return files;
}

ExampleFileInfo common_info(const std::vector<std::string>& files, const Vocabulary* vocabulary) {
  ExampleFileInfo common;
  std::string known_file, checksum;  // the first file with a vocabulary
  bool all_know = true;
  for (size_t i = 0; i < files.size(); ++i) {
    const ExampleFileInfo info = open_examples(files[i], vocabulary)->info();
    if (info.vocabulary_checksum.empty()) {
      all_know = false;
    } else if (checksum.empty()) {
      checksum = info.vocabulary_checksum;
      known_file = files[i];
    } else if (checksum != info.vocabulary_checksum) {
      throw DataError(
          fmt::format("{}: made with another vocabulary (checksum {}) than {} ({}). Convert them one by one.", files[i],
                      info.vocabulary_checksum, known_file, checksum));
    }
    if (i == 0) {
      common = info;
      continue;
    }
    common.max_seq_length = std::max(common.max_seq_length, info.max_seq_length);
    const auto unknown_or_larger = [](int64_t a, int64_t b) { return a == 0 || b == 0 ? 0 : std::max(a, b); };
    common.max_predictions_per_seq = unknown_or_larger(common.max_predictions_per_seq, info.max_predictions_per_seq);
    common.vocab_size = unknown_or_larger(common.vocab_size, info.vocab_size);
    intersect(common.parameters, info.parameters);
  }
  common.vocabulary_checksum = all_know ? checksum : "";
  return common;
}

void for_each_example(const std::vector<std::string>& files, const Vocabulary* vocabulary,
                      const std::function<void(const PretrainingExample&)>& take,
                      const std::function<void(double)>& progress) {
  PretrainingExample example;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto reader = open_examples(files[i], vocabulary);
    while (reader->next(example)) {
      take(example);
      progress((static_cast<double>(i) + reader->share()) / static_cast<double>(files.size()));
    }
  }
}

void ExampleCounts::add(const PretrainingExample& example) {
  const auto length = static_cast<int64_t>(example.input_ids.size()),
             masked = static_cast<int64_t>(example.masked_ids.size());
  ++examples;
  tokens += length;
  masked_tokens += masked;
  random_next += example.is_random_next ? 1 : 0;
  pairs += example.segment_b_start < length ? 1 : 0;
  longest = std::max(longest, length);
  most_masked = std::max(most_masked, masked);
  for (const auto* ids : {&example.input_ids, &example.masked_ids})
    for (const int32_t id : *ids) max_id = std::max<int64_t>(max_id, id);
  if (by_length.size() <= example.input_ids.size()) by_length.resize(example.input_ids.size() + 1);
  ++by_length[example.input_ids.size()];
}

void ExampleCounts::add(const ExampleCounts& other) {
  examples += other.examples;
  tokens += other.tokens;
  masked_tokens += other.masked_tokens;
  random_next += other.random_next;
  pairs += other.pairs;
  longest = std::max(longest, other.longest);
  most_masked = std::max(most_masked, other.most_masked);
  max_id = std::max(max_id, other.max_id);
  if (by_length.size() < other.by_length.size()) by_length.resize(other.by_length.size());
  for (size_t i = 0; i < other.by_length.size(); ++i) by_length[i] += other.by_length[i];
}

}  // namespace bert
