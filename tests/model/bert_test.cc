#include "model/bert.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <limits>
#include <set>

#include "tests/support/bert_golden.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::BertGolden;
using testing::Contains;
using testing::mismatch;

/// Differences of BertForPreTraining's logits, losses and gradients from Hugging Face's. Empty strings mean none.
struct Difference {
  std::string logits, losses, gradients;
};

/// The names of the parameters whose gradients differ from `want`, with the differences.
std::string gradient_difference(const torch::nn::Module& model, const nlohmann::json& want) {
  std::string difference;
  for (const auto& item : model.named_parameters()) {
    const std::string found = BertGolden::mismatch(item.value().grad(), want.at(item.key()));
    if (!found.empty()) difference += item.key() + " " + found + "\n";
  }
  return difference;
}

Difference pretraining_difference(const BertGolden& golden, const BertConfig& config, const std::string& hidden_act) {
  BertForPreTraining model(config);
  golden.load(*model);
  const PackedBatch batch = golden.batch();
  const PretrainingOutput output = model->forward(batch);
  const PretrainingLoss loss = pretraining_loss(output, batch, config.vocab_size);
  loss.total.backward();

  const nlohmann::json& want = golden.want(hidden_act);
  const torch::Tensor all_logits = BertGolden::numbers(want.at("mlm_logits")).view({batch.num_tokens(), -1});
  Difference difference;
  difference.logits = mismatch(output.mlm_logits, all_logits.index_select(0, batch.masked_positions)) +
                      BertGolden::mismatch(output.nsp_logits, want.at("nsp_logits"));
  difference.losses = BertGolden::mismatch(at::stack({loss.mlm, loss.nsp, loss.total}),
                                           {want.at("mlm_loss"), want.at("nsp_loss"), want.at("total_loss")});
  difference.gradients = gradient_difference(*model, want.at("gradients"));
  return difference;
}

template <class Model>
std::string loaded_mismatch(const BertGolden& golden, Model model, const std::string& name,
                            const std::string& hidden_act) {
  golden.load(*model, name);
  torch::Tensor logits;
  if constexpr (std::is_same_v<Model, BertForMultipleChoice>) {
    const auto choices = [](const torch::Tensor& x) { return x.view({2, 2, -1}); };
    logits = model->forward(choices(golden.input_ids), choices(golden.token_type_ids), choices(golden.attention_mask));
    CHECK(logits.sizes() == torch::IntArrayRef{2, 2});
  } else if constexpr (std::is_same_v<Model, BertForQuestionAnswering>) {
    const QuestionAnsweringOutput output = model->forward(golden.batch());
    logits = at::cat({output.start_logits, output.end_logits});
  } else {
    logits = model->forward(golden.batch());
  }
  return BertGolden::mismatch(logits, golden.want(hidden_act).at(name));
}

BertForPreTraining random_model(const BertConfig& config, uint64_t seed = 1) {
  BertForPreTraining model(config);
  init_weights(*model, config, seed);
  return model;
}

TEST_CASE("BertForPreTraining equals Hugging Face: logits, losses, every gradient", "[golden][model]") {
  const BertGolden golden;
  for (const char* hidden_act : {"gelu_new", "gelu_pytorch_tanh", "gelu"}) {
    const std::string want = std::string(hidden_act) == "gelu" ? "gelu" : "gelu_new";
    const Difference difference = pretraining_difference(golden, golden.config(hidden_act), want);
    INFO(hidden_act);
    CHECK(difference.logits == "");
    CHECK(difference.losses == "");
    CHECK(difference.gradients == "");
  }
}

