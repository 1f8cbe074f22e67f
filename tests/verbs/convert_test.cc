// bert convert.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/checkpoint/safetensors.h"
#include "app/checkpoint/state.h"
#include "app/checkpoint/tensor_diff.h"
#include "app/config/pretrain_config.h"
#include "app/interop/hugging_face.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/hf_golden.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using testing::CommandResult;
using testing::Contains;
using testing::hf_directory;
using testing::TemporaryDirectory;

CommandResult convert(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "convert");
  return testing::run_command(convert_command, arguments);
}

CommandResult from_hf(const std::string& input, const std::string& output) {
  return convert({"--from", "huggingface", "--input", input, "--output", output});
}

CommandResult to_hf(const std::string& input, const std::string& output) {
  return convert({"--to", "huggingface", "--input", input, "--output", output});
}

TEST_CASE("A directory of transformers becomes a checkpoint, and that the same directory", "[golden][interop]") {
  const TemporaryDirectory directory;
  const std::string input = hf_directory(directory), ours = directory.path("ours"), back = directory.path("back");
  CommandResult result = from_hf(input, ours);
  INFO(result.err);
  REQUIRE(result.code == kOk);
  CHECK_THAT(result.err,
             Contains("bert convert: " + input +
                      ": 30 tensors loaded, 0 missing, 0 unexpected, 0 reshaped, 0 ignored\nwriting: done\n"));
  const nlohmann::json line = nlohmann::json::parse(result.out);
  CHECK(line["format"] == "checkpoint");
  CHECK(line["loaded"] == 30);
  CHECK(line["missing"].empty());
  CHECK(names_in(ours) == std::vector<std::string>{"MANIFEST.json", "config.json", "model.safetensors",
                                                   "special_tokens_map.json", "state.json", "tokenizer.json",
                                                   "tokenizer_config.json", "vocab.txt"});
  CHECK(verify_checkpoint(ours).size() == 7);
  const CheckpointState state = parse_checkpoint_state(read_file(ours + "/state.json"), "state.json");
  CHECK(state.step == 0);
  CHECK(state.model.objective == Objective::kNsp);
  CHECK(state.model.vocabulary.size() == 24);
  const PretrainConfig config = parse_pretrain_config(state.config, "state.json");
  CHECK(config.model.hidden_act == Activation::kGelu);
  CHECK(config.model.intermediate_size == 12);
  CHECK(config.data.tokenizer.max_input_chars_per_word == 100);

  result = to_hf(ours, back);
  INFO(result.err);
  REQUIRE(result.code == kOk);
  CHECK(names_in(back) == std::vector<std::string>{"config.json", "model.safetensors", "special_tokens_map.json",
                                                   "tokenizer.json", "tokenizer_config.json", "vocab.txt"});
  // transformers' own file, byte for byte
  CHECK(read_file(back + "/model.safetensors") == read_file(input + "/model.safetensors"));
  CHECK(read_hugging_face(back).report.plain());
  CHECK(read_hugging_face(back).model.tokenizer.max_input_chars_per_word == 100);

  // Without a checkpoint in between.
  result = convert({"--from", "huggingface", "--to", "huggingface", "--input", input, "--output", directory.path("c")});
  REQUIRE(result.code == kOk);
  for (const std::string& name : names_in(back))
    CHECK(read_file(back + "/" + name) == read_file(directory.path("c/") + name));
  CHECK(names_in(directory.path()) == std::vector<std::string>{"back", "c", "ours", "pretraining"});
}

