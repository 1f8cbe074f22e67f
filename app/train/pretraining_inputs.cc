#include "app/train/pretraining_inputs.h"

#include "app/train/micro_batch.h"
#include "app/train/rank_agreement.h"
#include "app/train/run_inputs.h"

namespace bert {

PretrainingInputs read_pretraining_inputs(const PretrainConfig& config, const RunPlace& place) {
  PretrainingInputs inputs;
  const RunNote note = print_and_keep(config, get_rank(place.group), inputs.notes);
  inputs.tokenizer = load_tokenizer(config);
  expect_same_config(place.group, config);
  note("opening the shards of data.train");  // many shards on a slow disk take minutes
  inputs.train = open_shards(config, "train", *inputs.tokenizer);
  check_micro_batches(config, get_world_size(place.group));
  inputs.config = with_objective(with_micro_batch(config, *inputs.train, place, note), *inputs.train);
  if (config.evaluate_every > 0) inputs.validation = open_shards(inputs.config, "validation", *inputs.tokenizer);
  inputs.data = training_identities(inputs.config, *inputs.train);
  if (inputs.validation) inputs.data["validation"] = identity_of(*inputs.validation);
  expect_same_data(place.group, inputs.data, config.distributed.timeout_seconds);
  for (const auto& shards : {inputs.train, inputs.validation}) {
    if (const std::string warning = shards ? unknown_vocabulary(*shards) : ""; !warning.empty()) note(warning);
  }
  return inputs;
}

}  // namespace bert
