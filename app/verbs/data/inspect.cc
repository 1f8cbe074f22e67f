#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/interop/open_tokenizer.h"
#include "app/system/exit_codes.h"
#include "app/verbs/data/actions.h"
#include "data/formats/example_set.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// The option --vocab of actions that read every format.
class VocabularyOption {
 public:
  explicit VocabularyOption(CLI::App& app) {
    app.add_option("--vocab", path_, "vocabulary of the examples; Parquet files (LDDL) need it, for they hold tokens");
  }
  /// The vocabulary, null if none was named.
  const Vocabulary* get() {
    if (tokenizer_ == nullptr && !path_.empty()) tokenizer_ = open_tokenizer(path_);
    return tokenizer_ != nullptr ? &tokenizer_->vocabulary() : nullptr;
  }

 private:
  std::string path_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

Json counts_json(const ExampleCounts& counts) {
  return {{"examples", counts.examples},
          {"example_tokens", counts.tokens},
          {"masked_tokens", counts.masked_tokens},
          {"longest", counts.longest}};
}

/// Reads and checks every byte of a file. Returns what a line says of it.
Json verify_file(const std::string& path, const Vocabulary* vocabulary) {
  const std::string phase = "verifying " + path, format = format_of_file(path);
  Json line = {{"path", path}, {"ok", true}, {"format", format}};
  FileProgress progress({path});
  if (format == "shard") {  // a shard has more checksums than those of its rows
    const Shard shard(path);
    shard.verify([&](double share) { progress.update(phase, share); });
    line.update(manifest_json(shard.manifest()));
    return line;
  }
  ExampleCounts counts;
  for_each_example(
      {path}, vocabulary, [&](const PretrainingExample& example) { counts.add(example); },
      [&](double share) { progress.update(phase, share); });
  line.update(counts_json(counts));
  return line;
}

/// The members that both objects have with the same value.
Json shared_members(const Json& a, const Json& b) {
  Json both = Json::object();
  for (const auto& [key, value] : a.items()) {
    if (const auto found = b.find(key); found != b.end() && *found == value) both[key] = value;
  }
  return both;
}

/// The output of `stats` for one file, and for all files together.
struct Statistics {
  ExampleCounts counts;
  int64_t padded_tokens = 0;  // tokens, if every example had the length of its file
  bool all_shards = true;
  Json files = Json::array(), parameters = Json::object();

  void add(const std::string& path, const ExampleFileInfo& info, const ExampleCounts& of_file) {
    counts.add(of_file);
    padded_tokens += of_file.examples * info.max_seq_length;
    Json file = {{"path", path}, {"format", format_of_file(path)}}, own = Json::object();
    if (file["format"] == "shard") {
      file.update(manifest_json(Shard(path).manifest()));
    } else {
      all_shards = false;
      file.update(counts_json(of_file));
    }
    for (const auto& [key, value] : info.parameters) own[key] = value;
    parameters = files.empty() ? own : shared_members(parameters, own);
    file["parameters"] = own;
    files.push_back(file);
  }

  /// [shortest, longest, examples] of each bin.
  [[nodiscard]] Json histogram() const {
    Json bins = Json::array();
    for (const LengthBin& bin : counts.length_bins()) bins.push_back({bin.shortest, bin.longest, bin.examples});
    return bins;
  }
};

}  // namespace

int data_verify(int argc, char** argv) {
  CLI::App app(
      "Checks every byte of files of examples and prints a line of JSON for each. Exit code 65 if one is damaged.\n"
      "Example: bert data verify train.shard",
      "bert data verify");
  std::vector<std::string> paths;
  app.add_option("PATH", paths, "files of examples in any format, or directories of them")->required();
  VocabularyOption words(app);
  if (!parse_command_line(app, argc, argv)) return kOk;
  const std::vector<std::string> files = all_example_files(paths);
  std::vector<std::string> damaged;
  for (const std::string& file : files) {
    try {
      print_line(verify_file(file, words.get()));
    } catch (const DataError& error) {
      print_line(Json{{"path", file}, {"ok", false}, {"error", error.what()}});
      damaged.push_back(error.what());
    }
  }
  if (!damaged.empty())
    throw DataError(fmt::format("{} of {} files are damaged. {}", damaged.size(), files.size(), damaged.front()));
  return kOk;
}

int data_stats(int argc, char** argv) {
  CLI::App app(
      "Counts what files of examples hold; prints JSON. length_histogram: [shortest, longest, examples] of each bin; "
      "parameters: those that all files have in common; content_checksum: that of all shards together, as in a run's "
      "state.json; files: the same for each file.\n"
      "Example: bert data stats train.shard",
      "bert data stats");
  std::string path;
  app.add_option("PATH", path, "file of examples in any format, or a directory of them")->required();
  VocabularyOption words(app);
  if (!parse_command_line(app, argc, argv)) return kOk;
  const std::vector<std::string> files = example_files(path);
  const ExampleFileInfo common = common_info(files, words.get());
  Statistics statistics;
  FileProgress progress(files);
  for (size_t i = 0; i < files.size(); ++i) {
    ExampleCounts counts;
    for_each_example(
        {files[i]}, words.get(), [&](const PretrainingExample& example) { counts.add(example); },
        [&](double share) {
          progress.update("counting", (static_cast<double>(i) + share) / static_cast<double>(files.size()));
        });
    statistics.add(files[i], open_examples(files[i], words.get())->info(), counts);
  }
  const ExampleCounts& counts = statistics.counts;
  if (counts.examples == 0) throw DataError(path + ": no examples to read");
  const auto share = [](int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); };
  Json result = {{"files_read", files.size()},
                 {"examples", counts.examples},
                 {"tokens", counts.tokens},
                 {"masked_tokens", counts.masked_tokens},
                 {"mean_length", share(counts.tokens, counts.examples)},
                 {"longest", counts.longest},
                 {"max_seq_length", common.max_seq_length},
                 {"max_id", counts.max_id},
                 {"real_token_share", share(counts.tokens, statistics.padded_tokens)},
                 {"masked_share", share(counts.masked_tokens, counts.tokens)},
                 {"random_next_share", share(counts.random_next, counts.examples)},
                 {"vocab_size", common.vocab_size},
                 {"vocabulary_checksum", common.vocabulary_checksum}};
  if (statistics.all_shards) result["content_checksum"] = PretrainingShards(files).content_checksum();
  result["parameters"] = statistics.parameters;
  result["files"] = statistics.files;
  result["length_histogram"] = statistics.histogram();
  print_line(result);
  return kOk;
}

}  // namespace bert