TEST_CASE("An encoder, a masked-token model and a fine-tuned one keep what they have", "[golden][interop]") {
  const TemporaryDirectory directory;
  const auto converted = [&](const std::string& name) {
    const std::string ours = directory.path(name + "-ours");
    const CommandResult result = from_hf(hf_directory(directory, name), ours);
    INFO(result.err);
    REQUIRE(result.code == kOk);
    REQUIRE(to_hf(ours, directory.path(name + "-back")).code == kOk);
    return nlohmann::json::parse(read_file(ours + "/config.json"));
  };
  CHECK(converted("encoder")["architectures"][0] == "BertModel");
  nlohmann::json config = converted("masked_lm");
  CHECK(config["architectures"][0] == "BertForMaskedLM");
  CHECK(config["torch_dtype"] == "float16");
  CHECK(read_file(directory.path("masked_lm-back/model.safetensors")) ==
        read_file(directory.path("masked_lm/model.safetensors")));
  config = converted("question_answering");
  CHECK(config["architectures"][0] == "BertForQuestionAnswering");
  CHECK(read_file(directory.path("question_answering-back/model.safetensors")) ==
        read_file(directory.path("question_answering/model.safetensors")));
}

TEST_CASE("An output is never damaged", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string input = hf_directory(directory), output = directory.path("out");
  REQUIRE(from_hf(input, output).code == kOk);
  const std::string manifest = read_file(output + "/MANIFEST.json");
  CommandResult result = from_hf(input, output);
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("--output " + output + ": is there and has files; --overwrite"));
  CHECK(convert({"--from", "huggingface", "--input", input, "--output", output, "--overwrite"}).code == kOk);
  CHECK(read_file(output + "/MANIFEST.json") == manifest);
  std::ofstream(input + "/config.json") << "{";
  CHECK(convert({"--from", "huggingface", "--input", input, "--output", output, "--overwrite"}).code == kBadData);
  CHECK(read_file(output + "/MANIFEST.json") == manifest);
  CHECK(names_in(directory.path()) == std::vector<std::string>{"out", "pretraining"});

  result = to_hf(output, output + "/more");
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("lies in a checkpoint"));
  result = convert({"--to", "huggingface", "--input", output, "--output", output + "/", "--overwrite"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("is the same directory as --input"));
  const std::string other = directory.path("other");
  fs::create_directories(other + "/photos");
  result = convert({"--to", "huggingface", "--input", output, "--output", other, "--overwrite"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("has photos, which is no file of a model"));
  fs::remove(other + "/photos");
  std::ofstream(other + "/letter.txt") << "Dear";
  result = convert({"--to", "huggingface", "--input", output, "--output", other, "--overwrite"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("it is no model"));
  CHECK(read_file(other + "/letter.txt") == "Dear");
  fs::remove(other + "/letter.txt");
  CHECK(to_hf(output, other).code == kOk);  // an empty directory
  std::ofstream(directory.path("file")) << "text";
  CHECK(to_hf(output, directory.path("file")).code == kIo);
  fs::create_directory_symlink(other, directory.path("link"));
  CHECK(to_hf(output, directory.path("link")).code == kIo);
}

TEST_CASE("A model without a tokenizer takes the vocabulary of --vocab", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string input = hf_directory(directory), output = directory.path("out"), vocab = directory.path("v.txt");
  fs::rename(input + "/tokenizer.json", directory.path("tokenizer.json"));
  fs::remove(input + "/tokenizer_config.json");
  CommandResult result = from_hf(input, output);
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("has no tokenizer: neither vocab.txt nor tokenizer.json"));
  CHECK_FALSE(fs::exists(output));
  std::string lines = testing::hf_golden()["directories"]["vocab"]["vocab.txt"];
  std::ofstream(vocab) << lines;
  const auto with_vocab = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--from", "huggingface", "--input", input, "--output", output, "--vocab", vocab});
    return convert(more);
  };
  const auto settings = [&] { return nlohmann::json::parse(read_file(output + "/tokenizer_config.json")); };
  REQUIRE(with_vocab({"--cased"}).code == kOk);
  CHECK(settings()["do_lower_case"] == false);
  CHECK(settings()["strip_accents"].is_null());
  REQUIRE(with_vocab({"--strip-accents=false", "--tokenize-chinese-chars=false", "--overwrite"}).code == kOk);
  CHECK(settings()["do_lower_case"] == true);
  CHECK(settings()["strip_accents"] == false);
  CHECK(settings()["tokenize_chinese_chars"] == false);
  std::ofstream(vocab) << lines << "more\n";
  CHECK_THAT(with_vocab({"--overwrite"}).err, Contains("has 25 tokens; expected at most vocab_size 24"));
  fs::rename(directory.path("tokenizer.json"), input + "/tokenizer.json");
}

