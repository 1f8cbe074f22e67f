// Bytes that the kernels of a layer read and write beside its matrix products, for each token. A GPU's memory is the
// limit of these kernels, so the sum is a share of a step's time that no faster product removes.
#include "tests/null_device/traffic.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "model/bert.h"
#include "optim/amp.h"
#include "optim/data_parallel.h"
#include "tests/null_device/tests/step_testing.h"
#include "tests/support/device_under_test.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

constexpr int64_t kLength = 32, kFewTokens = 2 * kLength, kMoreTokens = 4 * kLength;

using Bytes = std::map<std::string, double>;

/// What kernels between the products are for: a row of the table. Empty: the name is that of a product, or of an
/// operator whose works have names of their own.
std::string purpose_of(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("cublas") || has("bert::linear") || has("bert::attention")) return "";
  if (has("bert::bias_gelu")) return "GELU";
  if (has("layer_norm")) return "LayerNorm";
  if (has("attention_forward") || has("attention, forward")) return "flash forward";
  if (has("attention_backward") || has("attention, backward") || has("attention, parts")) return "flash backward";
  if (has("aten::stack") || has("aten::cat")) return "stack of dqkv";
  if (has("aten::add")) return "residual adds";
  if (has("aten::sum")) return "bias sums";
  return "other";
}

/// The bytes of a micro-step of a model as wide as BERT-large, by purpose.
Bytes bytes_of(int64_t layers, c10::Device device) {
  const BertConfig config{.vocab_size = kWords,
                          .hidden_size = 1024,
                          .num_hidden_layers = layers,
                          .num_attention_heads = 16,
                          .intermediate_size = 4096,
                          .max_position_embeddings = kLength};
  BertForPreTraining model(config, /*sentence_pair_head=*/true);
  model->to(device);
  model->train();
  DataParallel gradients(nullptr, named_parameters(*model));
  const auto step = [&](int64_t tokens) {
    const std::vector<int64_t> lengths(static_cast<size_t>(tokens / kLength), kLength);
    const PackedBatch batch = random_micro_batches(0, 1, lengths).front().to(device);
    gradients.zero_gradients();
    null_device::reset_counts();
    const PretrainingOutput output = [&] {
      const AutocastGuard autocast(device.type(), Precision::kBf16);
      return model->forward(batch);
    }();
    const PretrainingLoss loss = pretraining_loss(output, batch, config.vocab_size);
    (loss.mlm + loss.nsp).backward();
    Bytes bytes;
    for (const auto& [name, traffic] : null_device::traffic()) {
      if (!purpose_of(name).empty()) bytes[purpose_of(name)] += static_cast<double>(traffic.bytes);
    }
    return bytes;
  };
  step(kFewTokens);  // the first use of anything
  Bytes fewer = step(kFewTokens), more = step(kMoreTokens);
  for (auto& [purpose, bytes] : more) bytes = (bytes - fewer[purpose]) / static_cast<double>(kMoreTokens - kFewTokens);
  return more;
}

TEST_CASE("A layer of BERT-large moves these bytes for each token beside its products", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  // In KiB: a 2-byte number for each of 1,024 columns is 2. LayerNorm, two in a layer: forward x, residual, y; backward
  // dy, x, residual, dx, dresidual. Flash: forward qkv, out; backward dout, out, qkv, dqkv. The stack reads and writes
  // dqkv. Before GELU, sums of biases and sums of residuals' gradients were parts of products, they were 40, 6 and 12.
  const std::map<std::string, int64_t> by_hand = {
      {"LayerNorm", 32}, {"flash forward", 8}, {"flash backward", 16}, {"stack of dqkv", 12}};
  // LibTorch's flash backward has fp32 sums of dq, which are cleared, added to (read and written) and converted, and it
  // reads out and dout once more: 5 times 4. Its kernels say nothing of that.
  constexpr int64_t kInsideOfFlash = 20, kMost = 96;
  // Deterministic, it has them cleared by an operator of its own, with 128 rows more for a sequence.
  const bool deterministic = at::globalContext().deterministicAlgorithms();
  at::globalContext().setDeterministicAlgorithms(false, false);
  Bytes one = bytes_of(1, device), two = bytes_of(2, device);
  at::globalContext().setDeterministicAlgorithms(deterministic, false);
  int64_t sum = kInsideOfFlash;
  for (const auto& [purpose, bytes] : two) {
    INFO(purpose);
    const auto kib = static_cast<int64_t>(std::lround((bytes - one[purpose]) / 1024));
    sum += kib;
    const auto row = by_hand.find(purpose);
    CHECK(kib == (row == by_hand.end() ? 0 : row->second));
  }
  CHECK(sum <= kMost);
}

}  // namespace