TEST_CASE("Without the sentence-pair head it equals Hugging Face's BertForMaskedLM: loss, every gradient",
          "[golden][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config(), /*sentence_pair_head=*/false);
  CHECK_FALSE(model->has_sentence_pair_head());
  golden.load(*model);
  const PackedBatch batch = golden.batch();  // its labels of sentence pairs are not used
  const PretrainingOutput output = model->forward(batch);
  CHECK_FALSE(output.nsp_logits.defined());
  const PretrainingLoss loss = pretraining_loss(output, batch, golden.config().vocab_size);
  loss.total.backward();
  const nlohmann::json& want = golden.want("gelu_new").at("BertForMaskedLM");
  CHECK(BertGolden::mismatch(loss.mlm, nlohmann::json::array({want.at("mlm_loss")})) == "");
  CHECK(loss.nsp.item<double>() == 0.0);
  CHECK(loss.total.item<double>() == loss.mlm.item<double>());
  CHECK(model->named_parameters().size() == want.at("gradients").size());
  CHECK(gradient_difference(*model, want.at("gradients")) == "");

  const PretrainingOutput padded = model->forward(golden.input_ids, golden.token_type_ids, golden.attention_mask);
  CHECK_FALSE(padded.nsp_logits.defined());
  CHECK(padded.mlm_logits.sizes() == torch::IntArrayRef{4, 9, 29});
}

TEST_CASE("The golden notices another eps and the other GELU", "[golden][model]") {
  const BertGolden golden;
  BertConfig eps = golden.config();
  eps.layer_norm_eps = 1e-5;
  const Difference other_eps = pretraining_difference(golden, eps, "gelu_new");
  CHECK(other_eps.logits != "");
  CHECK(other_eps.gradients != "");
  const Difference other_gelu = pretraining_difference(golden, golden.config("gelu"), "gelu_new");
  CHECK(other_gelu.logits != "");
  CHECK(other_gelu.gradients != "");
}

TEST_CASE("The models for fine-tuning equal Hugging Face", "[golden][model]") {
  const BertGolden golden;
  const int64_t num_labels = golden.json.at("num_labels");
  for (const char* act : {"gelu_new", "gelu"}) {
    const BertConfig config = golden.config(act);
    CHECK(loaded_mismatch(golden, BertForQuestionAnswering(config), "BertForQuestionAnswering", act) == "");
    CHECK(loaded_mismatch(golden, BertForSequenceClassification(config, num_labels), "BertForSequenceClassification",
                          act) == "");
    CHECK(loaded_mismatch(golden, BertForTokenClassification(config, num_labels), "BertForTokenClassification", act) ==
          "");
    CHECK(loaded_mismatch(golden, BertForMultipleChoice(config), "BertForMultipleChoice", act) == "");
  }
}

TEST_CASE("Padded input gives what packed input gives, in the padded shape", "[unit][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  golden.load(*model);
  const PretrainingOutput padded = model->forward(golden.input_ids, golden.token_type_ids, golden.attention_mask);
  CHECK(padded.mlm_logits.sizes() == torch::IntArrayRef{4, 9, 29});
  const torch::Tensor real = golden.attention_mask.to(torch::kBool);
  CHECK(BertGolden::mismatch(padded.mlm_logits.index({real}), golden.want("gelu_new").at("mlm_logits")) == "");
  CHECK(padded.mlm_logits.index({real.logical_not()}).abs().max().item<double>() == 0.0);
  CHECK(BertGolden::mismatch(padded.nsp_logits, golden.want("gelu_new").at("nsp_logits")) == "");

  // The content and the amount of padding do not matter.
  torch::Tensor ids = at::constant_pad_nd(golden.input_ids, {0, 3}, 7);
  ids = ids.masked_fill(at::constant_pad_nd(golden.attention_mask, {0, 3}).eq(0), 11);
  const PretrainingOutput wider = model->forward(ids, at::constant_pad_nd(golden.token_type_ids, {0, 3}, 1),
                                                 at::constant_pad_nd(golden.attention_mask, {0, 3}));
  CHECK(at::equal(wider.mlm_logits.narrow(1, 0, 9), padded.mlm_logits));
  CHECK(at::equal(wider.nsp_logits, padded.nsp_logits));
}

TEST_CASE("A sequence gets the same output in any batch", "[unit][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  golden.load(*model);
  const PretrainingOutput all = model->forward(golden.input_ids, golden.token_type_ids, golden.attention_mask);
  for (int64_t b = 0; b < golden.input_ids.size(0); ++b) {
    const int64_t length = golden.attention_mask[b].sum().item<int64_t>();
    const auto alone = [&](const torch::Tensor& x) { return x[b].narrow(0, 0, length).unsqueeze(0); };
    const PretrainingOutput one = model->forward(alone(golden.input_ids), alone(golden.token_type_ids), {});
    CHECK(mismatch(one.mlm_logits[0], all.mlm_logits[b].narrow(0, 0, length)) == "");
    CHECK(mismatch(one.nsp_logits[0], all.nsp_logits[b]) == "");
  }
}

