// bert predict and bert export.
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "app/inference/predictor.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "model/torchscript.h"
#include "tests/support/command_testing.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/predict_command.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/torch_archive.h"
#include "tests/support/torchscript_file.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::lines_of;
using bert::testing::load_checkpoint;
using bert::testing::load_torchscript;
using bert::testing::predict;
using bert::testing::run_export;
using bert::testing::TemporaryDirectory;
using bert::testing::texts_of_mixed_lengths;
using bert::testing::write_random_checkpoint;

TEST_CASE("predict and export refuse a path that is no checkpoint, and name what they take", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), file = directory.path("bert.safetensors");
  REQUIRE(run_export(checkpoint, file, "safetensors") == 0);
  for (const std::string& path : {file, checkpoint + "/model.safetensors"}) {
    CHECK_THROWS_WITH(Predictor(path),
                      Contains(path + ": is no TorchScript file. Name one that `bert export` wrote, or a "
                                      "checkpoint or run directory"));
  }
  std::ofstream(directory.path("torn.pt")) << "PK\x03\x04";
  CHECK_THROWS_WITH(Predictor(directory.path("torn.pt")),
                    Contains("torn.pt: byte 4: is no archive of PyTorch, or a damaged one"));
  CHECK_THROWS_WITH(run_export(file, directory.path("out.pt")),
                    Contains(file + ": is a file; name the checkpoint or run directory to export"));
}

TEST_CASE("predict and export take a run's newest valid checkpoint, and name it", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), run = directory.path("run"),
                    first = run + "/checkpoints/step-00000001", output = directory.path("out");
  std::filesystem::create_directories(run + "/checkpoints");
  std::filesystem::rename(checkpoint, first);
  std::filesystem::create_directory_symlink("checkpoints/step-00000009", run + "/latest");
  const std::string note = run + "/latest: points to nothing; using " + first + "\n";
  auto result = bert::testing::run_command(predict_command, {"predict", "--checkpoint", run, "the [MASK] sat."});
  CHECK(result.code == kOk);
  CHECK(result.err == "bert predict: " + note);
  for (const char* format : {"safetensors", "torchscript"}) {
    result = bert::testing::run_command(export_command,
                                        {"export", "--checkpoint", run, "--format", format, "--output", output});
    CHECK(result.code == kOk);
    const bool script = std::string(format) == "torchscript";
    const std::string traced = script ? "tracing and comparing: done\n" : "";
    const std::string needs = script ? "; needs PyTorch or LibTorch >= 2.0 (1.13 with --plain-attention)" : "";
    CHECK(result.err ==
          "verifying: done\nbert export: " + note + traced + "writing: done\nwrote " + output + needs + "\n");
  }
  std::filesystem::resize_file(first + "/model.safetensors", 10);
  result = bert::testing::run_command(predict_command, {"predict", "--checkpoint", run, "the [MASK] sat."});
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains(run + ": has no valid checkpoint: "));
}

TEST_CASE("bert predict prints the same lines for every batch size, and none if a text has no answer",
          "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  std::string input;
  for (const std::string& text : texts_of_mixed_lengths()) input += text + "\n";
  const auto tokens_of = [&](const std::string& batch_size, const std::string& lines) {
    const auto result = bert::testing::run_command(
        predict_command, {"predict", "--checkpoint", checkpoint, "--input", "-", "--batch-size", batch_size}, lines);
    std::vector<std::string> tokens;
    std::istringstream out(result.out);
    for (std::string line; std::getline(out, line);) {
      const nlohmann::json fillers = nlohmann::json::parse(line)["fillers"].flatten();
      for (const auto& [key, value] : fillers.items()) {
        if (key.ends_with("/token")) tokens.push_back(value.dump());
      }
      tokens.emplace_back("end of text");
    }
    tokens.push_back(result.err);
    return tokens;
  };
  const std::vector<std::string> one = tokens_of("1", input);
  CHECK(std::count(one.begin(), one.end(), "end of text") == 23);
  CHECK(tokens_of("4", input) == one);
  CHECK(tokens_of("100", input) == one);
  const std::vector<std::string> failed = tokens_of("4", input + "the cat\n[MASK]\n");
  CHECK(std::count(failed.begin(), failed.end(), "end of text") == 0);
  CHECK(failed.back() ==
        "bert predict: standard input: line 24: no [MASK] in the text: \"the cat\". Nothing was answered; --skip-bad "
        "leaves such texts out\n");
}

