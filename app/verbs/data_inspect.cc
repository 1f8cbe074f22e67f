#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/data_actions.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// The members that both objects have with the same value.
Json shared_members(const Json& a, const Json& b) {
  Json both = Json::object();
  for (const auto& [key, value] : a.items()) {
    if (const auto found = b.find(key); found != b.end() && *found == value) both[key] = value;
  }
  return both;
}

}  // namespace

int data_verify(int argc, char** argv) {
  CLI::App app(
      "Checks every byte of shards and prints a line of JSON for each shard. Exit code 65 if one is damaged.\n"
      "Example: bert data verify train.shard",
      "bert data verify");
  std::vector<std::string> paths;
  app.add_option("PATH", paths, "shards, or directories of them")->required();
  if (!parse_command_line(app, argc, argv)) return kOk;
  int64_t shards = 0;
  std::vector<std::string> damaged;
  for (const std::string& path : paths) {
    for (const std::string& file : shard_files(path)) {
      ++shards;
      try {
        const Shard shard(file);
        Percentage percentage;
        const std::string phase = "verifying " + file;
        shard.verify([&](double share) { percentage.update(phase, share); });
        Json line = {{"path", file}, {"ok", true}};
        line.update(manifest_json(shard.manifest()));
        print_line(line);
      } catch (const DataError& error) {
        print_line(Json{{"path", file}, {"ok", false}, {"error", error.what()}});
        damaged.push_back(error.what());
      }
    }
  }
  if (!damaged.empty())
    throw DataError(fmt::format("{} of {} shards are damaged. {}", damaged.size(), shards, damaged.front()));
  return kOk;
}

int data_show(int argc, char** argv) {
  CLI::App app(
      "Shows one example. A masked token is shown as [MASK](original).\nExample: bert data show train.shard --vocab "
      "vocab.txt --row 7",
      "bert data show");
  std::string path, vocab;
  int64_t row = 0;
  app.add_option("PATH", path, "shard, or a directory of them")->required();
  app.add_option("--vocab", vocab, "vocabulary that the shard was made with; without it, ids are shown");
  app.add_option("--row", row, "number of the example, from 0")
      ->check(number_in<int64_t>(0, INT64_MAX))
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return kOk;
  const PretrainingShards shards({path});
  if (row >= shards.size())
    throw UsageError(fmt::format("--row {}: {} has the rows 0 to {}", row, path, shards.size() - 1));
  std::unique_ptr<Tokenizer> tokenizer;
  if (!vocab.empty()) {
    tokenizer = make_tokenizer(vocab);
    if (tokenizer->vocabulary().hash() != shards.vocabulary_checksum()) {
      throw DataError(fmt::format("{}: is not the vocabulary that {} was made with: checksum {}, the shard says {}",
                                  vocab, path, tokenizer->vocabulary().hash(), shards.vocabulary_checksum()));
    }
  }
  const auto name = [&](int32_t id) { return tokenizer ? tokenizer->vocabulary().token(id) : std::to_string(id); };
  const PretrainingExample example = shards.example(row);
  std::cout << fmt::format("row {} of {}: {} tokens, {} masked, B {} A\nA:", row, shards.size(),
                           example.input_ids.size(), example.masked_ids.size(),
                           example.is_random_next ? "does not follow" : "follows");
  size_t mask = 0;
  for (size_t i = 0; i < example.input_ids.size(); ++i) {
    if (i == static_cast<size_t>(example.segment_b_start)) std::cout << "\nB:";
    std::cout << ' ' << name(example.input_ids[i]);
    if (mask < example.masked_positions.size() && static_cast<size_t>(example.masked_positions[mask]) == i) {
      std::cout << '(' << name(example.masked_ids[mask++]) << ')';
    }
  }
  std::cout << std::endl;
  return kOk;
}

int data_stats(int argc, char** argv) {
  CLI::App app(
      "Counts what shards hold; prints JSON. length_histogram: [shortest, longest, examples] of each bin; parameters: "
      "those that all shards have in common; content_checksum: that of all shards together, as in a run's state.json; "
      "files: the same for each shard.\n"
      "Example: bert data stats train.shard",
      "bert data stats");
  std::string path;
  app.add_option("PATH", path, "shard, or a directory of them")->required();
  if (!parse_command_line(app, argc, argv)) return kOk;
  constexpr int64_t kBins = 16;
  const PretrainingShards shards({path});
  const int64_t width = (shards.longest_row() + kBins - 1) / kBins;
  std::array<int64_t, kBins> histogram{};
  int64_t tokens = 0, masked = 0, random_next = 0;
  Percentage percentage;
  for (int64_t i = 0; i < shards.size(); ++i) {
    percentage.update("counting", static_cast<double>(i + 1) / static_cast<double>(shards.size()));
    const ShardRow row = shards.row(i);
    tokens += row.length;
    masked += row.num_masked;
    random_next += row.is_random_next;
    ++histogram[static_cast<size_t>((row.length - 1) / width)];
  }
  Json bins = Json::array();
  for (int64_t bin = 0; bin < kBins; ++bin)
    bins.push_back({bin * width + 1, (bin + 1) * width, histogram[static_cast<size_t>(bin)]});
  const auto share = [](int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); };
  int64_t padded_tokens = 0, max_seq_length = 0;
  Json files = Json::array(), common = Json::object();
  for (const auto& shard : shards.shards()) {
    const ShardManifest& manifest = shard->manifest();
    padded_tokens += manifest.rows * manifest.max_seq_length;
    max_seq_length = std::max(max_seq_length, manifest.max_seq_length);
    Json file = {{"path", shard->path()}}, parameters = Json::object();
    file.update(manifest_json(manifest));
    for (const auto& [key, value] : manifest.parameters) parameters[key] = value;
    common = files.empty() ? parameters : shared_members(common, parameters);
    file["parameters"] = parameters;
    files.push_back(file);
  }
  const Json result = {{"shards", shards.shards().size()},
                       {"examples", shards.size()},
                       {"tokens", tokens},
                       {"masked_tokens", masked},
                       {"mean_length", share(tokens, shards.size())},
                       {"longest", shards.longest_row()},
                       {"max_seq_length", max_seq_length},
                       {"real_token_share", share(tokens, padded_tokens)},
                       {"masked_share", share(masked, tokens)},
                       {"random_next_share", share(random_next, shards.size())},
                       {"vocab_size", shards.vocab_size()},
                       {"vocabulary_checksum", shards.vocabulary_checksum()},
                       {"content_checksum", shards.content_checksum()},
                       {"parameters", common},
                       {"files", files},
                       {"length_histogram", bins}};
  print_line(result);
  return kOk;
}

}  // namespace bert
