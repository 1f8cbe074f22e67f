#include "app/train/micro_batch.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/device/device.h"
#include "app/distributed/rank_zero.h"
#include "app/system/errors.h"
#include "app/train/run_inputs.h"
#include "data/io/files.h"

namespace bert {
namespace {

/// The size of the run in config.run_directory; 0 if there is none, or if it cannot be used now.
int64_t size_before(const RunConfig& config, const MicroBatchOf& earlier, int64_t largest) {
  const std::string path = config.run_directory + "/config.json";
  if (config.run_directory.empty() || !std::filesystem::exists(path)) return 0;
  int64_t size = 0;
  try {
    size = earlier(read_file(path), path);
  } catch (const ConfigError&) {  // the file of another program, or of a run of another kind
  }
  return size >= 1 && size <= largest && config.batch_divisor() % size == 0 ? size : 0;
}

int64_t smallest_over_ranks(const ProcessGroupPtr& group, int64_t value) {
  torch::Tensor smallest = torch::tensor(value);
  all_reduce(group, smallest, c10d::ReduceOp::MIN);
  return smallest.item<int64_t>();
}

}  // namespace

int64_t choose_micro_batch(const RunConfig& config, const std::vector<int64_t>& parameters, const SequenceSize& longest,
                           const RunPlace& place, const MicroBatchOf& earlier, const RunNote& note) {
  if (config.micro_batch_size != RunConfig::kFromMemory) return config.micro_batch_size;
  const int64_t ranks = get_world_size(place.group);
  const auto free = static_cast<double>(free_memory(place.device, place.local_size));
  const double plannable = plannable_bytes(config, free, place.device.is_cuda());
  const int64_t largest =
      smallest_over_ranks(place.group, largest_micro_batch(config, parameters, longest, ranks, plannable));
  const auto plan_of = [&](int64_t size) {
    RunConfig sized = config;
    sized.micro_batch_size = size;
    return plan_memory(sized, parameters, longest, ranks).total() / 1e9;
  };
  if (largest == 0) {
    throw ConfigError(
        fmt::format("micro_batch_size auto: the plan of one sequence is {:.1f} GB, and {:.1f} GB are free on {}; "
                    "expected a plan of at most {:.1f} GB: set gradient_checkpointing=true, or train a smaller "
                    "model; a number in place of auto is not checked",
                    plan_of(1), free / 1e9, place.device.str(), plannable / 1e9));
  }
  const int64_t before =
      std::stoll(on_rank_zero(place.group, "read the earlier micro_batch_size", config.distributed.timeout_seconds,
                              [&] { return std::to_string(size_before(config, earlier, largest)); }));
  const int64_t size = before > 0 ? before : largest;
  note(fmt::format(
      "micro_batch_size auto: {}, {}; the plan is {:.1f} GB, and {:.1f} GB are free on {}", size,
      before > 0 ? fmt::format("as before (the largest that fits is {})", largest) : "the largest that fits",
      plan_of(size), free / 1e9, place.device.str()));
  if (size < config.global_batch_size && config.optimizer.average == GradientAverage::kMicroBatches) {
    note(
        "warning: micro_batch_size auto with optimizer.average micro_batches: the mean over micro-batches depends on "
        "their size, so on this device's memory; optimizer.average=masked_tokens does not");
  }
  return size;
}

PretrainConfig with_micro_batch(PretrainConfig config, const PretrainingShards& train, const RunPlace& place,
                                const RunNote& note) {
  int64_t tokens = 0, masked = 0;
  for (const auto& shard : train.shards()) {
    tokens += shard->manifest().tokens;
    masked += shard->manifest().masked_tokens;
  }
  const double share = config.data.masking == Masking::kDynamic
                           ? config.data.masks.masked_lm_prob
                           : static_cast<double>(masked) / static_cast<double>(std::max<int64_t>(tokens, 1));
  const auto longest = static_cast<double>(train.longest_row());
  const auto earlier = [](const std::string& json, const std::string& name) {
    return parse_pretrain_config(json, name).micro_batch_size;
  };
  config.micro_batch_size =
      choose_micro_batch(config, parameter_sizes(with_objective(config, train)),
                         {.tokens = longest, .masked = std::ceil(share * longest)}, place, earlier, note);
  return config;
}

}  // namespace bert
