// Long texts in windows: answers and gradients against windows merged by hand (golden/long_texts.py).
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/finetune/finetuning_inputs.h"
#include "app/finetune/finetuning_run.h"
#include "app/finetune/finetuning_step.h"
#include "app/inference/task_predictor.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/loader/task_loader.h"
#include "data/tasks/text_windows.h"
#include "tests/support/command_testing.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/mismatch.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/support/torchscript_file.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::Command;
using bert::testing::CommandResult;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::load_checkpoint;
using bert::testing::mismatch;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_task;
using bert::testing::tiny_task_of;
using bert::testing::Tolerance;
using nlohmann::json;

namespace {

constexpr Tolerance kClose{2e-6, 2e-6};  // fp32 against fp64

const json& merged() {
  static const json data = json::parse(std::ifstream(bert::testing::golden("long_texts.json")));
  return data;
}

torch::Tensor tensor_of(const json& numbers) {
  return torch::tensor(numbers.get<std::vector<double>>()).to(torch::kFloat);
}

int64_t stride() { return merged()["stride"]; }

std::vector<std::string> texts() { return merged()["texts"]; }

TaskDataConfig windows_config(WindowPooling pooling) {
  TaskDataConfig data;
  data.max_seq_length = merged()["length"];
  data.doc_stride = merged()["stride"];
  data.long_texts = LongTexts::kWindows;
  data.window_pooling = pooling;
  return data;
}

BertConfig model_config() {
  return {.vocab_size = std::ssize(merged()["vocabulary"]),
          .hidden_size = 16,
          .num_hidden_layers = 1,
          .num_attention_heads = 2,
          .intermediate_size = 24,
          .hidden_act = Activation::kGelu,
          .hidden_dropout_prob = 0,
          .attention_probs_dropout_prob = 0,
          .max_position_embeddings = merged()["length"]};
}

/// The model of the golden, fine-tuned on `task` with windows.
Pretrained model_of(const std::string& task, WindowPooling pooling) {
  Pretrained model;
  model.model.config = model_config();
  model.model.task = task;
  model.model.labels = {"x", "y", "z"};
  model.model.task_data = windows_config(pooling);
  model.model.vocabulary = merged()["vocabulary"].get<std::vector<std::string>>();
  model.tokenizer = std::make_shared<WordPieceTokenizer>(Vocabulary(model.model.vocabulary), TokenizerConfig());
  const bool tags = task == "ner";
  for (const auto& [name, weight] : merged()["weights"].items()) {
    const bool own_head = name.starts_with("classifier.");
    if (tags && name.starts_with("bert.pooler.")) continue;
    const torch::Tensor values = tensor_of(tags && own_head ? merged()["tagger"][name] : weight["values"]);
    model.weights.insert(name, values.view(weight["shape"].get<std::vector<int64_t>>()));
  }
  if (pooling == WindowPooling::kAttention)
    model.weights.insert("window_attention", tensor_of(merged()["window_attention"]));
  return model;
}

TaskExamples examples_of(const std::string& task) {
  TaskExamples examples;
  examples.task = task_definition(task);
  examples.task.labels = {"x", "y", "z"};
  examples.has_labels = true;
  if (task == "text-regression") examples.task.labels = {};
  for (size_t i = 0; i < texts().size(); ++i) {
    if (task == "ner") {
      TaggedSentence& sentence = examples.sentences.emplace_back();
      std::istringstream words(texts()[i]);
      for (std::string word; words >> word;) sentence.words.push_back(word);
      sentence.tags = merged()["tags"][i].get<std::vector<int32_t>>();
      continue;
    }
    examples.texts.push_back({.id = std::to_string(i),
                              .text = texts()[i],
                              .text_pair = "",
                              .choices = {},
                              .label = merged()["classes"][i],
                              .labels = merged()["sets"][i].get<std::vector<int32_t>>(),
                              .values = {merged()["values"][i].get<double>()}});
  }
  return examples;
}

/// Checks the loss and the gradients of a step whose micro-batches have `size` texts.
void check_training(const std::string& task, WindowPooling pooling, const json& wanted, int64_t size) {
  CAPTURE(task, name_of_value(pooling), size);
  const Pretrained start = model_of(task, pooling);
  const TaskExamples examples = examples_of(task);
  const TaskFeatures features = make_features(examples, *start.tokenizer, windows_config(pooling), true);
  FinetuneConfig config;
  config.model = model_config();
  config.task = task;
  config.max_steps = 10;
  config.optimizer.max_grad_norm = 0;
  config.optimizer.average = GradientAverage::kMaskedTokens;  // whatever the micro-batches hold
  FinetuningStep step(config,
                      {.kind = examples.task.kind,
                       .num_outputs = examples.task.num_outputs(),
                       .class_weights = {},
                       .multi_label = examples.task.multi_label,
                       .window_pooling = pooling},
                      c10::kCPU, nullptr);
  StateDict weights;
  for (const auto& item : start.weights) {  // a number is the first output of the classifier
    const bool cut = task == "text-regression" && item.key().starts_with("classifier.");
    weights.insert(item.key(), cut ? item.value().narrow(0, 0, 1) : item.value());
  }
  load_state_dict(step.module(), weights);
  std::vector<PackedBatch> batches;
  const int64_t units = features.units(1);
  for (int64_t begin = 0; begin < units; begin += size) {
    std::vector<int64_t> members(static_cast<size_t>(std::min(size, units - begin)));
    std::iota(members.begin(), members.end(), begin);
    batches.push_back(pack_task_sequences(features, 1, members, members));
  }
  step.run(batches);
  CHECK(step.take_mean_terms().terms.at(0) == Approx(wanted["loss"].get<double>()).epsilon(1e-6));
  for (const auto& [name, gradient] : wanted["gradients"].items()) {
    CAPTURE(name);
    const torch::Tensor got = step.module().named_parameters()[name].grad().flatten();
    CHECK(mismatch(got, tensor_of(gradient).narrow(0, 0, got.numel()), kClose) == "");
  }
}

}  // namespace

