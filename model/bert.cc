// BertModel and packing.
#include "model/bert.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <string>

#include "cuda_ext/field_checks.h"
#include "model/batch_checks.h"

namespace bert {

void check(const BertConfig& config) {
  std::string text;
  for (const std::string& problem : problems_of("", config)) text += "\n  " + problem;
  TORCH_CHECK(text.empty(), "BertConfig describes no model:", text);
}

namespace {

const BertConfig& checked(const BertConfig& config) {
  check(config);
  return config;
}

void check_ids(const char* name, const torch::Tensor& ids, int64_t limit, const char* limit_name) {
  const int64_t low = ids.min().item<int64_t>(), high = ids.max().item<int64_t>();
  TORCH_CHECK_INDEX(low >= 0 && high < limit, name, " must be from 0 to ", limit - 1, " (", limit_name, " is ", limit,
                    "), got ", low < 0 ? low : high, ".");
}

void check_matrix(const char* name, const torch::Tensor& x, const torch::Tensor& input_ids) {
  TORCH_CHECK(x.sizes() == input_ids.sizes(), name, " must have the shape of input_ids, ", input_ids.sizes(), ", got ",
              x.sizes(), ".");
}

}  // namespace

void check_batch(const BertConfig& config, const PackedBatch& batch) {
  const int64_t tokens = batch.num_tokens();
  TORCH_CHECK(batch.input_ids.defined() && batch.input_ids.dim() == 1 && tokens > 0,
              "BertModel: input_ids of a packed batch must be [T] with T > 0, got ", batch.input_ids.sizes(), ".");
  TORCH_CHECK(batch.token_type_ids.numel() == tokens && batch.position_ids.numel() == tokens,
              "BertModel: token_type_ids and position_ids must be [", tokens, "] as input_ids, got ",
              batch.token_type_ids.sizes(), " and ", batch.position_ids.sizes(), ".");
  TORCH_CHECK(batch.cu_seqlens.dim() == 1 && batch.cu_seqlens.numel() > 1 && batch.cu_seqlens.dtype() == torch::kInt,
              "BertModel: cu_seqlens must be [B + 1] int32, got ", batch.cu_seqlens.sizes(), " ",
              batch.cu_seqlens.dtype(), ".");
  TORCH_CHECK(batch.max_seqlen > 0 && batch.max_seqlen <= config.max_position_embeddings,
              "BertModel: a sequence has 1 to max_position_embeddings (", config.max_position_embeddings,
              ") tokens, got max_seqlen ", batch.max_seqlen, ". Truncate the input.");
}

torch::Tensor PackedInput::unpack(const torch::Tensor& x) const {
  auto flat_shape = x.sizes().vec(), shape = flat_shape;
  flat_shape[0] = batch_size * sequence_length;
  shape[0] = batch_size;
  shape.insert(shape.begin() + 1, sequence_length);
  return at::zeros(flat_shape, x.options()).index_copy(0, rows, x).view(shape);
}

PackedInput pack(const BertConfig& config, const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                 const torch::Tensor& attention_mask, int64_t first_sequence) {
  TORCH_CHECK(input_ids.defined() && input_ids.dim() == 2 && input_ids.numel() > 0,
              "BERT: input_ids must be [B, S], not empty, got ", input_ids.sizes(),
              ". For one sequence call unsqueeze(0).");
  TORCH_CHECK(input_ids.dtype() == torch::kLong, "BERT: input_ids must be int64, got ", input_ids.dtype(), ".");
  const torch::Tensor types = token_type_ids.defined() ? token_type_ids : at::zeros_like(input_ids);
  const torch::Tensor mask = attention_mask.defined() ? attention_mask.ne(0) : at::ones_like(input_ids, torch::kBool);
  check_matrix("token_type_ids", types, input_ids);
  check_matrix("attention_mask", mask, input_ids);
  check_ids("input_ids", input_ids, config.vocab_size, "vocab_size");
  check_ids("token_type_ids", types, config.type_vocab_size, "type_vocab_size");

  PackedInput input;
  input.batch_size = input_ids.size(0);
  input.sequence_length = input_ids.size(1);
  TORCH_CHECK(input.sequence_length <= config.max_position_embeddings, "BERT: input_ids has ", input.sequence_length,
              " columns, max_position_embeddings is ", config.max_position_embeddings, ". Truncate the input.");
  TORCH_CHECK(mask.select(1, 0).all().item<bool>(),
              "BERT: every row of attention_mask must begin with 1: padding stands on the right.");

  input.rows = mask.flatten().nonzero().squeeze(1);
  const torch::Tensor lengths = mask.sum(1);
  const torch::Tensor positions = input.rows.remainder(input.sequence_length);
  const torch::Tensor numbers = input.rows.div(input.sequence_length, "floor") + first_sequence;
  PackedBatch& batch = input.batch;
  batch.input_ids = input_ids.flatten().index_select(0, input.rows);
  batch.token_type_ids = types.flatten().index_select(0, input.rows);
  batch.position_ids = positions;
  batch.dropout_keys = numbers.bitwise_left_shift(kDropoutKeyPositionBits).bitwise_or(positions);  // dropout_key()
  batch.cu_seqlens = at::zeros({input.batch_size + 1}, lengths.options().dtype(torch::kInt));
  batch.cu_seqlens.narrow(0, 1, input.batch_size).copy_(lengths.cumsum(0));
  batch.max_seqlen = lengths.max().item<int64_t>();
  batch.first_sequence = first_sequence;
  return input;
}

BertModelImpl::BertModelImpl(const BertConfig& model_config, bool add_pooling_layer)
    : config(checked(model_config)),
      embeddings(register_module("embeddings", BertEmbeddings(config))),
      encoder(register_module("encoder", BertEncoder(config))) {
  if (add_pooling_layer) pooler = register_module("pooler", BertPooler(config));
}

BertModelOutput BertModelImpl::forward(const PackedBatch& batch, int64_t dropout_seed) {
  check_batch(config, batch);
  const PackedContext context{.cu_seqlens = batch.cu_seqlens,
                              .dropout_keys = batch.dropout_keys,
                              .max_seqlen = batch.max_seqlen,
                              .dropout_seed = dropout_seed,
                              .training = is_training()};
  BertModelOutput output;
  output.last_hidden_state = encoder->forward(embeddings->forward(batch, context), context);
  if (pooler.is_empty()) return output;
  PackedContext of_pooler = context;
  if (batch.counted.defined()) {
    // A sequence without tokens may begin behind the last one. The CPU, which needs no fixed shapes, leaves padding out.
    of_pooler.cu_seqlens = batch.cu_seqlens.is_cpu()
                               ? batch.cu_seqlens.narrow(0, 0, batch.cu_seqlens.numel() - batch.padding.sequences)
                               : batch.cu_seqlens.clamp_max(batch.num_tokens() - 1);
  }
  output.pooler_output = pooler->forward(output.last_hidden_state, of_pooler);
  return output;
}

BertModelOutput BertModelImpl::forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                       const torch::Tensor& attention_mask, int64_t dropout_seed) {
  const PackedInput input = pack(input_ids, token_type_ids, attention_mask);
  BertModelOutput output = forward(input.batch, dropout_seed);
  output.last_hidden_state = input.unpack(output.last_hidden_state);
  return output;
}

PackedInput BertModelImpl::pack(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                const torch::Tensor& attention_mask) {
  PackedInput input = bert::pack(config, input_ids, token_type_ids, attention_mask, sequences_seen);
  if (is_training()) sequences_seen += input.batch_size;
  return input;
}

}  // namespace bert
