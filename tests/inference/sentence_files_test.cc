// The small files of a sentence encoder, converted there and back.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "app/inference/predictor.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::run_command;
using testing::TemporaryDirectory;
namespace fs = std::filesystem;

testing::CommandResult convert(const std::string& direction, const std::string& from, const std::string& to) {
  return run_command(convert_command, {"convert", direction, "huggingface", "--input", from, "--output", to});
}

/// Name to content of all files but the weights.
std::map<std::string, std::string> texts_of(const std::string& directory) {
  std::map<std::string, std::string> texts;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file() && entry.path().extension() != ".safetensors")
      texts[fs::relative(entry.path(), directory).string()] = read_file(entry.path().string());
  }
  return texts;
}

/// A directory of sentence-transformers with all that a person may have put into it. `folder` has the transformer.
std::string write_encoder(const TemporaryDirectory& directory, const std::string& name, const std::string& folder) {
  const std::string path = directory.path(name), transformer = folder.empty() ? path : path + "/" + folder;
  if (!folder.empty()) fs::create_directory(path);
  REQUIRE(convert("--to", testing::write_random_checkpoint(directory), transformer).code == kOk);
  json config = json::parse(read_file(transformer + "/config.json"));
  config.update({{"_name_or_path", "somebody/encoder"}, {"architectures", {"BertModel"}}});
  testing::write_text(transformer + "/config.json", config.dump());
  testing::write_text(transformer + "/sentence_bert_config.json",
                      R"({"max_seq_length": 8, "do_lower_case": false, "modality": "text"})");
  fs::create_directory(path + "/1_Pooling");
  testing::write_text(path + "/1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true, "mine": [1]})");
  testing::write_text(path + "/modules.json",
                      json{{{"idx", 0}, {"name", "0"}, {"path", folder}, {"type", "sentence_transformers.Transformer"}},
                           {{"idx", 1}, {"name", "p"}, {"path", "1_Pooling"}, {"type", "a.Pooling"}, {"kwargs", {"x"}}}}
                          .dump());
  testing::write_text(path + "/config_sentence_transformers.json",
                      R"({"__version__": {"sentence_transformers": "5.1.0", "pytorch": "2.8.0"}, "prompts": {}})");
  for (const char* file : {"README.md", "LICENSE", "data_config.json", "similarity_evaluation_results.csv"})
    testing::write_text(path + "/" + file, std::string("the text of ") + file + " \u00E9\n");
  return path;
}

}  // namespace

TEST_CASE("Converting a sentence encoder there and back loses no text", "[interop]") {
  const TemporaryDirectory directory;
  const std::string path = write_encoder(directory, "encoder", ""), own = directory.path("own");
  REQUIRE(convert("--from", path, own).code == kOk);
  REQUIRE(convert("--to", own, directory.path("back")).code == kOk);
  REQUIRE(run_command(convert_command, {"convert", "--from", "huggingface", "--to", "huggingface", "--input", path,
                                        "--output", directory.path("direct")})
              .code == kOk);
  const std::map<std::string, std::string> want = texts_of(path);
  CHECK(want.size() >= 11);
  CHECK(texts_of(directory.path("back")) == want);
  CHECK(texts_of(directory.path("direct")) == want);
  CHECK(torch::equal(Predictor(directory.path("back")).encode({"the cat"}), Predictor(path).encode({"the cat"})));
}

TEST_CASE("A sentence encoder with another vocabulary gets the files of its tokenizer anew", "[interop]") {
  const TemporaryDirectory directory;
  const std::string path = write_encoder(directory, "encoder", ""), to = directory.path("to");
  const std::string tokens = read_file(path + "/vocab.txt") + "newword\n", extended = directory.path("extended.txt");
  testing::write_text(extended, tokens);
  REQUIRE(run_command(convert_command, {"convert", "--from", "huggingface", "--to", "huggingface", "--input", path,
                                        "--vocab", extended, "--output", to})
              .code == kOk);
  CHECK(read_file(to + "/vocab.txt") == tokens);
  const json config = json::parse(read_file(to + "/config.json"));
  CHECK(config["vocab_size"] == std::count(tokens.begin(), tokens.end(), '\n'));
  CHECK(config["_name_or_path"] == "somebody/encoder");
  CHECK_THAT(read_file(to + "/tokenizer.json"), Contains("\"newword\""));
  CHECK(read_file(to + "/README.md") == read_file(path + "/README.md"));
  CHECK(Predictor(to).encode(Task::kEmbedding, "newword").ids[1] == config["vocab_size"].get<int32_t>() - 1);
}

TEST_CASE("A sentence encoder with a folder for the transformer keeps the keys of its files", "[interop]") {
  const TemporaryDirectory directory;
  const std::string path = write_encoder(directory, "encoder", "0_Transformer"), back = directory.path("back");
  testing::write_text(path + "/bytes.txt", "\xFF\n");
  const auto result = run_command(
      convert_command, {"convert", "--from", "huggingface", "--to", "huggingface", "--input", path, "--output", back});
  REQUIRE(result.code == kOk);
  CHECK_THAT(result.err, Contains("bytes.txt: is not UTF-8, and is left out"));
  CHECK_FALSE(fs::exists(back + "/bytes.txt"));
  CHECK(json::parse(read_file(back + "/modules.json"))[0]["path"] == "");
  CHECK(read_file(back + "/config.json") == read_file(path + "/0_Transformer/config.json"));
  CHECK(read_file(back + "/sentence_bert_config.json") == read_file(path + "/0_Transformer/sentence_bert_config.json"));
  CHECK(read_file(back + "/1_Pooling/config.json") == read_file(path + "/1_Pooling/config.json"));
  CHECK(read_file(back + "/README.md") == read_file(path + "/README.md"));
  CHECK(torch::equal(Predictor(back).encode({"the cat"}), Predictor(path).encode({"the cat"})));
  // A head that is left out of the weights leaves the architecture, too.
  json config = json::parse(read_file(path + "/0_Transformer/config.json"));
  config["architectures"] = {"BertForMaskedLM"};
  testing::write_text(path + "/0_Transformer/config.json", config.dump());
  REQUIRE(convert("--from", path, directory.path("own")).code == kOk);
  REQUIRE(convert("--to", directory.path("own"), directory.path("again")).code == kOk);
  config["architectures"] = {"BertModel"};
  CHECK(json::parse(read_file(directory.path("again") + "/config.json")) == config);
}

}  // namespace bert
