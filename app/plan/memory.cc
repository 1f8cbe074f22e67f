#include "app/plan/memory.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <string>

#include "optim/run_owners.h"

namespace bert {
namespace {

bool low_precision(Precision precision) { return precision != Precision::kFp32 && precision != Precision::kTf32; }

bool low_precision_weights(Precision precision) {
  return precision == Precision::kBf16Weights || precision == Precision::kFp16Weights;
}

double compute_bytes(const RunConfig& config) { return low_precision(config.precision) ? 2 : 4; }

double decoder_weights(const BertConfig& c) { return static_cast<double>(c.vocab_size * c.hidden_size); }

double layer_weights(const BertConfig& c) {
  return static_cast<double>(4 * c.hidden_size * c.hidden_size + 2 * c.hidden_size * c.intermediate_size);
}

/// The bytes of the copies of the weights that autocast makes, and backward reads: of all weights, or with gradient
/// checkpointing of the decoder's and one layer's.
double kept_casts(const RunConfig& config, double parameters) {
  if (!low_precision(config.precision) || low_precision_weights(config.precision)) return 0;
  if (!config.gradient_checkpointing)
    return 2 * parameters - static_cast<double>(config.fp8_layers()) * layer_weights(config.model);
  return 2 * std::min(parameters, decoder_weights(config.model) + layer_weights(config.model));
}

/// Note [Peaks of a step]
double activations(const RunConfig& config, double parameters, const SequenceSize& sequence) {
  const BertConfig& model = config.model;
  const double bytes = compute_bytes(config);
  const auto layers = static_cast<double>(model.num_hidden_layers),
             heads = static_cast<double>(model.num_attention_heads);
  const auto batch = static_cast<double>(config.micro_batch_size);
  const double hidden = static_cast<double>(model.hidden_size) * bytes,
               intermediate = static_cast<double>(model.intermediate_size) * bytes;
  const double kept = layer_bytes_per_token(model, bytes);
  const bool again = config.gradient_checkpointing;
  const double more_in_fp8 =
      static_cast<double>(config.fp8_layers() * (3 * model.hidden_size - model.intermediate_size));
  const double encoder = again ? layers * hidden : layers * kept + more_in_fp8;  // of a token

  const bool composed = bytes == 4 && model.attention_probs_dropout_prob > 0;
  const double scores = 2 * 4 * heads * sequence.tokens;
  const double layer = std::max(2 * hidden + intermediate, composed ? 9 * hidden + scores : 0);
  const double in_last_layer = batch * sequence.tokens * (encoder + layer + (again ? kept + hidden : 0));

  const double of_token = static_cast<double>(model.vocab_size) * bytes + 5 * hidden;
  const double decoder =
      sequence.masked > 0 ? decoder_weights(model) * (low_precision_weights(config.precision) ? 2 : 4) : 0;
  const double at_loss = batch * (sequence.tokens * (encoder + hidden) + sequence.masked * of_token) + decoder;

  const double casts = kept_casts(config, parameters), other_casts = casts > 0 ? 2 * parameters - casts : 0;
  const double in_forward = batch * sequence.tokens * (encoder + hidden + 2 * intermediate) + other_casts;
  return std::max({in_last_layer, at_loss, again ? in_forward : 0});
}

}  // namespace

std::vector<int64_t> parameter_sizes(const BertConfig& c, bool sentence_pair_head) {
  const int64_t h = c.hidden_size, i = c.intermediate_size;
  std::vector<int64_t> sizes;
  const auto add = [&](std::initializer_list<int64_t> more) {
    for (const int64_t size : more) sizes.push_back(size);
  };
  const auto add_dense = [&](int64_t in, int64_t out) { add({in * out, out}); };
  add({c.vocab_size * h, c.max_position_embeddings * h, c.type_vocab_size * h, h, h});  // LayerNorm: weight, bias
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    for (int projection = 0; projection < 4; ++projection) add_dense(h, h);  // query, key, value, output
    add({h, h});
    add_dense(h, i);
    add_dense(i, h);
    add({h, h});
  }
  if (sentence_pair_head) add_dense(h, h);  // pooler
  add({c.vocab_size});                      // bias of the decoder; the word embeddings are its weight
  add_dense(h, h);                          // transform
  add({h, h});
  if (sentence_pair_head) add_dense(h, 2);
  return sizes;
}

int64_t parameter_count(const BertConfig& config, bool sentence_pair_head) {
  const std::vector<int64_t> sizes = parameter_sizes(config, sentence_pair_head);
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

std::vector<int64_t> parameter_sizes(const PretrainConfig& config) {
  return parameter_sizes(config.model, has_pairs(objective_of(config)));
}

double owned_share(const RunConfig& config, const std::vector<int64_t>& parameters, int64_t ranks) {
  if (!config.distributed.shard_optimizer_state) return 1;
  check_sharding(std::ssize(parameters), ranks);
  return static_cast<double>(largest_share(parameters, static_cast<int>(ranks))) /
         static_cast<double>(std::accumulate(parameters.begin(), parameters.end(), int64_t{0}));
}

double layer_bytes_per_token(const BertConfig& c, double compute_bytes) {
  constexpr double kStatisticBytes = 4;  // fp32
  return static_cast<double>(8 * c.hidden_size + 2 * c.intermediate_size) * compute_bytes +
         static_cast<double>(c.num_attention_heads + 4) * kStatisticBytes;
}

MemoryPlan plan_memory(const RunConfig& config, const std::vector<int64_t>& sizes, const SequenceSize& sequence,
                       int64_t ranks) {
  const auto parameters = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  const bool masters = low_precision_weights(config.precision);
  MemoryPlan plan;
  plan.weights = parameters * (masters ? 2 : 4) + kept_casts(config, parameters);
  plan.gradients = parameters * 4;
  plan.optimizer = owned_share(config, sizes, ranks) * parameters *
                   (8 + (masters ? 4 : 0) + (config.optimizer.ema_decay > 0 ? 4 : 0));
  plan.activations = activations(config, parameters, sequence);
  return plan;
}

double evaluation_bytes(const RunConfig& config, const std::vector<int64_t>& parameters, const SequenceSize& sequence,
                        int64_t sequences) {
  const bool casts = low_precision(config.precision) && !low_precision_weights(config.precision);
  const double weights = static_cast<double>(std::accumulate(parameters.begin(), parameters.end(), int64_t{0}));
  const BertConfig& model = config.model;
  const auto layer = static_cast<double>(4 * model.hidden_size + 2 * model.intermediate_size) * sequence.tokens,
             logits = static_cast<double>(model.vocab_size) * sequence.masked;
  return (casts ? 2 * weights : 0) + static_cast<double>(sequences) * compute_bytes(config) * std::max(layer, logits);
}

double plannable_bytes(const RunConfig& config, double free, bool is_gpu) {
  constexpr double kShareOfCpu = 0.8;
  if (!is_gpu) return kShareOfCpu * free;
  const double bytes = config.gradient_checkpointing ? 0.935 * free - 0.2e9 : 0.955 * free - 0.35e9;
  return std::max(bytes, 0.0);
}

int64_t largest_micro_batch(RunConfig config, const std::vector<int64_t>& parameters, const SequenceSize& sequence,
                            int64_t ranks, double bytes) {
  for (int64_t size = config.global_batch_size / ranks; size > 0; --size) {
    if (config.batch_divisor() % size != 0) continue;
    config.micro_batch_size = size;
    if (plan_memory(config, parameters, sequence, ranks).total() <= bytes) return size;
  }
  return 0;
}

}  // namespace bert
