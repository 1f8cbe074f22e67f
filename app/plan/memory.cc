#include "app/plan/memory.h"

#include <initializer_list>
#include <iterator>
#include <numeric>
#include <string>

#include "optim/run_owners.h"

namespace bert {
namespace {

bool low_precision(const std::string& precision) { return precision != "fp32" && precision != "tf32"; }

bool low_precision_weights(const std::string& precision) {
  return precision == "bf16-weights" || precision == "fp16-weights";
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
  const auto h = static_cast<double>(config.model.hidden_size);
  const auto layers = static_cast<double>(config.model.num_hidden_layers),
             vocabulary = static_cast<double>(config.model.vocab_size);
  const auto batch = static_cast<double>(config.micro_batch_size);
  const double compute_bytes = low_precision(config.precision) ? 2 : 4;
  const bool masters = low_precision_weights(config.precision);
  MemoryPlan plan;
  // Autocast keeps a low-precision copy of the weights during a forward.
  plan.weights = parameters * (masters ? 2 : compute_bytes == 2 ? 4 + 2 : 4);
  plan.gradients = parameters * 4;
  plan.optimizer = owned_share(config, sizes, ranks) * parameters *
                   (8 + (masters ? 4 : 0) + (config.optimizer.ema_decay > 0 ? 4 : 0));
  const double kept = layer_bytes_per_token(config.model, compute_bytes), hidden = h * compute_bytes;
  const double encoder = config.gradient_checkpointing ? layers * hidden + kept : layers * kept;
  plan.activations = batch * (sequence.tokens * (encoder + 2 * hidden) +
                              sequence.masked * (vocabulary * (4 + compute_bytes) + 3 * hidden));
  return plan;
}

int64_t largest_micro_batch(RunConfig config, const std::vector<int64_t>& parameters, const SequenceSize& sequence,
                            int64_t ranks, double bytes) {
  for (int64_t size = config.global_batch_size / ranks; size > 0; --size) {
    if (config.global_batch_size % size != 0) continue;
    config.micro_batch_size = size;
    if (plan_memory(config, parameters, sequence, ranks).total() <= bytes) return size;
  }
  return 0;
}

}  // namespace bert
