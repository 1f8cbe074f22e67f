#include "data/formats/example_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr const char* kObjective = "objective";  // the name of the parameter

/// Keeps the parameters that `other` has with the same value.
void intersect(std::vector<std::pair<std::string, std::string>>& parameters,
               const std::vector<std::pair<std::string, std::string>>& other) {
  std::erase_if(parameters, [&](const auto& each) { return std::ranges::find(other, each) == other.end(); });
}

std::vector<ExampleFileInfo> infos_of(const std::vector<std::string>& files, const Vocabulary* vocabulary) {
  std::vector<ExampleFileInfo> infos;
  infos.reserve(files.size());
  for (const std::string& file : files) infos.push_back(open_examples(file, vocabulary)->info());
  return infos;
}

ExampleFileInfo in_common(const std::vector<std::string>& files, const std::vector<ExampleFileInfo>& infos) {
  ExampleFileInfo common;
  std::string known_file, checksum;  // the first file with a vocabulary
  bool all_know = true;
  for (size_t i = 0; i < files.size(); ++i) {
    const ExampleFileInfo& info = infos[i];
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

/// Gives the objective to the files that do not say theirs.
void say_objective(const std::vector<std::string>& files, std::vector<ExampleFileInfo>& infos, Objective objective) {
  const std::string name = name_of_value(objective);
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string said = parameter(infos[i].parameters, kObjective);
    if (said.empty()) {
      infos[i].parameters.emplace_back(kObjective, name);
    } else if (said != name) {
      throw DataError(fmt::format("{}: says objective {}; --objective {} is for files that do not say theirs", files[i],
                                  said, name));
    }
  }
}

struct NamedInfo {
  const std::string& file;
  const ExampleFileInfo& info;
};

/// Throws DataError if two files differ in a setting. A file without the setting has the value `without`, or if that is
/// empty, any value.
void check_alike(const char* name, const std::string& without, const NamedInfo& a, const NamedInfo& b) {
  const std::string said_a = tokenizer_parameter(a.info.parameters, name),
                    said_b = tokenizer_parameter(b.info.parameters, name);
  const std::string &value_a = said_a.empty() ? without : said_a, &value_b = said_b.empty() ? without : said_b;
  if (value_a == value_b || value_a.empty() || value_b.empty()) return;
  const auto of = [&](const std::string& said, const std::string& value) {
    return said.empty() ? fmt::format("does not say its {0}, which means {0} {1}", name, value)
                        : fmt::format("was made with {} {}", name, value);
  };
  throw DataError(fmt::format("{} {}, {} {}: one file of both would say one of the two. Convert them into two files.",
                              a.file, of(said_a, value_a), b.file, of(said_b, value_b)));
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
  return in_common(files, infos_of(files, vocabulary));
}

ExampleFileInfo joint_info(const std::vector<std::string>& files, const Vocabulary* vocabulary,
                           std::optional<Objective> unsaid) {
  std::vector<ExampleFileInfo> infos = infos_of(files, vocabulary);
  if (unsaid) say_objective(files, infos, *unsaid);
  const auto alike = [&](const char* name, const std::string& without) {
    size_t first = 0;  // file with a value
    for (size_t i = 1; i < files.size(); ++i) {
      if (without.empty() && tokenizer_parameter(infos[first].parameters, name).empty()) first = i;
      check_alike(name, without, {files[first], infos[first]}, {files[i], infos[i]});
    }
  };
  alike(kObjective, name_of_value(Objective::kNsp));
  alike("masking", name_of_value(StoredMasks::kStatic));
  const TokenizerConfig tokenizer;
  TokenizerConfig::visit_fields(tokenizer, [&](const char* name, auto&&...) { alike(name, ""); });
  return in_common(files, infos);
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

std::vector<LengthBin> ExampleCounts::length_bins() const {
  constexpr int64_t kBins = 16;
  const int64_t width = std::max<int64_t>(1, (longest + kBins - 1) / kBins);
  std::vector<LengthBin> bins;
  for (int64_t i = 0; i < kBins; ++i) {
    LengthBin bin{.shortest = i * width + 1, .longest = (i + 1) * width};
    for (int64_t length = bin.shortest; length <= std::min(bin.longest, longest); ++length)
      bin.examples += by_length[static_cast<size_t>(length)];
    bins.push_back(bin);
  }
  return bins;
}

}  // namespace bert
