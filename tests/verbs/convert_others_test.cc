// bert convert from the checkpoints of Google and NVIDIA.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/checkpoint/files.h"
#include "app/verbs/verbs.h"
#include "tests/support/command_testing.h"
#include "tests/support/google_checkpoint.h"
#include "tests/support/nvidia_checkpoint.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using testing::CommandResult;
using testing::Contains;
using testing::TemporaryDirectory;

CommandResult run_convert(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "convert");
  return testing::run_command(convert_command, arguments);
}

/// True if the weights at `path` are those of small_bert_tensors(), but for rows of padding that were cut.
bool has_small_bert(const std::string& path) {
  const SafetensorsFile file(path);
  for (const TensorSource& want : testing::small_bert_tensors()) {
    const TensorInfo* tensor = file.find(want.name);
    if (tensor == nullptr || tensor->shape != want.shape || file.data(*tensor) != want.bytes()) return false;
  }
  return file.tensors().size() == testing::small_bert_tensors().size();
}

}  // namespace

TEST_CASE("A checkpoint of Google becomes ours, and a directory of transformers", "[unit][interop]") {
  const TemporaryDirectory directory;
  const TemporaryDirectory google;
  testing::write_google(google, testing::google_variables());
  const std::string ours = directory.path("ours"), theirs = directory.path("theirs");
  for (const std::string& input : {google.path(), google.path("bert_model.ckpt")}) {
    const CommandResult result = run_convert({"--from", "google", "--input", input, "--output", ours, "--overwrite"});
    INFO(result.err);
    REQUIRE(result.code == kOk);
    CHECK_THAT(result.err, Contains("46 tensors loaded, 0 missing, 0 unexpected, 0 reshaped, 0 ignored"));
    CHECK_THAT(result.err, Contains("tensors of the training are left out: 46 adam_m, 46 adam_v, 1 global_step"));
    CHECK(nlohmann::json::parse(result.out)["loaded"] == 46);
    CHECK(verify_checkpoint(ours).contains("model.safetensors"));
    CHECK(has_small_bert(ours + "/model.safetensors"));
  }
  const CommandResult result =
      run_convert({"--from", "google", "--input", google.path(), "--to", "huggingface", "--output", theirs});
  INFO(result.err);
  REQUIRE(result.code == kOk);
  CHECK(has_small_bert(theirs + "/model.safetensors"));
  CHECK(fs::exists(theirs + "/tokenizer.json"));
  CHECK(run_convert({"--from", "google", "--input", directory.path("none"), "--output", directory.path("x")}).code ==
        kInputMissing);
}

TEST_CASE("A checkpoint of NVIDIA is refused with 77 unless it is trusted", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string input = directory.path("ckpt_8601.pt"), config = directory.path("large.json"),
                    vocabulary = directory.path("words.txt"), output = directory.path("ours");
  testing::write_text(input, testing::torch_archive_of(testing::nvidia_tensors()));
  testing::write_text(config, testing::kSmallBertConfig);
  testing::write_text(vocabulary, testing::kSmallVocabulary);
  std::vector<std::string> arguments = {"--from", "nvidia",   "--input", input,     "--output",
                                        output,   "--config", config,    "--vocab", vocabulary};
  CommandResult result = run_convert(arguments);
  CHECK(result.code == kRefused);
  CHECK_THAT(result.err, Contains(input + ": is a pickle") && Contains("--trust"));
  CHECK_FALSE(fs::exists(output));
  arguments.emplace_back("--trust");
  result = run_convert(arguments);
  INFO(result.err);
  REQUIRE(result.code == kOk);
  CHECK_THAT(result.err, Contains("46 tensors loaded, 0 missing, 0 unexpected, 2 reshaped, 1 ignored"));
  CHECK_THAT(result.err, Contains("bert.embeddings.word_embeddings.weight: [16, 4], now [10, 4]"));
  CHECK(verify_checkpoint(output).contains("model.safetensors"));

  testing::write_text(input, testing::torch_archive_of(testing::nvidia_tensors()).substr(0, 5000));
  arguments[5] = directory.path("cut");
  result = run_convert(arguments);
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("is no archive of PyTorch, or a damaged one"));
  CHECK_FALSE(fs::exists(directory.path("cut")));
  CHECK(run_convert({"--from", "huggingface", "--config", config, "--input", input, "--output", output}).code ==
        kUsage);
}

}  // namespace bert