TEST_CASE("Dropout is a function of seed and keys, and absent in evaluation", "[unit][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  golden.load(*model);
  PackedBatch batch = golden.batch();
  const torch::Tensor evaluated = model->forward(batch).mlm_logits;

  model->train();
  model->dropout_seed = 5;
  const torch::Tensor first = model->forward(batch).mlm_logits;
  CHECK(at::equal(first, model->forward(batch).mlm_logits));
  CHECK_FALSE(at::equal(first, evaluated));
  model->dropout_seed = 6;
  CHECK_FALSE(at::equal(first, model->forward(batch).mlm_logits));

  // A sequence drops the same elements when it is alone in a batch. Sequence 3 has the last two masked tokens.
  model->dropout_seed = 5;
  PackedBatch alone = pack(golden.config(), golden.input_ids[3].narrow(0, 0, 7).unsqueeze(0),
                           golden.token_type_ids[3].narrow(0, 0, 7).unsqueeze(0), {})
                          .batch;
  alone.dropout_keys = batch.dropout_keys.narrow(0, batch.num_tokens() - 7, 7);
  alone.masked_positions = batch.masked_positions.narrow(0, 3, 3) - (batch.num_tokens() - 7);
  CHECK(mismatch(model->forward(alone).mlm_logits, first.narrow(0, 3, 3)) == "");

  model->eval();
  batch.dropout_keys = torch::Tensor();
  CHECK(at::equal(model->forward(batch).mlm_logits, evaluated));
}

TEST_CASE("Every dropout of hidden states has a site of its own", "[unit][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  std::set<uint32_t> sites;
  for (const auto& module : model->modules()) {
    if (const auto* output = module->as<BertOutputImpl>()) sites.insert(output->site);
  }
  CHECK(sites.size() == static_cast<size_t>(2 * golden.config().num_hidden_layers));
}

TEST_CASE("Padded input draws other masks in every training call, and counts sequences there only", "[unit][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  golden.load(*model);
  const torch::Tensor &ids = golden.input_ids, &types = golden.token_type_ids, &mask = golden.attention_mask;
  const auto logits = [&] { return model->forward(ids, types, mask).mlm_logits; };
  model->eval();
  const torch::Tensor evaluated = logits();
  CHECK(at::equal(logits(), evaluated));
  CHECK(model->bert->sequences_seen == 0);

  model->train();
  const torch::Tensor first = logits(), second = logits();
  CHECK_FALSE(at::equal(first, second));
  CHECK(model->bert->sequences_seen == 2 * ids.size(0));

  // The second call's masks are those of sequences B .. 2 B - 1. Packed input does not count and does not change.
  const PackedInput packed = pack(golden.config(), ids, types, mask, ids.size(0));
  CHECK(packed.batch.first_sequence == ids.size(0));
  CHECK(packed.batch.dropout_keys[0].item<int64_t>() == ids.size(0) << 16);
  PackedBatch batch = packed.batch;
  batch.masked_positions = at::arange(batch.num_tokens());
  for (int i = 0; i < 2; ++i) CHECK(at::equal(packed.unpack(model->forward(batch).mlm_logits), second));
  CHECK(model->bert->sequences_seen == 2 * ids.size(0));

  model->bert->sequences_seen = 0;
  CHECK(at::equal(logits(), first));
  const auto seeded = [&](int64_t seed) {
    model->bert->sequences_seen = 0;
    return model->bert->forward(ids, types, mask, seed).last_hidden_state;
  };
  CHECK(at::equal(seeded(3), seeded(3)));
  CHECK_FALSE(at::equal(seeded(3), seeded(4)));
  CHECK(model->named_buffers().is_empty());
  model->eval();
  CHECK(at::equal(logits(), evaluated));
}