TEST_CASE("bert predict answers JSON lines, and keeps their fields in their order", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  const std::string input = R"({"z": 1, "doc": {"body": "the [MASK] sat"}, "a": [null]})"
                            "\n\n"
                            R"({"doc": {"body": "[MASK]"}, "fillers": "old"})"
                            "\n";
  auto result = predict(checkpoint, {"--input", "-", "--text-field", "doc.body", "--top-k", "2"}, input);
  REQUIRE(result.code == kOk);
  const auto lines = lines_of(result.out);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].dump().starts_with(R"({"z":1,"doc":{"body":"the [MASK] sat"},"a":[null],"fillers":[{"score":)"));
  CHECK(lines[0]["fillers"].size() == 2);
  CHECK(lines[1]["fillers"] == "old");
  CHECK(lines[1]["predicted_fillers"].is_array());
  CHECK_FALSE(lines[1].contains("text"));
  // A product's rounding may depend on its number of rows, so that a text alone can differ in the last bit of a score.
  const auto alone = lines_of(predict(checkpoint, {"the [MASK] sat", "--top-k", "2"}).out)[0]["fillers"];
  for (size_t k = 0; k < 2; ++k) {
    CHECK(lines[0]["fillers"][k]["token"] == alone[k]["token"]);
    CHECK(lines[0]["fillers"][k]["score"].get<double>() ==
          bert::testing::Approx(alone[k]["score"].get<double>()).epsilon(1e-5));
  }
  CHECK(predict(checkpoint, {"--text-field", "doc", "the [MASK]"}).code == kUsage);
}

TEST_CASE("bert predict names a bad line, and leaves such lines out on request", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), output = directory.path("out.json");
  const std::string good = R"({"text": "[MASK]", "id": )", end = "}\n";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{\"text\": \"[MASK]\"", "this is not JSON"},
      {"[1]", "want a JSON object, got array"},
      {R"({"other": "[MASK]"})", "has no field \"text\""},
      {R"({"text": 5})", "field \"text\": want a string, got number"},
      {R"({"text": "the cat"})", "no [MASK] in the text"},
      {R"({"text": "[MASK]", "text": "[MASK]"})", "duplicate key"}};
  for (const auto& [line, problem] : bad) {
    CAPTURE(line);
    const std::string input = good + "1" + end + line + "\n" + good + "2" + end;
    const std::vector<std::string> arguments = {"--input", "-", "--text-field", "text", "--output", output};
    auto result = predict(checkpoint, arguments, input);
    CHECK(result.code == kBadData);
    CHECK_THAT(result.err,
               Contains("standard input: line 2: ") && Contains(problem) && Contains("Nothing was answered"));
    CHECK_FALSE(std::filesystem::exists(output));
    std::vector<std::string> skipping = arguments;
    skipping.emplace_back("--skip-bad");
    result = predict(checkpoint, skipping, input);
    CHECK(result.code == kOk);
    CHECK_THAT(result.err, Contains("left out 1 of 3 texts without an answer, the first: standard input: line 2: ") &&
                               Contains(problem));
    const auto lines = lines_of(read_file(output));
    REQUIRE(lines.size() == 2);
    CHECK(lines[0]["id"] == 1);
    CHECK(lines[1]["id"] == 2);
    std::filesystem::remove(output);
    result = predict(checkpoint, skipping, line + "\n");
    CHECK(result.code == kBadData);
    CHECK_THAT(result.err, Contains("No text is left"));
  }
  const auto result = predict(checkpoint, {"--input", "-"}, "[MASK]\nthe\ncat\n");
  CHECK_THAT(result.err, Contains("line 2: no [MASK]") && Contains("(and 2 of 3 in all)"));
}

