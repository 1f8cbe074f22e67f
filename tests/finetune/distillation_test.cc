// Distillation: its losses against those of PyTorch, and runs with a tiny teacher and a tiny student.
#include "app/finetune/distillation.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/checkpoint/files.h"
#include "app/finetune/distillation_losses.h"
#include "app/inference/pretrained.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/lines.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/mismatch.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_distillation.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::checkpoint_file;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::load_checkpoint;
using bert::testing::metrics_of;
using bert::testing::mismatch;
using bert::testing::run_in_child;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;
using bert::testing::tiny_distillation;
using bert::testing::tiny_task;
using bert::testing::tiny_task_of;
using bert::testing::tiny_teacher_sizes;
using bert::testing::write_tiny_model;
using nlohmann::json;
using torch::Tensor;

namespace {

json read_golden() { return json::parse(std::ifstream(bert::testing::golden("distillation.json"))); }

Tensor rows_of(const json& numbers, int64_t rows) {
  return torch::tensor(numbers.get<std::vector<float>>()).view({rows, -1});
}

/// A batch of the shape alone.
PackedBatch batch_of(const std::vector<int64_t>& lengths) {
  PackedBatch batch;
  std::vector<int32_t> ends = {0};
  std::vector<Tensor> positions;
  for (const int64_t length : lengths) {
    ends.push_back(ends.back() + static_cast<int32_t>(length));
    positions.push_back(torch::arange(length));
    batch.max_seqlen = std::max(batch.max_seqlen, length);
  }
  batch.cu_seqlens = torch::tensor(ends, torch::kInt);
  batch.position_ids = torch::cat(positions);
  batch.input_ids = torch::zeros_like(batch.position_ids);
  return batch;
}

/// One case of the golden: the values of student and teacher, and the losses between them.
struct InnerCase {
  explicit InnerCase(const json& from)
      : golden(from), lengths(from["lengths"]), heads(from["heads"]), batch(batch_of(lengths)) {
    const int64_t tokens = std::reduce(lengths.begin(), lengths.end());
    for (const json& values : from["student"]) student.push_back(rows_of(values, tokens).requires_grad_());
    for (const json& values : from["teacher"]) teacher.push_back(rows_of(values, tokens));
  }
  [[nodiscard]] Tensor loss(const std::string& name) const {
    const TokenLosses losses(batch);
    if (name == "hidden") return losses.hidden(student[0], teacher[0]);
    const size_t from = name == "attention" ? 1 : 3, to = name == "attention" ? 2 : 3;  // hidden, query, key, value
    return losses.relation({student[from], student[to]}, {teacher[from], teacher[to]}, heads);
  }
  /// The gradients of a loss in the order of the golden.
  [[nodiscard]] std::vector<Tensor> gradients(const std::string& name) const {
    const std::vector<Tensor> inputs = name == "hidden"      ? std::vector{student[0]}
                                       : name == "attention" ? std::vector{student[1], student[2]}
                                                             : std::vector{student[3]};
    return torch::autograd::grad({loss(name)}, inputs);
  }

  json golden;
  std::vector<int64_t> lengths;
  int64_t heads;
  PackedBatch batch;
  std::vector<Tensor> student, teacher;
};

/// The lines of training in metrics.jsonl.
std::vector<json> training_lines(const FinetuneConfig& config) {
  std::vector<json> lines = metrics_of(config.run_directory);
  std::erase_if(lines, [](const json& object) { return !object.contains("loss"); });
  return lines;
}

}  // namespace

TEST_CASE("Losses of hidden states and relations, and their gradients, are PyTorch's", "[golden][finetune]") {
  const json goldens = read_golden();
  for (const json& golden : goldens["inner"]) {
    const InnerCase inner(golden);
    CAPTURE(golden["lengths"].dump());
    for (const char* name : {"hidden", "attention", "value"}) {
      CAPTURE(name);
      CHECK(inner.loss(name).item<double>() == Approx(golden[name]["loss"].get<double>()).epsilon(1e-5));
      const std::vector<Tensor> gradients = inner.gradients(name);
      REQUIRE(gradients.size() == golden[name]["gradients"].size());
      for (size_t i = 0; i < gradients.size(); ++i)
        CHECK(mismatch(gradients[i], rows_of(golden[name]["gradients"][i], gradients[i].size(0))).empty());
    }
  }
}

TEST_CASE("Other relation heads are another loss", "[golden][finetune]") {
  InnerCase inner(read_golden()["inner"][0]);
  inner.heads = 3;
  CHECK(inner.loss("attention").item<double>() !=
        Approx(inner.golden["attention"]["loss"].get<double>()).epsilon(1e-2));
}