TEST_CASE("Query, key and value share one storage, also after to() and loading", "[unit][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  const auto consecutive = [&] {
    for (const auto& module : model->modules()) {
      const auto* attention = module->as<BertSelfAttention>();
      if (attention == nullptr) continue;
      for (const auto& [query, key, value] :
           {std::tuple{attention->query->weight, attention->key->weight, attention->value->weight},
            {attention->query->bias, attention->key->bias, attention->value->bias}}) {
        if (!query.storage().is_alias_of(key.storage()) || !query.storage().is_alias_of(value.storage())) return false;
        if (key.storage_offset() != query.numel() || value.storage_offset() != 2 * query.numel()) return false;
        if (query.storage().nbytes() != static_cast<size_t>(3 * query.nbytes())) return false;
      }
    }
    return true;
  };
  CHECK(consecutive());
  golden.load(*model);
  CHECK(consecutive());
  const PackedBatch batch = golden.batch();
  const torch::Tensor before = model->forward(batch).mlm_logits;
  const torch::Tensor weight = model->named_parameters()["bert.encoder.layer.1.attention.self.key.weight"];
  model->to(torch::kDouble);
  CHECK(consecutive());
  model->to(torch::kCPU, torch::kFloat);
  model->to(torch::kCPU);
  CHECK(consecutive());
  CHECK(at::equal(model->forward(batch).mlm_logits, before));

  // The parameters that an optimizer was given stay in use, and they are still three.
  CHECK(weight.is_same(model->named_parameters()["bert.encoder.layer.1.attention.self.key.weight"]));
  pretraining_loss(model->forward(batch), batch, 29).total.backward();
  CHECK(weight.grad().sizes() == weight.sizes());
}

TEST_CASE("Base has 110,106,428 parameters, large 336,226,108", "[unit][model]") {
  const auto count = [](const torch::nn::Module& module) {
    int64_t total = 0;
    for (const torch::Tensor& parameter : module.parameters()) total += parameter.numel();
    return total;
  };
  const NoInitWeights no_init;
  CHECK(count(*BertForPreTraining(BertConfig{})) == 110106428);
  const BertConfig large{
      .hidden_size = 1024, .num_hidden_layers = 24, .num_attention_heads = 16, .intermediate_size = 4096};
  CHECK(count(*BertForPreTraining(large)) == 336226108);
}

TEST_CASE("init_weights draws what the configuration says", "[unit][model]") {
  BertConfig config{.vocab_size = 2000,
                    .hidden_size = 64,
                    .num_hidden_layers = 1,
                    .num_attention_heads = 4,
                    .intermediate_size = 256,
                    .max_position_embeddings = 32,
                    .initializer_range = 0.05};
  const auto named = [](const BertForPreTraining& model, const char* name) {
    return model->named_parameters()[name].detach();
  };
  const auto largest = [](const torch::Tensor& x) { return x.abs().max().item<double>(); };
  const char* word = "bert.embeddings.word_embeddings.weight";
  const char* intermediate = "bert.encoder.layer.0.intermediate.dense.weight";

  SECTION("bert: normal, cut at two standard deviations") {
    const BertForPreTraining model = random_model(config);
    CHECK(largest(named(model, word)) <= 0.1f);
    CHECK(largest(named(model, word)) > 0.099);
    // The standard deviation of the cut normal distribution is 0.8796 of that of the whole one.
    CHECK(named(model, word).std().item<double>() == testing::Approx(0.8796 * 0.05).epsilon(0.01));
    CHECK(std::abs(named(model, word).mean().item<double>()) < 1e-3);
    CHECK(named(model, intermediate).std().item<double>() == testing::Approx(0.8796 * 0.05).epsilon(0.02));
    for (const auto& item : model->named_parameters()) {
      if (item.value().dim() == 2) continue;
      INFO(item.key());
      const double want = item.key().find("LayerNorm.weight") == std::string::npos ? 0.0 : 1.0;
      CHECK((item.value() == want).all().item<bool>());
    }
  }
  SECTION("nvidia: normal, and PyTorch's default where the reference's rule does not reach") {
    config.init = Initialization::kNvidia;
    const BertForPreTraining model = random_model(config);
    CHECK(largest(named(model, word)) > 0.15);  // more than three standard deviations, in 128,000 draws
    CHECK(named(model, word).std().item<double>() == testing::Approx(0.05).epsilon(0.01));
    for (const char* name :
         {"bert.encoder.layer.0.intermediate.dense", "bert.pooler.dense", "cls.predictions.transform.dense"}) {
      INFO(name);
      const torch::Tensor weight = named(model, (std::string(name) + ".weight").c_str());
      CHECK(largest(weight) <= 0.125);  // 1 / sqrt(64)
      CHECK(weight.std().item<double>() == testing::Approx(0.125 / std::sqrt(3.0)).epsilon(0.03));
      CHECK(largest(named(model, (std::string(name) + ".bias").c_str())) > 0.1);
    }
    CHECK(largest(named(model, "bert.encoder.layer.0.output.dense.bias")) == 0.0);
  }
  SECTION("a function of the seed, whatever the number of threads") {
    const int threads = at::get_num_threads();
    const BertForPreTraining first = random_model(config, 3);
    at::set_num_threads(1);
    const BertForPreTraining again = random_model(config, 3);
    at::set_num_threads(threads);
    const BertForPreTraining other = random_model(config, 4);
    for (const auto& item : first->named_parameters())
      CHECK(at::equal(item.value(), again->named_parameters()[item.key()]));
    CHECK_FALSE(at::equal(named(first, word), named(other, word)));
  }
}