TEST_CASE("Windows of texts and pairs are those of transformers' tokenizer", "[unit][long_texts]") {
  const Pretrained model = model_of("text-classification", WindowPooling::kMean);
  const TaskFeatures features =
      make_features(examples_of("text-classification"), *model.tokenizer, windows_config(WindowPooling::kMean), true);
  REQUIRE(features.units(1) == std::ssize(texts()));
  CHECK(features.cut == 0);
  for (int64_t text = 0; text < features.units(1); ++text) {
    json windows = json::array();
    const auto [begin, end] = features.unit(text, 1);
    for (int64_t i = begin; i < end; ++i) windows.push_back(features.sequences[static_cast<size_t>(i)].input_ids);
    CHECK(windows == merged()["windows"][static_cast<size_t>(text)]);
  }
  TaskExamples pairs = examples_of("text-classification");
  pairs.texts.clear();
  for (const json& pair : merged()["pairs"]) {
    TextExample& example = pairs.texts.emplace_back();
    example.text = pair[0];
    example.text_pair = pair[1];
  }
  const TaskFeatures of_pairs =
      make_features(pairs, *model.tokenizer, windows_config(WindowPooling::kMean), /*for_training=*/false);
  CHECK(of_pairs.cut == 1);  // the last: its texts are equally long, and the first takes half of the room
  for (int64_t pair = 0; pair + 1 < of_pairs.units(1); ++pair) {
    json windows = json::array();
    const auto [begin, end] = of_pairs.unit(pair, 1);
    for (int64_t i = begin; i < end; ++i) {
      const TaskSequence& sequence = of_pairs.sequences[static_cast<size_t>(i)];
      windows.push_back({sequence.input_ids, sequence.token_type_ids});
    }
    CHECK(windows == merged()["pair_windows"][static_cast<size_t>(pair)]);
  }
}