TEST_CASE("Losses of logits, and their gradients, are PyTorch's", "[golden][finetune]") {
  const json goldens = read_golden();
  for (const json& golden : goldens["logits"]) {
    const int64_t rows = std::ssize(golden["student"]) / golden["classes"].get<int64_t>();
    const Tensor student = rows_of(golden["student"], rows).requires_grad_(),
                 teacher = rows_of(golden["teacher"], rows);
    const auto loss_at = [&](double temperature) {
      if (golden["lengths"].empty()) return soft_target_loss(student, teacher, temperature);
      const PackedBatch batch = batch_of(golden["lengths"]);
      return soft_target_loss(answer_logits(student, batch), answer_logits(teacher, batch), temperature);
    };
    const double temperature = golden["temperature"], want = golden["loss"];
    CHECK(loss_at(temperature).item<double>() == Approx(want).epsilon(1e-5));
    CHECK(mismatch(torch::autograd::grad({loss_at(temperature)}, {student})[0], rows_of(golden["gradients"][0], rows))
              .empty());
    CHECK(loss_at(temperature + 1).item<double>() != Approx(want).epsilon(1e-2));
  }
}

TEST_CASE("Losses of a sequence do not depend on the longer one beside it", "[unit][finetune]") {
  const InnerCase inner(read_golden()["inner"][1]);  // sequences of 3, 5, 1 and 2 tokens
  const auto part = [](const std::vector<Tensor>& values, int64_t begin, int64_t length) {
    std::vector<Tensor> result;
    for (const Tensor& value : values) result.push_back(value.detach().narrow(0, begin, length).requires_grad_());
    return result;
  };
  for (const char* name : {"hidden", "attention", "value"}) {
    CAPTURE(name);
    double sum = 0;
    int64_t begin = 0;
    const std::vector<Tensor> whole = inner.gradients(name);
    for (const int64_t length : inner.lengths) {
      InnerCase alone = inner;
      alone.batch = batch_of({length});
      alone.student = part(inner.student, begin, length);
      alone.teacher = part(inner.teacher, begin, length);
      sum += alone.loss(name).item<double>() * static_cast<double>(length);
      const std::vector<Tensor> gradients = alone.gradients(name);
      const double share = static_cast<double>(length) / 11;  // of the batch's 11 tokens
      for (size_t i = 0; i < gradients.size(); ++i)
        CHECK(mismatch(whole[i].narrow(0, begin, length), gradients[i] * share).empty());
      begin += length;
    }
    CHECK(inner.loss(name).item<double>() == Approx(sum / 11).epsilon(1e-5));
  }
}

TEST_CASE("A student that equals its teacher has no loss", "[unit][finetune]") {
  const json goldens = read_golden();
  for (const json& golden : goldens["inner"]) {
    InnerCase inner(golden);
    inner.teacher.clear();
    for (const Tensor& value : inner.student) inner.teacher.push_back(value.detach());
    for (const char* name : {"hidden", "attention", "value"}) CHECK(std::abs(inner.loss(name).item<double>()) < 1e-6);
    CHECK(soft_target_loss(inner.student[0], inner.teacher[0], 2).item<double>() == 0);
  }
}

TEST_CASE("Taps change neither the output nor the gradients, with layers that run again and without", "[unit][model]") {
  const TemporaryDirectory directory;
  const BertConfig config = tiny_teacher_sizes(directory).model;
  torch::manual_seed(3);
  BertForSequenceClassification model(config, 2);
  PackedBatch batch = batch_of({5, 9, 3});
  batch.input_ids = torch::arange(17) + 5;
  batch.token_type_ids = torch::zeros({17}, torch::kLong);
  batch.dropout_keys = torch::arange(17);
  BertEncoder& encoder = model->bert->encoder;
  const auto gradients_of = [&](bool tap, bool checkpointing, bool inner_loss) {
    EncoderTaps taps;
    encoder->taps = tap ? &taps : nullptr;
    encoder->gradient_checkpointing = checkpointing;
    Tensor loss = model->forward(batch).square().sum();
    encoder->taps = nullptr;
    if (tap) {
      CHECK(taps.hidden_states.size() == 5);
      CHECK(taps.qkv.sizes() == c10::IntArrayRef({17, 3 * 48}));
    }
    if (inner_loss) {
      for (const Tensor& hidden : taps.hidden_states) loss = loss + hidden.pow(4).sum();
      loss = loss + taps.qkv.pow(4).sum();
    }
    std::vector<Tensor> gradients = torch::autograd::grad({loss}, model->parameters());
    gradients.push_back(loss);
    return gradients;
  };
  const auto same = [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return x.equal(y); });
  };
  const std::vector<Tensor> plain = gradients_of(false, false, false), inner = gradients_of(true, false, true);
  CHECK(same(plain, gradients_of(true, false, false)));
  CHECK(same(plain, gradients_of(true, true, false)));
  CHECK(same(inner, gradients_of(true, true, true)));
  CHECK_FALSE(same(plain, inner));
}