TEST_CASE("A model takes another vocabulary than its own, and transformers' files have it",
          "[golden][interop][vocabulary]") {
  const TemporaryDirectory directory;
  const std::string input = hf_directory(directory), ours = directory.path("ours"), theirs = directory.path("theirs"),
                    vocab = directory.path("v.txt");
  const nlohmann::json want = nlohmann::json::parse(std::ifstream(testing::golden("vocabulary_change.json")));
  std::ofstream lines(vocab);
  for (const nlohmann::json& token : want["tokens"]) lines << token.get<std::string>() << "\n";
  lines.close();
  REQUIRE(from_hf(input, ours).code == kOk);
  for (const std::string& from : {input, ours}) {
    const CommandResult result =
        convert({"--to", "huggingface", "--input", from, "--output", theirs, "--vocab", vocab, "--overwrite"});
    INFO(result.err);
    REQUIRE(result.code == kOk);
    CHECK_THAT(result.err, Contains("21 rows kept, 2 moved, 7 new (2 of them [UNK] so far), 1 dropped"));
    const nlohmann::json line = nlohmann::json::parse(result.out);
    CHECK(line["rows"] == nlohmann::json{{"kept", 21}, {"moved", 2}, {"new", 7}, {"dropped", 1}});
    CHECK(nlohmann::json::parse(read_file(theirs + "/config.json"))["vocab_size"] == 30);
    CHECK(nlohmann::json::parse(read_file(theirs + "/tokenizer.json"))["model"]["vocab"]["unaffable"] == 19);
    CHECK(read_file(theirs + "/vocab.txt") == read_file(vocab));
    CHECK(nlohmann::json::parse(read_file(theirs + "/tokenizer_config.json"))["do_lower_case"] == true);
  }
  const std::string changed = directory.path("changed"), again = directory.path("again");
  const auto change = [&](const std::string& output, std::vector<std::string> more) {
    more.insert(more.begin(), {"--input", ours, "--output", output, "--vocab", vocab, "--overwrite"});
    return convert(more);
  };
  REQUIRE(change(changed, {}).code == kOk);  // a checkpoint of ours to a checkpoint of ours
  CHECK(read_file(changed + "/" + kModelFile) == read_file(theirs + "/" + kModelFile));
  CHECK(read_file(changed + "/vocab.txt") == read_file(vocab));
  const auto rows = [](const std::string& checkpoint) {
    const SafetensorsFile file(checkpoint + "/" + kModelFile);
    const TensorInfo* info = file.find("bert.embeddings.word_embeddings.weight");
    REQUIRE(info != nullptr);
    std::vector<std::vector<double>> result(30, std::vector<double>(static_cast<size_t>(info->shape[1])));
    for (size_t row = 0; row < result.size(); ++row) {
      for (size_t i = 0; i < result[row].size(); ++i)
        result[row][i] =
            tensor_element(info->dtype, file.data(*info), static_cast<int64_t>(row * result[row].size() + i));
    }
    return result;
  };
  const auto means = rows(changed);
  REQUIRE(change(changed, {"--rows", "random", "--seed", "7"}).code == kOk);
  REQUIRE(change(again, {"--rows", "random", "--seed", "7"}).code == kOk);
  CHECK(read_file(changed + "/" + kModelFile) == read_file(again + "/" + kModelFile));
  REQUIRE(change(again, {"--rows", "random", "--seed", "8"}).code == kOk);
  const auto drawn = rows(changed), others = rows(again);
  int64_t new_rows = 0;
  double squares = 0, numbers = 0;
  for (size_t id = 0; id < drawn.size(); ++id) {
    CHECK((drawn[id] == others[id]) == (drawn[id] == means[id]));  // kept rows alone
    if (drawn[id] == means[id]) continue;
    ++new_rows;
    for (const double number : drawn[id]) squares += number * number, ++numbers;
  }
  CHECK(new_rows == 7);
  CHECK(std::sqrt(squares / numbers) == testing::Approx(0.02).epsilon(0.3));  // initializer_range
  const CommandResult cased =
      convert({"--to", "huggingface", "--input", ours, "--output", theirs, "--vocab", vocab, "--cased", "--overwrite"});
  REQUIRE(cased.code == kOk);
  CHECK(nlohmann::json::parse(read_file(theirs + "/tokenizer_config.json"))["do_lower_case"] == false);
  const CommandResult same =
      convert({"--to", "huggingface", "--input", theirs, "--output", directory.path("same"), "--vocab", vocab});
  CHECK(same.code == kOk);
  CHECK_FALSE(nlohmann::json::parse(same.out).contains("rows"));
}