TEST_CASE("bert predict writes features as arrays", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), npy = directory.path("x.npy"),
                    safetensors = directory.path("x.safetensors");
  const std::string input = "the cat\nsat .\nthe cats sat .\n";
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--task", "features", "--input", "-"});
    return predict(checkpoint, more, input);
  };
  const std::vector<torch::Tensor> want = Predictor(checkpoint).embed({"the cat", "sat .", "the cats sat ."});
  REQUIRE(run({"--pooling", "mean", "--format", "npy", "--output", npy}).code == kOk);
  // The layout of numpy.lib.format: magic, version 1.0, length, header, data from a multiple of 64 on.
  const std::string bytes = read_file(npy);
  REQUIRE(bytes.size() == 128 + 3 * 16 * 4);
  CHECK(bytes.substr(0, 10) == std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  CHECK_THAT(bytes.substr(10, 118), Contains("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 16, ), }"));
  CHECK(bytes[127] == '\n');
  std::vector<float> values(48);
  std::memcpy(values.data(), bytes.data() + 128, sizeof(float) * values.size());
  CHECK(torch::allclose(torch::tensor(values).view({3, 16}), torch::stack(want), 0, 1e-5));

  REQUIRE(run({"--pooling", "mean", "--layers", "-1,0", "--format", "safetensors", "--output", safetensors}).code ==
          kOk);
  const torch::Tensor embeddings = read_safetensors(safetensors)["embeddings"];
  CHECK(embeddings.sizes() == torch::IntArrayRef({3, 2, 16}));
  CHECK(torch::allclose(embeddings.select(1, 0), torch::stack(want), 0, 1e-5));
  REQUIRE(run({"--layers", "all", "--format", "safetensors", "--output", safetensors}).code == kOk);
  const StateDict all = read_safetensors(safetensors);
  CHECK(all["hidden_states"].sizes() == torch::IntArrayRef({3, 4 + 4 + 7, 16}));
  CHECK(torch::equal(all["cu_seqlens"], torch::tensor({0, 4, 8, 15}, torch::kLong)));
  CHECK(torch::allclose(all["hidden_states"][2].narrow(0, 4, 4).mean(0), want[1], 0, 1e-5));

  const auto lines = lines_of(run({"--pooling", "cls", "--layers", "-2,-1"}).out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1]["text"] == "sat .");
  CHECK(lines[1]["embedding"].size() == 2);
  CHECK(lines[1]["embedding"][0].size() == 16);
  const auto states = lines_of(run({"--pooling", "none"}).out);
  CHECK(states[2]["tokens"] == nlohmann::ordered_json({"[CLS]", "the", "cat", "##s", "sat", ".", "[SEP]"}));
  CHECK(states[2]["hidden_states"].size() == 7);
}

TEST_CASE("bert predict refuses options that do not go together", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), output = directory.path("x.npy");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--pooling", "cls", "[MASK]"},
                                             {"--layers", "-1", "[MASK]"},
                                             {"--format", "npy", "--output", output, "[MASK]"},
                                             {"--task", "features", "--format", "npy", "--pooling", "cls", "the"},
                                             {"--task", "features", "--format", "npy", "--output", output, "the"},
                                             {"--task", "features", "--pooling", "pooler", "--layers", "-1", "the"},
                                             {"--task", "features", "--layers", "3", "the"},
                                             {"--task", "features", "--layers", "-4", "the"},
                                             {"--task", "features", "--layers", "1,all", "the"},
                                             {"--task", "features", "--layers", "last", "the"},
                                             {"--precision", "int4", "[MASK]"},
                                             {"--output", checkpoint + "/state.json", "[MASK]"}}) {
    CAPTURE(arguments);
    CHECK(predict(checkpoint, arguments).code == kUsage);
    CHECK_FALSE(std::filesystem::exists(output));
  }
  CHECK(predict(checkpoint, {"--precision", "int8", "[MASK]"}).code == kOk);
  CHECK(predict(checkpoint, {"--task", "features", "--layers", "-3", "the"}).code == kOk);
}

TEST_CASE("An export as safetensors has the checkpoint's tensors", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), file = directory.path("model.safetensors");
  REQUIRE(run_export(checkpoint, file, "safetensors") == 0);
  const StateDict exported = read_safetensors(file), model = load_checkpoint(checkpoint).model;
  REQUIRE(exported.size() == model.size());
  for (const auto& item : model) CHECK(torch::equal(exported[item.key()], item.value()));
}

TEST_CASE("The moving average is exported and predicts, or the weights with --raw-weights", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory, true);
  const StateDict model = load_checkpoint(checkpoint).model;
  for (const bool raw : {false, true}) {
    CAPTURE(raw);
    const std::string file = directory.path(raw ? "raw.safetensors" : "averaged.safetensors");
    REQUIRE(run_export(checkpoint, file, "safetensors", raw) == 0);
    const StateDict exported = read_safetensors(file);
    REQUIRE(exported.size() == model.size());
    for (const auto& item : model) CHECK(torch::equal(exported[item.key()], item.value() * (raw ? 1.0 : 1.5)));

    const std::string script = directory.path(raw ? "raw.pt" : "averaged.pt");
    REQUIRE(run_export(checkpoint, script, "torchscript", raw) == 0);
    const Predictor from_checkpoint(load_pretrained(checkpoint, raw ? WeightsKind::kRaw : WeightsKind::kAveraged)),
        from_export(script);
    const std::string text = "the [MASK] sat.";
    CHECK(from_checkpoint.fill_mask(text, 1).masks[0][0].score ==
          bert::testing::Approx(from_export.fill_mask(text, 1).masks[0][0].score).epsilon(1e-5));
  }
  CHECK(Predictor(checkpoint).fill_mask("the [MASK] sat.", 1).masks[0][0].score !=
        Predictor(load_pretrained(checkpoint, WeightsKind::kRaw)).fill_mask("the [MASK] sat.", 1).masks[0][0].score);
  CHECK_FALSE(load_model(write_random_checkpoint(directory)).averaged);
}