TEST_CASE("A run with a teacher logs each loss, and leaves the model of a run without", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_distillation(directory, "student");
  config.distillation.hidden_weight = 0;
  config.max_steps = 60;
  config.checkpoint_every = 0;
  REQUIRE(finetune(config, false) == kOk);
  const std::vector<json> lines = training_lines(config);
  for (const json& line : lines) {
    double sum = 0;
    for (const char* name : {"labels_loss", "logits_loss", "attention_loss", "value_loss"})
      sum += line.at(name).get<double>();
    CHECK(line["loss"].get<double>() == Approx(sum));
    CHECK_FALSE(line.contains("hidden_loss"));
  }
  for (const char* name : {"attention_loss", "value_loss"})
    CHECK(lines.back()[name].get<double>() < lines.front()[name].get<double>());
  FinetuneConfig plain = tiny_task(directory, "plain");
  REQUIRE(finetune(plain, false) == kOk);
  CHECK_FALSE(training_lines(plain).front().contains("labels_loss"));
  const Checkpoint with = load_checkpoint(config.run_directory + "/latest"),
                   without = load_checkpoint(plain.run_directory + "/latest");
  CHECK(with.model.keys() == without.model.keys());
  CHECK(with.optimizer.keys() == without.optimizer.keys());
  CHECK(load_pretrained(config.run_directory).model.config.hidden_size == 32);
}

TEST_CASE("Layers and relations of a student with the weights of its teacher agree", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_distillation(directory, "student");
  config.initial_checkpoint = config.distillation.teacher;
  config.model = tiny_teacher_sizes(directory).model;
  config.model.hidden_dropout_prob = config.model.attention_probs_dropout_prob = 0;
  config.optimizer.lr = 0;
  REQUIRE(finetune(config, false) == kOk);
  for (const json& line : training_lines(config)) {
    for (const char* name : {"hidden_loss", "attention_loss", "value_loss"})
      CHECK(std::abs(line[name].get<double>()) < 1e-6);
    CHECK(line["logits_loss"].get<double>() > 1e-6);  // the head is new
  }
}

TEST_CASE("A distillation that is killed at any point ends in the same bytes", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig whole = tiny_distillation(directory, "whole"), killed = tiny_distillation(directory, "killed");
  REQUIRE(run_in_child(whole) == kOk);
  for (const char* point : {"train.step:6", "checkpoint.renamed:1"}) {
    CAPTURE(point);
    CHECK(run_in_child(killed, point) == 1000 + SIGKILL);
  }
  REQUIRE(run_in_child(killed) == kOk);
  for (const char* file : {kModelFile, kOptimizerFile})
    CHECK(checkpoint_file(whole, 12, file) == checkpoint_file(killed, 12, file));

  FinetuneConfig recomputed = tiny_distillation(directory, "recomputed");
  recomputed.gradient_checkpointing = true;
  REQUIRE(finetune(recomputed, false) == kOk);
  CHECK(checkpoint_file(whole, 12, kModelFile) == checkpoint_file(recomputed, 12, kModelFile));
}

TEST_CASE("With the mean over items, each loss is that of the large batch", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task_of("ner", directory);
  std::ofstream table(config.data.train_file);  // sentences of 1 to 9 words
  for (int sentence = 0; sentence < 9; ++sentence) {
    for (int word = 0; word <= sentence; ++word)
      table << 5 + 2 * word + sentence << (word % 2 == 0 ? " O\n" : " B-X\n");
    table << "\n";
  }
  table.close();
  REQUIRE(finetune(config, false) == kOk);
  config.distillation.teacher = config.run_directory;
  config.optimizer.lr = 0;
  const auto losses_of = [&](const std::string& average, int64_t micro_batch_size) {
    config.optimizer.average = value_named<GradientAverage>(average).value();
    config.micro_batch_size = micro_batch_size;
    config.run_directory = directory.path(average + "-" + std::to_string(micro_batch_size));
    REQUIRE(finetune(config, false) == kOk);
    return training_lines(config).front();
  };
  const json of_items = losses_of("masked_tokens", 1), large = losses_of("masked_tokens", 4),
             of_means = losses_of("micro_batches", 1);
  for (const char* name : {"labels_loss", "logits_loss", "hidden_loss", "attention_loss", "value_loss"}) {
    CAPTURE(name);
    const auto want =
        Approx(large[name].get<double>()).epsilon(1e-3);  // relations of new weights are hardly above rounding
    CHECK(of_items[name].get<double>() == want);
    CHECK(of_means[name].get<double>() != want);
  }
}

