// train SHARD OUTPUT.safetensors: two steps of LAMB on examples of SHARD, which `bert data create` wrote.
#include <bert/checkpoint/checkpoint.h>
#include <bert/data/formats/shard.h>
#include <bert/data/loader/dataloader.h>
#include <bert/model/bert.h>
#include <bert/model/state_dict.h>
#include <bert/optim/lamb.h>

#include <cstdio>
#include <exception>
#include <memory>

namespace {

void train(const char* shard, const char* output) {
  const auto shards = std::make_shared<const bert::PretrainingShards>(std::vector<std::string>{shard});
  bert::PretrainingDataLoader loader(shards, {.micro_batch_size = 32});
  const bert::BertConfig config{.vocab_size = shards->vocab_size(),
                                .hidden_size = 64,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 4,
                                .intermediate_size = 256,
                                .max_position_embeddings = shards->longest_row()};
  bert::BertForPreTraining model(config);  // with initial weights
  const bert::OptimizerConfig options{.lr = 0.02};
  bert::Lamb optimizer(bert::group_parameters(bert::named_parameters(*model), options), options);

  const bert::PackedBatch batch =
      loader.next_step().micro_batches.front();  // one batch for both steps, so that its loss falls
  const auto loss = [&] { return bert::pretraining_loss(model->forward(batch), batch, config.vocab_size); };
  for (int step = 1; step <= 2; ++step) {
    const bert::PretrainingLoss before = loss();
    optimizer.zero_grad();
    before.total.backward();
    optimizer.step();
    std::printf("step %d: loss %.6f\n", step, before.total.item<double>());
  }
  std::printf("after: loss %.6f\n", loss().total.item<double>());
  bert::save_safetensors(output, bert::state_dict(*model));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: train SHARD OUTPUT.safetensors\n");
    return 2;
  }
  try {
    train(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
  return 0;
}
