// The values of new models.
#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randint.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "model/bert.h"
#include "model/state_dict.h"
#include "optim/lamb.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Approx;

const BertConfig kConfig{.vocab_size = 200,
                         .hidden_size = 64,
                         .num_hidden_layers = 2,
                         .num_attention_heads = 4,
                         .intermediate_size = 128,
                         .hidden_dropout_prob = 0.0,
                         .attention_probs_dropout_prob = 0.0,
                         .max_position_embeddings = 32,
                         .initializer_range = 0.05};

/// LibTorch fills the memory of new tensors with NaN while one exists, so that a value nobody has written shows.
class PoisonedMemory {
 public:
  PoisonedMemory() {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    REQUIRE(std::isnan(at::empty({1}).item<float>()));
  }
  ~PoisonedMemory() { at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false); }
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;
};

struct PublicClass {
  const char* name;
  std::function<std::shared_ptr<torch::nn::Module>(const BertConfig&)> make;
};

/// Every class of bert.h with weights of its own or inside, alone, as a program may construct it.
const std::vector<PublicClass> kClasses = {
    {"Linear", [](const BertConfig& config) { return Linear(config, 64, 128).ptr(); }},
    {"Embedding", [](const BertConfig& config) { return Embedding(config, 200).ptr(); }},
    {"LayerNorm", [](const BertConfig&) { return LayerNorm(64, 1e-12).ptr(); }},
    {"BertEmbeddings", [](const BertConfig& config) { return BertEmbeddings(config).ptr(); }},
    {"BertSelfAttention", [](const BertConfig& config) { return BertSelfAttention(config, 0).ptr(); }},
    {"BertOutput", [](const BertConfig& config) { return BertOutput(config, 128, 0).ptr(); }},
    {"BertAttention", [](const BertConfig& config) { return BertAttention(config, 0).ptr(); }},
    {"BertIntermediate", [](const BertConfig& config) { return BertIntermediate(config).ptr(); }},
    {"BertLayer", [](const BertConfig& config) { return BertLayer(config, 0).ptr(); }},
    {"BertEncoder", [](const BertConfig& config) { return BertEncoder(config).ptr(); }},
    {"BertPooler", [](const BertConfig& config) { return BertPooler(config).ptr(); }},
    {"BertPredictionHeadTransform", [](const BertConfig& c) { return BertPredictionHeadTransform(c).ptr(); }},
    {"BertLMPredictionHead", [](const BertConfig& config) { return BertLMPredictionHead(config).ptr(); }},
    {"BertPreTrainingHeads", [](const BertConfig& config) { return BertPreTrainingHeads(config).ptr(); }},
    {"BertModel", [](const BertConfig& config) { return BertModel(config).ptr(); }},
    {"BertModel without pooler", [](const BertConfig& config) { return BertModel(config, false).ptr(); }},
    {"BertForPreTraining", [](const BertConfig& config) { return BertForPreTraining(config).ptr(); }},
    {"BertForPreTraining without pairs", [](const BertConfig& c) { return BertForPreTraining(c, false).ptr(); }},
    {"BertForQuestionAnswering", [](const BertConfig& config) { return BertForQuestionAnswering(config).ptr(); }},
    {"BertForSequenceClassification", [](const BertConfig& c) { return BertForSequenceClassification(c, 3).ptr(); }},
    {"BertForTokenClassification", [](const BertConfig& c) { return BertForTokenClassification(c, 3).ptr(); }},
    {"BertForMultipleChoice", [](const BertConfig& config) { return BertForMultipleChoice(config).ptr(); }},
};

/// The reference's layers of the class LinearActivation.
bool has_fused_activation(const std::string& name) {
  for (const char* layer : {".intermediate.dense.", ".pooler.dense.", ".transform.dense."}) {
    if (name.starts_with(layer + 1) || name.find(layer) != std::string::npos) return true;
  }
  return false;
}

/// Checks `x` against the distribution of `kConfig`, with `cut` at two standard deviations. The tolerances are five
/// standard errors.
void check_normal(const torch::Tensor& x, bool cut) {
  const double n = static_cast<double>(x.numel()), std = (cut ? 0.8796 : 1.0) * kConfig.initializer_range;
  CHECK(std::abs(x.mean().item<double>()) < 5 * std / std::sqrt(n));
  CHECK(x.std().item<double>() == Approx(std).epsilon(5 / std::sqrt(2 * n)));
  if (cut) CHECK(x.abs().max().item<double>() <= 0.1001);
}