TEST_CASE("bert predict does not alter texts", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  const auto run = [&](std::vector<std::string> more, const std::string& input = "") {
    more.insert(more.begin(), {"predict", "--checkpoint", checkpoint});
    return bert::testing::run_command(predict_command, more, input);
  };
  const auto line_of = [](const std::string& text) { return nlohmann::json::parse(text.substr(0, text.find('\n'))); };

  bert::testing::CommandResult result = run({"[MASK]"});
  CHECK(result.code == kOk);
  CHECK(line_of(result.out)["text"] == "[MASK]");
  CHECK(line_of(result.out)["fillers"].size() == 5);
  result = run({"[MASK] is, in fact, [MASK]"});
  CHECK(result.code == kOk);
  CHECK(line_of(result.out)["text"] == "[MASK] is, in fact, [MASK]");
  CHECK(line_of(result.out)["fillers"].size() == 2);

  // Both tasks drop and count invalid UTF-8.
  for (const std::string task : {"fill-mask", "features"}) {
    result = run({"--task", task, "the \xFF[MASK] c\xE2\x82"});
    CHECK(result.code == kOk);
    CHECK(line_of(result.out)["text"] == "the [MASK] c");
    CHECK(result.err == "bert predict: dropped 2 invalid UTF-8 sequences\n");
  }

  // Errors name the place and escape the bytes of the text.
  result = run({"--input", "-"}, "the [MASK] sat.\n[MASK]\nno \x1b[31mred\n");
  CHECK(result.code == kBadData);
  CHECK(result.out.empty());
  CHECK_THAT(result.err,
             Contains("bert predict: standard input: line 3: no [MASK] in the text: \"no \\u001b[31mred\""));
  CHECK_THAT(run({"--input", "-"}, "[MASK]\n\n").err, Contains("line 2: no [MASK] in the text: \"\""));
  const std::string file = directory.path("texts");
  std::ofstream(file) << "the the the the the the the the the the [MASK]\n";
  result = run({"--input", file});
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, bert::testing::Contains(file + ": line 1: text of 13 tokens"));

  result = run({"--input", file, "the [MASK]"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, bert::testing::Contains("--input") && bert::testing::Contains("TEXT"));
  CHECK(run({}).code == kUsage);
  CHECK(run({"--input", "-"}).code == kBadData);
  result =
      bert::testing::run_command_from("/", predict_command, {"predict", "--checkpoint", checkpoint, "--input", "-"});
  CHECK(result.code == kIo);
  CHECK_THAT(result.err, bert::testing::Contains("standard input: cannot read"));
}

TEST_CASE("An export has no other weights to predict with", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string file = directory.path("bert.pt");
  REQUIRE(run_export(write_random_checkpoint(directory), file) == 0);
  std::vector<std::string> arguments = {"predict", "--checkpoint", file, "--raw-weights", "the [MASK] sat."};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  CHECK_THROWS_AS(predict_command(static_cast<int>(argv.size()), argv.data()), UsageError);
}

