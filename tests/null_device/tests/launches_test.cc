// How many kernels and matrix products a step of BERT-base and BERT-large launches. The numbers follow from the layers
// and from the operators of the model, and not from its width: the models here are thin. A change of a number is no
// fault, but it is a change of what a GPU does: measure it, then change the table.
#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "app/train/step/training_step.h"
#include "tests/null_device/tests/step_testing.h"
#include "tests/support/device_under_test.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

struct Launches {
  int64_t kernels = 0, products = 0;
  bool operator==(const Launches&) const = default;
};

Launches launches() { return {null_device::count("launch"), null_device::count("product")}; }

std::string in_words(const Launches& of_micro_step, const Launches& of_update) {
  const auto text = [](const Launches& l) { return c10::str(l.kernels, " kernels and ", l.products, " products"); };
  return c10::str("micro-step ", text(of_micro_step), ", update ", text(of_update));
}

/// The launches of a step in two parts. The difference of steps of two micro-batches and of one is one micro-step's, and
/// the rest the update's.
std::string launches_of(const PretrainConfig& config, c10::Device device) {
  TrainingStep step(config, device, nullptr);
  const auto launches_with = [&](int64_t micro_batches) {
    const std::vector<PackedBatch> batches = moved(random_micro_batches(0, micro_batches, {3, 5}), device);
    null_device::reset_counts();
    step.run(batches);
    return launches();
  };
  launches_with(1);  // makes what the optimizer keeps
  const Launches one = launches_with(1), two = launches_with(2);
  const Launches micro_step{two.kernels - one.kernels, two.products - one.products};
  return in_words(micro_step, {one.kernels - micro_step.kernels, one.products - micro_step.products});
}

PretrainConfig thin(int64_t layers, const std::string& precision, double attention_dropout) {
  PretrainConfig config = tiny_step(precision);
  config.model.num_hidden_layers = layers;
  config.model.intermediate_size = 32;
  config.model.attention_probs_dropout_prob = attention_dropout;
  return config;
}

TEST_CASE("BERT-base and BERT-large launch these kernels and products", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  struct Row {
    const char* model;
    int64_t layers;
    const char* precision;
    double attention_dropout;
    Launches micro_step, update;
  };
  const std::vector<Row> table = {
      {"BERT-base", 12, "fp32", 0.1, {873, 240}, {10, 0}},   {"BERT-base", 12, "bf16", 0.1, {301, 156}, {10, 0}},
      {"BERT-base", 12, "fp32", 0.0, {285, 156}, {10, 0}},   {"BERT-base", 12, "bf16", 0.0, {301, 156}, {10, 0}},
      {"BERT-large", 24, "fp32", 0.1, {1689, 468}, {10, 0}}, {"BERT-large", 24, "bf16", 0.1, {529, 300}, {10, 0}},
      {"BERT-large", 24, "fp32", 0.0, {513, 300}, {10, 0}},  {"BERT-large", 24, "bf16", 0.0, {529, 300}, {10, 0}}};
  for (const Row& row : table) {
    INFO(row.model << ", " << row.precision << ", dropout of attention " << row.attention_dropout);
    CHECK(launches_of(thin(row.layers, row.precision, row.attention_dropout), device) ==
          in_words(row.micro_step, row.update));
  }
}

TEST_CASE("A micro-step of BERT-large is one launch with graphs", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  TrainingStep step(thin(24, "bf16", 0.1), device, nullptr);
  step.use_graphs(/*required=*/true, [](const std::string& /*text*/) {});
  const auto costs_with = [&](int64_t micro_batches) {
    GlobalStep global;
    global.micro_batches = random_micro_batches(0, micro_batches, {3, 5});
    global.of_all_ranks = micro_batches;
    null_device::reset_counts();
    step.run(std::move(global));
    return std::vector<int64_t>{null_device::count("launch"), null_device::count("product"),
                                null_device::count("replay")};
  };
  costs_with(1);
  const std::vector<int64_t> one = costs_with(1), two = costs_with(2);
  CHECK(two[0] - one[0] == 2);  // LibTorch sets the seed and the offset of attention's dropout
  CHECK(two[1] - one[1] == 0);
  CHECK(two[2] - one[2] == 1);
}

}  // namespace