TEST_CASE("Classes, labels and numbers of long texts are those of their windows, merged by hand",
          "[unit][long_texts]") {
  for (const WindowPooling pooling :
       {WindowPooling::kMean, WindowPooling::kMax, WindowPooling::kFirst, WindowPooling::kAttention}) {
    CAPTURE(name_of_value(pooling));
    const TaskPredictor predictor(model_of("multi-label-classification", pooling), {});
    std::vector<TaskInput> inputs;
    for (const std::string& text : texts()) inputs.push_back({.text = text, .second = ""});
    const std::vector<TextScores> scores = predictor.classify(inputs, {.function_to_apply = FunctionToApply::kNone});
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (const LabelScore& score : scores[i].scores) {
        const auto place = static_cast<size_t>(score.label.front() - 'x');
        CHECK(score.score == Approx(merged()["logits"][name_of_value(pooling)][i][place].get<double>()).margin(2e-6));
      }
    }
  }
  // A model that was trained without windows, and the options of a caller.
  Pretrained plain = model_of("text-classification", WindowPooling::kMean);
  plain.model.task_data->long_texts = LongTexts::kTruncate;
  plain.model.task_data->doc_stride = 7;
  const auto best_of = [&](const PredictorOptions& options, const AnswerOptions& wishes) {
    return TaskPredictor(plain, options).classify({{.text = texts()[0], .second = ""}}, wishes).front().scores.front();
  };
  const double first = best_of({}, {.function_to_apply = FunctionToApply::kNone}).score,
               windows =
                   best_of(
                       {.long_texts = LongTexts::kWindows, .stride = stride(), .window_pooling = WindowPooling::kMax},
                       {.function_to_apply = FunctionToApply::kNone})
                       .score;
  CHECK(first == Approx(merged()["logits"]["first"][0].get<std::vector<double>>()[2]).margin(2e-6));
  CHECK(windows == Approx(merged()["logits"]["max"][0].get<std::vector<double>>()[2]).margin(2e-6));
  CHECK_THROWS_WITH(best_of({.long_texts = LongTexts::kWindows, .window_pooling = WindowPooling::kAttention}, {}),
                    Contains("no weights window_attention"));
  CHECK_THROWS_WITH(best_of({.long_texts = LongTexts::kRefuse}, {}), Contains("more than 12 tokens"));
}

TEST_CASE("The gradients of long texts are those of a loop over their windows", "[unit][long_texts]") {
  const json& training = merged()["training"];
  for (const int64_t size : {5, 2, 1}) {
    for (const char* pooling : {"mean", "max", "first", "attention"})
      check_training("text-classification", *value_named<WindowPooling>(pooling), training[pooling], size);
    check_training("multi-label-classification", WindowPooling::kMean, training["multi_label"], size);
    check_training("text-regression", WindowPooling::kAttention, training["values"], size);
  }
}

TEST_CASE("A word of a long sentence is learned and labelled in the window with most context", "[unit][long_texts]") {
  const Pretrained model = model_of("ner", WindowPooling::kMean);
  const TaskFeatures features =
      make_features(examples_of("ner"), *model.tokenizer, windows_config(WindowPooling::kMean), true);
  for (size_t text = 0; text < texts().size(); ++text) {  // each label once, in the order of the words
    std::vector<int32_t> labels, words;
    for (const TaskSequence& sequence : features.sequences) {
      if (sequence.example != static_cast<int32_t>(text)) continue;
      for (const int32_t label : sequence.token_labels)
        if (label != kNoLabel) labels.push_back(label);
      for (const int32_t word : sequence.token_words)
        if (word >= 0) words.push_back(word);
    }
    CHECK(labels == merged()["tags"][text].get<std::vector<int32_t>>());
    CHECK(std::ranges::is_sorted(words));
    CHECK(std::ssize(words) == std::ssize(labels));
  }
  check_training("ner", WindowPooling::kMean, merged()["tag_training"], 16);
  check_training("ner", WindowPooling::kMean, merged()["tag_training"], 3);
  const TaskPredictor predictor(model, {});
  for (size_t text = 0; text < texts().size(); ++text) {
    const TaggedText tagged = predictor.tag({{.text = texts()[text], .second = ""}}).front();
    const torch::Tensor wanted = tensor_of(merged()["tag_logits"][text]).view({-1, 3}).softmax(1);
    REQUIRE(std::ssize(tagged.words) == wanted.size(0));
    const auto [scores, best] = wanted.max(1);
    for (size_t i = 0; i < tagged.words.size(); ++i) {
      const WordLabel& word = tagged.words[i];
      const auto row = static_cast<int64_t>(i);
      CHECK(word.label == std::string(1, static_cast<char>('x' + best[row].item<int64_t>())));
      CHECK(word.score == Approx(scores[row].item<double>()).margin(2e-6));
      CHECK(texts()[text].substr(static_cast<size_t>(word.begin), word.word.size()) == word.word);
    }
  }
}