TEST_CASE("A new module has the values of its configuration, whatever was in the memory", "[unit][model]") {
  const PoisonedMemory poisoned;
  for (const PublicClass& one : kClasses) {
    INFO(one.name);
    const auto module = one.make(kConfig);
    for (const auto& item : state_dict(*module)) {
      INFO(item.key());
      const torch::Tensor value = item.value().detach();
      REQUIRE(at::isfinite(value).all().item<bool>());
      if (value.dim() == 2) {
        check_normal(value, /*cut=*/true);
      } else {
        const bool scale = item.key() == "weight" || item.key().find("LayerNorm.weight") != std::string::npos;
        CHECK(value.eq(scale ? 1.0 : 0.0).all().item<bool>());
      }
    }
  }
}

TEST_CASE("A new module has NVIDIA's values if its configuration says so", "[unit][model]") {
  const PoisonedMemory poisoned;
  BertConfig config = kConfig;
  config.init = Initialization::kNvidia;
  const BertForPreTraining model(config);
  for (const auto& item : state_dict(*model)) {
    INFO(item.key());
    const torch::Tensor value = item.value().detach();
    REQUIRE(at::isfinite(value).all().item<bool>());
    if (has_fused_activation(item.key())) {  // uniform in +-1 / sqrt(64), weight and bias
      CHECK(value.abs().max().item<double>() <= 0.125);
      CHECK(value.abs().max().item<double>() > 0.11);
    } else if (value.dim() == 2) {
      check_normal(value, /*cut=*/false);
    } else {
      CHECK(value.eq(item.key().find("LayerNorm.weight") != std::string::npos ? 1.0 : 0.0).all().item<bool>());
    }
  }
}

TEST_CASE("The generator's seed decides the values of a new model", "[unit][model]") {
  const auto weight = [] { return state_dict(*BertForPreTraining(kConfig)); };
  torch::manual_seed(7);
  const StateDict first = weight(), second = weight();
  torch::manual_seed(7);
  const StateDict again = weight();
  const char* word = "bert.embeddings.word_embeddings.weight";
  for (const auto& item : first) CHECK(at::equal(item.value(), again[item.key()]));
  CHECK_FALSE(at::equal(first[word], second[word]));
  // The three parts of one storage are three draws.
  const std::string self = "bert.encoder.layer.0.attention.self.";
  CHECK_FALSE(at::equal(first[self + "query.weight"], first[self + "key.weight"]));
}

TEST_CASE("NoInitWeights draws nothing, in its thread and until its end", "[unit][model]") {
  const PoisonedMemory poisoned;
  const auto is_drawn = [] { return at::isfinite(Linear(kConfig, 8, 8)->weight).all().item<bool>(); };
  torch::manual_seed(7);
  const torch::Tensor next = at::randint(1 << 30, {1});
  torch::manual_seed(7);
  {
    const NoInitWeights no_init;
    BertForPreTraining model(kConfig);
    CHECK(at::equal(at::randint(1 << 30, {1}), next));
    {
      const NoInitWeights inner;
      CHECK_FALSE(is_drawn());
    }
    CHECK_FALSE(is_drawn());
    bool elsewhere = false;
    std::thread([&] { elsewhere = is_drawn(); }).join();
    CHECK(elsewhere);
    // init_weights() leaves nothing out.
    init_weights(*model, kConfig, /*seed=*/1);
    for (const auto& item : state_dict(*model)) {
      INFO(item.key());
      CHECK(at::isfinite(item.value()).all().item<bool>());
    }
  }
  CHECK(is_drawn());
}

TEST_CASE("Two steps of LAMB improve a model that was only constructed", "[unit][model]") {
  const PoisonedMemory poisoned;
  torch::manual_seed(1);
  BertForPreTraining model(kConfig);
  const OptimizerConfig options{.lr = 0.02};
  Lamb optimizer(group_parameters(named_parameters(*model), options), options);
  PackedBatch batch = pack(kConfig, at::randint(5, 200, {8, 12}), {}, {}).batch;
  batch.masked_positions = at::arange(0, 96, 4);
  batch.masked_ids = batch.input_ids.index_select(0, batch.masked_positions);
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = pretraining_loss(model->forward(batch), batch, kConfig.vocab_size).mlm;
    losses.push_back(loss.item<double>());
    loss.backward();
    optimizer.step();
  }
  // Logits of zero give exactly ln 200 at every step, and an untrained model guesses about as badly.
  CHECK(losses[0] == Approx(std::log(200.0)).epsilon(0.1));
  CHECK(std::abs(losses[0] - std::log(200.0)) > 1e-4);
  CHECK(losses[1] < losses[0] - 0.01);
  CHECK(losses[2] < losses[1] - 0.01);
}

}  // namespace
}  // namespace bert
