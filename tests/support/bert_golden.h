// The golden BERT of tests/golden/bert_pretraining.py: its configuration, batch, weights and results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/bert.h"
#include "model/state_dict.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

namespace bert::testing {

struct BertGolden {
  BertGolden() : json(nlohmann::json::parse(std::ifstream(golden("bert_pretraining.json")))) {
    input_ids = matrix("input_ids");
    token_type_ids = matrix("token_type_ids");
    attention_mask = matrix("attention_mask");
  }

  [[nodiscard]] BertConfig config(const std::string& hidden_act = "gelu_new") const {
    const nlohmann::json& c = json.at("config");
    return {.vocab_size = c.at("vocab_size"),
            .hidden_size = c.at("hidden_size"),
            .num_hidden_layers = c.at("num_hidden_layers"),
            .num_attention_heads = c.at("num_attention_heads"),
            .intermediate_size = c.at("intermediate_size"),
            .hidden_act = value_named<Activation>(hidden_act).value(),
            .max_position_embeddings = c.at("max_position_embeddings"),
            .type_vocab_size = c.at("type_vocab_size"),
            .layer_norm_eps = c.at("layer_norm_eps")};
  }

  /// Loads the golden weights, and the weights of `head`, into `module` by name.
  void load(torch::nn::Module& module, const std::string& head = "") const {
    StateDict source;
    for (const auto& item : state_dict(module)) {
      const nlohmann::json& from =
          json.at("weights").contains(item.key()) ? json.at("weights") : json.at("heads").at(head);
      source.insert(item.key(), numbers(from.at(item.key())).view(item.value().sizes()));
    }
    load_state_dict(module, source);
    module.eval();
  }

  /// The packed batch with its labels.
  [[nodiscard]] PackedBatch batch() const {
    const PackedInput input = pack(config(), input_ids, token_type_ids, attention_mask);
    PackedBatch result = input.batch;
    std::vector<int64_t> positions, ids;
    for (const auto& [position, id] : json.at("labels").get<std::vector<std::pair<int64_t, int64_t>>>()) {
      positions.push_back(input.rows.eq(position).nonzero().item<int64_t>());
      ids.push_back(id);
    }
    result.masked_positions = at::tensor(positions);
    result.masked_ids = at::tensor(ids);
    result.next_sentence_labels = at::tensor(json.at("next_sentence_labels").get<std::vector<int64_t>>());
    return result;
  }

  [[nodiscard]] const nlohmann::json& want(const std::string& hidden_act) const {
    return json.at("cases").at(hidden_act);
  }

  static torch::Tensor numbers(const nlohmann::json& values) { return at::tensor(values.get<std::vector<double>>()); }

  /// mismatch() of `got`, of any shape, and the golden's numbers in row-major order.
  static std::string mismatch(const torch::Tensor& got, const nlohmann::json& values) {
    return testing::mismatch(got.flatten(), numbers(values));
  }

  nlohmann::json json;
  torch::Tensor input_ids, token_type_ids, attention_mask;  // [B, S]

 private:
  [[nodiscard]] torch::Tensor matrix(const char* key) const {
    const auto rows = json.at(key).get<std::vector<std::vector<int64_t>>>();
    std::vector<torch::Tensor> tensors;
    for (const auto& row : rows) tensors.push_back(at::tensor(row));
    return at::stack(tensors);
  }
};

}  // namespace bert::testing