TEST_CASE("Features of a long text are those of the window with most context around each token", "[unit][long_texts]") {
  Pretrained model = model_of("text-classification", WindowPooling::kMean);
  model.model.masked_token_head = false;
  const Predictor predictor(model, {.long_texts = LongTexts::kWindows, .stride = stride()});
  std::vector<EncodedText> encoded;
  for (const std::string& text : texts()) encoded.push_back(predictor.encode(Task::kFeatures, text));
  const std::vector<Features> features = predictor.features(encoded);
  const std::vector<torch::Tensor> means = predictor.embed(encoded, {.pooling = Pooling::kMean}),
                                   poolers = predictor.embed(encoded, {.pooling = Pooling::kPooler});
  for (size_t i = 0; i < encoded.size(); ++i) {
    const torch::Tensor states = tensor_of(merged()["features"][i]["states"]).view({-1, 16}),
                        pooler = tensor_of(merged()["features"][i]["pooler"]);
    CHECK(std::ssize(features[i].tokens) == states.size(0));
    CHECK(mismatch(features[i].last_hidden_state, states, kClose) == "");
    CHECK(mismatch(features[i].pooler_output, pooler, kClose) == "");
    CHECK(mismatch(means[i], states.mean(0), kClose) == "");
    CHECK(mismatch(poolers[i], pooler, kClose) == "");
  }
}

TEST_CASE("A run over windows answers with windows, and does not depend on its micro-batches", "[unit][long_texts]") {
  const TemporaryDirectory directory;
  std::vector<StateDict> models;
  for (const int64_t size : {8, 2}) {
    FinetuneConfig config = tiny_task(directory, "run" + std::to_string(size));
    config.micro_batch_size = size;
    config.data.task.max_seq_length = 8;  // the texts have 3 to 9 tokens
    config.data.task.doc_stride = 3;
    config.data.task.long_texts = LongTexts::kWindows;
    config.data.task.window_pooling = WindowPooling::kAttention;
    REQUIRE(finetune(config, false) == kOk);
    models.push_back(load_checkpoint(config.run_directory + "/latest").model);
  }
  for (const auto& item : models[0]) {
    CAPTURE(item.key());
    CHECK(mismatch(models[1][item.key()], item.value()) == "");
  }
  CHECK(models[0]["window_attention"].abs().sum().item<double>() > 0);
  const Pretrained trained = load_pretrained(directory.path("run8"));
  CHECK(trained.model.task_data->long_texts == LongTexts::kWindows);
  CHECK(trained.model.task_data->window_pooling == WindowPooling::kAttention);
  const EncodedInput encoded = TaskPredictor(trained, {}).encode({.text = "5 6 7 8 9 10 11 12 13", .second = ""});
  CHECK(encoded.features.sequences.size() == 2);
  CHECK_FALSE(encoded.cut);
}

