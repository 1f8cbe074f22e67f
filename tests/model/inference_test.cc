// BertInference answers as the BertModel whose weights it has.
#include "model/inference.h"

#include <ATen/ATen.h>

#include "app/benchmark/random_batch.h"
#include "model/state_dict.h"
#include "tests/testing.h"

using namespace bert;

namespace {

BertConfig config_of(int64_t hidden_size, const std::string& activation = "gelu") {
  return {.vocab_size = 100,
          .hidden_size = hidden_size,
          .num_hidden_layers = 3,
          .num_attention_heads = 4,
          .intermediate_size = 2 * hidden_size,
          .hidden_act = value_named<Activation>(activation).value(),
          .max_position_embeddings = 40};
}

PackedBatch batch_with(const std::vector<int64_t>& lengths) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  return random_batch({.lengths = lengths, .vocab_size = 100}, generator);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kFloat) - b.to(at::kFloat)).abs().max().item<double>();
}

}  // namespace

TEST_CASE("Inference has the hidden states and the pooled vector of the model", "[unit][model]") {
  // Weights of 512 x 512 and more are laid out for oneDNN.
  for (const auto& [hidden, activation] : {std::pair<int64_t, std::string>{32, "gelu"}, {512, "gelu_new"}}) {
    CAPTURE(hidden);
    BertModel model(config_of(hidden, activation));
    init_weights(*model, model->config, 7);
    model->eval();
    const PackedBatch batch = batch_with({17, 1, 40, 5});
    const torch::NoGradGuard no_grad;
    const BertModelOutput want = model->forward(batch);
    const BertInference inference(*model);
    std::vector<at::Tensor> hidden_states;
    const BertModelOutput got = inference.forward(batch, &hidden_states);
    CHECK(difference(got.last_hidden_state, want.last_hidden_state) < 1e-5);
    CHECK(difference(got.pooler_output, want.pooler_output) < 1e-5);
    REQUIRE(hidden_states.size() == 4);
    const PackedContext context{.cu_seqlens = batch.cu_seqlens, .dropout_keys = {}, .max_seqlen = batch.max_seqlen};
    CHECK(difference(hidden_states[0], model->embeddings->forward(batch, context)) < 1e-6);
    CHECK(at::equal(hidden_states[3], got.last_hidden_state));
    const auto second = std::dynamic_pointer_cast<BertLayerImpl>(model->encoder->layer->ptr(1));
    CHECK(difference(hidden_states[2], second->forward(hidden_states[1], context)) < 1e-5);
  }
}

TEST_CASE("Inference outlives its model, with and without a pooler", "[unit][model]") {
  const PackedBatch batch = batch_with({9, 3});
  for (const bool pooler : {true, false}) {
    BertModel model(config_of(32), pooler);
    init_weights(*model, model->config, 7);
    model->eval();
    const BertModelOutput want = model->forward(batch);
    const BertInference inference(*model);
    model = nullptr;
    const BertModelOutput got = inference.forward(batch);
    CHECK(difference(got.last_hidden_state, want.last_hidden_state.detach()) < 1e-5);
    CHECK(got.pooler_output.defined() == pooler);
    CHECK_FALSE(got.last_hidden_state.requires_grad());
  }
}

TEST_CASE("A model shares the memory of its source if it may, and inference copies it", "[unit][model]") {
  const torch::NoGradGuard no_grad;
  for (const int64_t hidden : {32, 512}) {  // plain weights, and weights laid out for oneDNN
    BertModel source(config_of(hidden)), model(config_of(hidden));
    init_weights(*source, source->config, 3);
    const StateDict weights = state_dict(*source);
    load_state_dict(*model, weights, /*strict=*/true, LoadMode::kShare);
    model->eval();
    for (const auto& item : state_dict(*model)) CHECK(item.value().data_ptr() == weights[item.key()].data_ptr());
    const PackedBatch batch = batch_with({17, 5});
    const BertInference inference(*model);
    const at::Tensor before = inference.forward(batch).last_hidden_state;
    for (const auto& item : weights) item.value().zero_();
    CHECK(at::equal(inference.forward(batch).last_hidden_state, before));
    BertModel other(config_of(hidden));
    other->to(at::kDouble);
    load_state_dict(*other, weights, /*strict=*/true, LoadMode::kShare);  // another dtype is copied
    CHECK(other->parameters()[0].dtype() == at::kDouble);
  }
}

TEST_CASE("Inference in low precision is near fp32", "[unit][model]") {
  BertModel model(config_of(64));
  init_weights(*model, model->config, 7);
  model->eval();
  const PackedBatch batch = batch_with({17, 30});
  const torch::NoGradGuard no_grad;
  const at::Tensor want = model->forward(batch).last_hidden_state;  // of variance 1
  CHECK(difference(BertInference(*model, ops::Products::kInt8).forward(batch).last_hidden_state, want) < 0.1);
  CHECK(difference(BertInference(*model, ops::Products::kInt8).forward(batch).last_hidden_state, want) > 1e-5);
  model->to(at::kBFloat16);
  const BertModelOutput low = BertInference(*model).forward(batch);
  CHECK(low.last_hidden_state.scalar_type() == at::kBFloat16);
  CHECK(difference(low.last_hidden_state, want) < 0.1);
  CHECK_THROWS_WITH(BertInference(*model, ops::Products::kInt8), testing::Contains("must be fp32"));
}

TEST_CASE("Inference refuses a malformed batch", "[unit][model]") {
  BertModel model(config_of(32));
  const BertInference inference(*model);
  PackedBatch batch = batch_with({4});
  batch.max_seqlen = 41;
  CHECK_THROWS_WITH(inference.forward(batch), testing::Contains("1 to max_position_embeddings (40) tokens"));
  batch = batch_with({4});
  batch.position_ids = batch.position_ids.narrow(0, 0, 3);
  CHECK_THROWS_WITH(inference.forward(batch), testing::Contains("position_ids must be [4]"));
}