TEST_CASE("Every kind of task learns from a teacher, in every precision", "[unit][finetune]") {
  const TemporaryDirectory directory;
  for (const char* task : {"squad-v1", "squad-v2", "ner", "swag", "text-regression", "text-classification",
                           "multi-label-classification"}) {
    CAPTURE(task);
    FinetuneConfig config = tiny_task_of(task, directory);
    REQUIRE(finetune(config, false) == kOk);
    config.distillation.teacher = config.run_directory;
    for (const char* precision : {"fp32", "bf16", "bf16-weights"}) {
      CAPTURE(precision);
      config.precision = value_named<Precision>(precision).value();
      config.run_directory = directory.path(std::string(task) + "-" + precision);
      REQUIRE(finetune(config, false) == kOk);
      for (const char* name : {"labels_loss", "logits_loss", "hidden_loss", "attention_loss", "value_loss"}) {
        const json value = training_lines(config).front()[name];
        CHECK((value.is_number() && value.get<double>() > 0));
      }
    }
  }
}

TEST_CASE("Frozen layers keep their weights beside a teacher", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_distillation(directory, "student");
  config.frozen_layers = 2;  // all
  REQUIRE(finetune(config, false) == kOk);
  const Checkpoint before = load_checkpoint(config.initial_checkpoint),
                   after = load_checkpoint(config.run_directory + "/latest");
  const char* const frozen = "bert.encoder.layer.1.output.dense.weight";
  CHECK(torch::equal(before.model[frozen], after.model[frozen]));
  CHECK_FALSE(torch::equal(before.model["bert.pooler.dense.weight"], after.model["bert.pooler.dense.weight"]));
}

TEST_CASE("A teacher that does not fit is refused with both names", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig good = tiny_distillation(directory, "student");
  FinetuneConfig config = good;
  config.distillation.teacher = directory.path("nowhere");
  CHECK_THAT(finetuning_refusal<InputMissing>(config), Contains("distillation.teacher: ") && Contains("nowhere"));
  config.distillation.teacher = directory.path("teacher-model");
  CHECK_THAT(finetuning_refusal<ConfigError>(config),
             Contains("distillation.teacher: ") && Contains("was not fine-tuned") &&
                 Contains("expected a model that was fine-tuned on text-classification"));
  config = good;
  config.initial_checkpoint = directory.path("heads");
  PretrainConfig heads = tiny(directory, "unused");
  heads.model.num_attention_heads = 32;
  write_tiny_model(config.initial_checkpoint, heads, 7);
  config.model = heads.model;
  CHECK_THAT(finetuning_refusal<ConfigError>(config),
             Contains("distillation.attention_weight: ") &&
                 Contains("the 32 heads of the student " + config.initial_checkpoint) &&
                 Contains("a divisor of hidden_size 48 of the teacher"));
  config = good;
  config.initial_checkpoint = directory.path("deep");
  PretrainConfig deep = tiny_teacher_sizes(directory);
  deep.model.num_hidden_layers = 6;
  write_tiny_model(config.initial_checkpoint, deep, 7);
  config.model = deep.model;
  CHECK_THAT(finetuning_refusal<ConfigError>(config),
             Contains("distillation.hidden_weight: ") && Contains("has 6 layers") && Contains("has 5;"));
  config.model = good.model;
  std::vector<std::string> words = bert::testing::tokens();
  std::swap(words[20], words[21]);
  config.initial_checkpoint = directory.path("words");
  write_tiny_model(config.initial_checkpoint, tiny(directory, "unused"), 7, words);
  CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("distillation.teacher: ") &&
                                                          Contains("a vocabulary of 64 tokens") &&
                                                          Contains("initial_checkpoint " + config.initial_checkpoint));
  config = good;
  config.data.task.labels = {"small", "large", "tiny"};
  CHECK_THAT(finetuning_refusal<ConfigError>(config),
             Contains("has the 2 classes large, small; expected the 3 classes small, large, tiny"));
  config = tiny_task_of("text-regression", directory);
  config.distillation.teacher = good.distillation.teacher;
  CHECK_THAT(finetuning_refusal<ConfigError>(config),
             Contains("was fine-tuned on text-classification, and task is text-regression"));
}

TEST_CASE("A student goes on with the same teacher alone", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_distillation(directory, "student");
  config.stop_at_step = 4;
  REQUIRE(finetune(config, false) == kOk);
  config.stop_at_step = 8;
  FinetuneConfig other = config;
  other.distillation.temperature = 3;
  CHECK_THAT(finetuning_refusal<ConfigError>(other), Contains("/distillation/temperature: was 1.0, now 3.0"));
  FinetuneConfig teacher = tiny_task(directory, "teacher");
  teacher.initial_checkpoint = directory.path("teacher-model");
  teacher.model = tiny_teacher_sizes(directory).model;
  teacher.seed = 1;
  std::filesystem::remove_all(teacher.run_directory);
  REQUIRE(finetune(teacher, false) == kOk);
  CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("the content of distillation.teacher: was checksum "));
}
