#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "app/cli/command_line.h"
#include "app/verbs/data/actions.h"
#include "app/verbs/verbs.h"
#include "data/formats/shard.h"

namespace bert {

using Json = nlohmann::ordered_json;

void print_line(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

Json manifest_json(const ShardManifest& manifest) {
  return {{"examples", manifest.rows},
          {"example_tokens", manifest.tokens},
          {"masked_tokens", manifest.masked_tokens},
          {"longest", manifest.longest_row},
          {"content_checksum", manifest.content_checksum}};
}

FileProgress::FileProgress(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::error_code absent;
    const auto bytes = std::filesystem::file_size(file, absent);
    if (!absent) megabytes_ += 1e-6 * static_cast<double>(bytes);
  }
}

namespace {

constexpr Action kDataActions[] = {
    {"download", data_download, "downloads public data sets and models"},
    {"extract", data_extract, "copies the text of a corpus into a directory, without duplicates"},
    {"create", data_create, "makes pre-training examples from text"},
    {"convert", data_convert, "writes examples into another format"},
    {"split", data_split, "splits prose into sentences"},
    {"mine-negatives", mine_negatives_command, "adds hard negatives to pairs of texts, with a sentence encoder"},
    {"verify", data_verify, "checks every byte of shards"},
    {"show", data_show, "shows one example"},
    {"stats", data_stats, "prints counts and a histogram of lengths"},
};

}  // namespace

int data_command(int argc, char** argv) {
  return run_action(
      {.program = "bert data",
       .example = "bert data create --input book.txt --split-sentences --vocab vocab.txt --output book.shard",
       .actions = kDataActions},
      argc, argv);
}

}  // namespace bert