TEST_CASE("Weights of windows go into conversions, averages and exports", "[unit][long_texts]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.data.task.max_seq_length = 8;
  config.data.task.doc_stride = 3;
  config.data.task.long_texts = LongTexts::kWindows;
  config.data.task.window_pooling = WindowPooling::kAttention;
  REQUIRE(finetune(config, false) == kOk);
  const auto say = [&](Command command, std::vector<std::string> arguments) {
    const CommandResult result = run_command(command, arguments);
    CAPTURE(result.err);
    REQUIRE(result.code == kOk);
    return result;
  };
  const std::string hf = directory.path("hf"), own = directory.path("own"), script = directory.path("x.pt"),
                    average = directory.path("average");
  say(convert_command, {"convert", "--to", "huggingface", "--input", config.run_directory, "--output", hf});
  say(convert_command, {"convert", "--from", "huggingface", "--input", hf, "--output", own});
  say(checkpoint_command, {"checkpoint", "average", config.run_directory, "--last", "2", "--output", average});
  CHECK_THAT(say(export_command, {"export", "--checkpoint", config.run_directory, "--output", script}).err,
             Contains("answers for a text of one window"));
  const auto logits = [&](const std::string& model, const std::string& text) {
    const PredictorOptions options{.long_texts = LongTexts::kWindows, .stride = 3};
    const TaskPredictor predictor(load_pretrained(model), options);
    return predictor.classify({{.text = text, .second = ""}}).front().scores.front().score;
  };
  const std::string text = "5 6 7 40 41 42 11 12 13 50 51";
  const double wanted = logits(config.run_directory, text);
  CHECK(logits(script, text) == Approx(wanted).margin(1e-6));
  for (const std::string& model : {hf, own, average}) {
    CAPTURE(model);
    const Pretrained read = load_pretrained(model);
    CHECK(text_settings(read.model).window_pooling == WindowPooling::kAttention);
    if (model != average)
      CHECK(read.weights["window_attention"].equal(load_pretrained(config.run_directory).weights["window_attention"]));
  }
  // One window: the classifier of transformers, in LibTorch.
  const TaskPredictor predictor(load_pretrained(config.run_directory), {});
  const std::vector<int32_t> ids = predictor.encode({.text = "5 40 7", .second = ""}).features.sequences[0].input_ids;
  std::ifstream in(script, std::ios::binary);
  ExtraFiles inside;
  const torch::Tensor batch = torch::tensor(ids).to(torch::kLong).unsqueeze(0);
  const torch::Tensor got = bert::testing::load_torchscript(in, inside)
                                .forward({batch, torch::zeros_like(batch), torch::ones_like(batch)})
                                .toTuple()
                                ->elements()[0]
                                .toTensor();
  CHECK(got.softmax(-1).max().item<double>() == Approx(logits(config.run_directory, "5 40 7")).margin(1e-6));
}

TEST_CASE("A token belongs to the first window with the most context of all; too many tokens are refused",
          "[unit][long_texts]") {
  for (const auto& [tokens, room, stride] :
       std::vector<std::array<int64_t, 3>>{{50, 10, 3}, {23, 8, 8}, {40, 12, 11}}) {
    CAPTURE(tokens, room, stride);
    const std::vector<TextWindow> windows = text_windows(tokens, room, stride);
    for (int64_t position = 0; position < tokens; ++position) {
      size_t best = windows.size();
      double most = -1;
      for (size_t i = 0; i < windows.size(); ++i) {  // Google's loop
        const int64_t end = windows[i].start + windows[i].length - 1;
        if (position < windows[i].start || position > end) continue;
        const auto context = static_cast<double>(std::min(position - windows[i].start, end - position));
        const double score = context + 0.01 * static_cast<double>(windows[i].length);
        if (score <= most) continue;
        most = score;
        best = i;
      }
      for (size_t i = 0; i < windows.size(); ++i) {
        if (position >= windows[i].start && position < windows[i].start + windows[i].length)
          CHECK(is_max_context(windows, i, position) == (i == best));
      }
    }
    int64_t sum = 0;
    for (const TextWindow& window : windows) sum += window.length;
    CHECK(text_windows(tokens, room, stride, sum).size() == windows.size());
    CHECK_THROWS_AS(text_windows(tokens, room, stride, sum - 1), TooManyTokens);
  }
}

TEST_CASE("Tasks and settings without windows refuse them by name", "[unit][long_texts]") {
  const TemporaryDirectory directory;
  for (const char* task : {"swag", "embedding"}) {
    FinetuneConfig config = tiny_task_of(task, directory);
    config.data.task.long_texts = LongTexts::kWindows;
    CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("data.long_texts: is windows, and task "));
  }
  FinetuneConfig config = tiny_task(directory, "refused");
  config.data.task.max_seq_length = 8;
  config.data.task.long_texts = LongTexts::kRefuse;
  CHECK_THAT(finetuning_refusal<DataError>(config), Contains("data.long_texts=truncate cuts them"));
}