TEST_CASE("A configuration that describes no model is refused with every problem", "[unit][model]") {
  CHECK_NOTHROW(check(BertConfig{}));
  CHECK_THROWS_WITH(check(BertConfig{.hidden_size = 770}),
                    Contains("num_attention_heads is 12, expected a divisor of hidden_size 770"));
  CHECK_THROWS_WITH(BertForPreTraining(BertConfig{.num_hidden_layers = 0}),
                    Contains("num_hidden_layers is 0, expected 1 to 1000"));
  CHECK_THROWS_WITH(check(BertConfig{.num_attention_heads = 0,
                                     .hidden_dropout_prob = std::numeric_limits<double>::quiet_NaN(),
                                     .layer_norm_eps = 0.0}),
                    Contains("\n  num_attention_heads is 0") && Contains("\n  hidden_dropout_prob is nan") &&
                        Contains("\n  layer_norm_eps is 0"));
}

TEST_CASE("Input that is not a batch is refused with what it must be", "[unit][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  golden.load(*model);
  const torch::Tensor ids = golden.input_ids;
  const auto run = [&](const torch::Tensor& input, const torch::Tensor& types, const torch::Tensor& mask) {
    return model->forward(input, types, mask);
  };
  CHECK_THROWS_WITH(run(ids[0], {}, {}),
                    Contains("input_ids must be [B, S], not empty, got [9]. For one sequence call unsqueeze(0)"));
  CHECK_THROWS_WITH(run(ids.to(torch::kFloat), {}, {}), Contains("input_ids must be int64"));
  CHECK_THROWS_WITH(run(ids + 20, {}, {}), Contains("input_ids must be from 0 to 28 (vocab_size is 29), got"));
  CHECK_THROWS_WITH(run(ids, ids.new_full({4, 9}, 2), {}), Contains("token_type_ids must be from 0 to 1"));
  CHECK_THROWS_WITH(run(ids, {}, ids.new_ones({4, 8})),
                    Contains("attention_mask must have the shape of input_ids, [4, 9], got [4, 8]"));
  CHECK_THROWS_WITH(run(ids, {}, ids.new_zeros({4, 9})), Contains("every row of attention_mask must begin with 1"));
  CHECK_THROWS_WITH(run(ids.repeat({1, 2}), {}, {}),
                    Contains("input_ids has 18 columns, max_position_embeddings is 12"));
  PackedBatch batch = golden.batch();
  batch.masked_positions = torch::Tensor();
  CHECK_THROWS_WITH(model->forward(batch), Contains("the batch has no masked_positions"));
}

}  // namespace
}  // namespace bert