TEST_CASE("An export's config.json is read with its types checked", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string file = directory.path("bert.pt"), changed = directory.path("changed.pt");
  REQUIRE(run_export(write_random_checkpoint(directory), file) == 0);
  std::ifstream in(file, std::ios::binary);
  ExtraFiles extra = {{"config.json", ""}, {"vocab.txt", ""}};
  const torch::jit::Module script = load_torchscript(in, extra);
  const auto predict_with = [&](const std::string& config) {
    extra["config.json"] = config;
    std::ofstream out(changed, std::ios::binary);
    save_torchscript(script, extra, [&](const void* data, size_t bytes) {
      out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
      return bytes;
    });
    out.close();
    return bert::testing::run_command(predict_command, {"predict", "--checkpoint", changed, "the [MASK] sat."});
  };
  const nlohmann::json written = nlohmann::json::parse(extra["config.json"]);
  CHECK(predict_with(written.dump()).code == kOk);
  CHECK(written["vocabulary_hash"] == load_pretrained(file).tokenizer->vocabulary().hash());
  CHECK(written["model_max_length"] == 12);
  nlohmann::json less = written;
  for (const char* key : {"do_lower_case", "max_input_chars_per_word", "hidden_dropout_prob", "model_type",
                          "vocabulary_hash", "model_max_length"})
    less.erase(key);
  CHECK(predict_with(less.dump()).code == kOk);
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json config = written;
    config[key] = value;
    return config.dump();
  };
  for (const auto& [config, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"max_position_embeddings": "12"})", "\"max_position_embeddings\": want a 64-bit integer, got string"},
           {R"({"max_input_chars_per_word": 1e9})", "\"max_input_chars_per_word\": want a 64-bit integer, got number"},
           {R"({"do_lower_case": 1})", "\"do_lower_case\": want boolean, got number"},
           {R"({"hidden_act": 1})", "\"hidden_act\": want string, got number"},
           {with("hidden_size", 32), "the weights are not those of a BertForPreTraining of this configuration"},
           {with("num_attention_heads", 3), "the weights are not those of a BertForPreTraining of this configuration"},
           {with("vocabulary_hash", "0"), "the vocabulary inside is not that of which config.json has the"},
           {with("vocab_size", 9), "its tokenizer has 10 tokens, and its model has 9 (vocab_size)"},
           {R"({"vocab_size": 1, "vocab_size": 2})", "duplicate key \"vocab_size\""},
           {std::string(100'000, '['), "nested deeper than 64 levels"},
           {"[]", "want an object, got array"},
           {"{", "this is not JSON"},
           {"", "has no config.json and vocab.txt inside"}}) {
    CAPTURE(config.substr(0, 60));
    const auto result = predict_with(config);
    CHECK(result.code == kBadData);
    CHECK_THAT(result.err, Contains(changed + ": ") && Contains(message));
  }
}

TEST_CASE("A damaged export is refused with 65, its name and one line", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string file = directory.path("bert.pt"), damaged_file = directory.path("damaged.pt");
  REQUIRE(run_export(write_random_checkpoint(directory), file) == 0);
  const std::string whole = read_file(file);
  const auto predict = [&](const std::string& bytes) {
    std::ofstream(damaged_file, std::ios::binary) << bytes;
    return bert::testing::run_command(predict_command, {"predict", "--checkpoint", damaged_file, "the [MASK] sat."});
  };
  REQUIRE(predict(whole).code == kOk);
  std::mt19937 random(1);
  const auto below = [&](size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random); };
  constexpr int kFlips = 300, kCuts = 60;
  for (int i = 0; i < kFlips + kCuts; ++i) {
    std::string damaged = whole;
    const size_t at = below(whole.size());
    if (i < kFlips) {
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << below(8));
    } else {
      damaged.resize(at);
    }
    const auto result = predict(damaged);
    INFO((i < kFlips ? "flipped at " : "cut at ") << at << ": " << result.err);
    CHECK(result.code == kBadData);
    CHECK_THAT(result.err, Contains("bert predict: " + damaged_file + ": ") &&
                               (Contains("is no archive of PyTorch") || Contains("is no TorchScript file")));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
}

TEST_CASE("A whole archive that is no export is refused with 65 and LibTorch's first line, or as a pickle",
          "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string file = directory.path("bert.pt");
  using bert::testing::archive_members;
  using bert::testing::ArchiveMember;
  using bert::testing::torch_archive;
  const auto predict = [&](const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
    const auto result = bert::testing::run_command(predict_command, {"predict", "--checkpoint", file, "a [MASK]"});
    INFO(result.err);
    const bool pickle = result.err.find(": is a pickle, ") != std::string::npos;  // what torch.save() may have written
    CHECK(result.code == (pickle ? kRefused : kBadData));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    if (!pickle) CHECK_THAT(result.err, Contains(file + ": LibTorch cannot read it as TorchScript: "));
  };
  predict(torch_archive({}));
  predict(torch_archive({{"bert/version", "3\n"}}));
  predict(torch_archive(archive_members()));
  std::vector<ArchiveMember> members = archive_members();  // code with a syntax error
  members[2].content = "class Bert(Module):\n  def forward(self: 1 2 3\n";
  members.push_back({"bert/constants.pkl", "\x80\x02)."});
  predict(torch_archive(members));
}