TEST_CASE("convert says what is wrong with its command line and its input", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string input = hf_directory(directory), output = directory.path("out");
  CommandResult result = convert({"--input", input, "--output", output});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("neither --from nor --to nor --vocab"));
  CHECK(convert({"--from", "tensors", "--input", input, "--output", output}).code == kUsage);
  CHECK(convert({"--from", "huggingface", "--input", input, "--output", output, "--cased"}).code == kUsage);
  CHECK(convert({"--from", "huggingface", "--input", input, "--output", output, "--rows", "random"}).code == kUsage);
  CHECK(convert({"--from", "huggingface", "--input", input, "--output", output, "--raw-weights"}).code == kUsage);
  CHECK(from_hf(directory.path("absent"), output).code == kInputMissing);
  CHECK(to_hf(directory.path("absent"), output).code == kInputMissing);
  result = to_hf(input + "/model.safetensors", output);
  CHECK(result.code == kInputMissing);
  CHECK_THAT(result.err, Contains("is a file, and none of torch.save() or TensorFlow; name a checkpoint"));
  testing::patch_json(input + "/config.json", {{"model_type", "roberta"}});
  result = from_hf(input, output);
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("\"model_type\" is roberta: not BERT's architecture"));
  CHECK_FALSE(fs::exists(output));
}

TEST_CASE("The moving averages of a run are converted, or with --raw-weights its weights", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string ours = directory.path("ours"), checkpoint = directory.path("averaged");
  REQUIRE(from_hf(hf_directory(directory), ours).code == kOk);
  const SafetensorsFile model(ours + "/model.safetensors");
  std::vector<TensorSource> weights, averages;
  std::string zeros;
  for (const TensorInfo& info : model.tensors()) {
    weights.push_back({info.name, info.dtype, info.shape, [&] { return model.data(info); }});
    averages.push_back({"ema." + info.name, info.dtype, info.shape, [&] {
                          zeros.assign(static_cast<size_t>(info.bytes), '\0');
                          return std::string_view(zeros);
                        }});
  }
  {
    CheckpointWriter writer(checkpoint, {});
    writer.add_tensors(kModelFile, weights);
    writer.add_tensors(kOptimizerFile, averages);
    writer.add_text(kStateFile, read_file(ours + "/state.json"));
    writer.publish();
  }
  const auto all_zero = [](const std::string& path) {
    for (const TensorSource& tensor : read_hugging_face(path).tensors) {
      const std::string_view bytes = tensor.bytes();
      if (std::any_of(bytes.begin(), bytes.end(), [](char byte) { return byte != 0; })) return false;
    }
    return true;
  };
  REQUIRE(to_hf(checkpoint, directory.path("a")).code == kOk);
  CHECK(all_zero(directory.path("a")));
  REQUIRE(
      convert({"--to", "huggingface", "--raw-weights", "--input", checkpoint, "--output", directory.path("b")}).code ==
      kOk);
  CHECK(read_file(directory.path("b/model.safetensors")) == read_file(ours + "/model.safetensors"));
}

}  // namespace
}  // namespace bert
