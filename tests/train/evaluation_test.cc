// Evaluation on held-out examples: number of examples, any number of ranks, and the state after a damaged row.
#include "app/train/step/evaluation.h"

#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "app/config/fields.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/gloo_ranks.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;

namespace {

std::vector<double> values(const Evaluation& e) {
  return {e.mlm_loss,
          e.mlm_accuracy,
          e.pair_loss,
          e.pair_accuracy,
          e.unigram_entropy,
          static_cast<double>(e.examples),
          static_cast<double>(e.masked_tokens)};
}

}  // namespace

TEST_CASE("An evaluation reads no more examples than it may, with the same figures on any number of ranks",
          "[trainer][distributed]") {
  const TemporaryDirectory directory;
  const PretrainConfig config = tiny(directory, "run");
  bert::testing::write_counting_shard(directory.path("validation.shard"), 150,
                                      3);  // five batches; the last one has 22 examples
  const auto train = std::make_shared<const PretrainingShards>(config.data.train),
             held_out = std::make_shared<const PretrainingShards>(config.data.validation);
  const UnigramModel unigram(*train);
  for (const int64_t most : {1, 10, 33, 149, 150, 151, 0}) {
    CAPTURE(most);
    TrainingStep one(config, c10::kCPU, nullptr);
    const Evaluation want = *evaluate_pretraining(one, held_out, unigram, most);
    CHECK(want.examples == (most == 0 ? 150 : std::min<int64_t>(most, 150)));
    CHECK(want.masked_tokens == 2 * want.examples);
    for (const int ranks : {2, 3}) {
      std::vector<std::vector<double>> got(static_cast<size_t>(ranks));
      bert::testing::on_ranks(ranks, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
        TrainingStep step(config, c10::kCPU, group);
        got[static_cast<size_t>(rank)] = values(*evaluate_pretraining(step, held_out, unigram, most));
      });
      for (const auto& of_rank : got) CHECK(of_rank == values(want));
    }
  }
}

TEST_CASE("An evaluation that one rank stops has no result on any", "[unit][trainer]") {
  const TemporaryDirectory directory;
  const PretrainConfig config = tiny(directory, "run");
  bert::testing::write_counting_shard(directory.path("validation.shard"), 150, 3);
  const auto held_out = std::make_shared<const PretrainingShards>(config.data.validation);
  const UnigramModel unigram(PretrainingShards(config.data.train));
  std::array<bool, 2> evaluated{true, true};
  std::array<int, 2> asked{};
  bert::testing::on_ranks(2, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    TrainingStep step(config, c10::kCPU, group);
    const auto r = static_cast<size_t>(rank);
    evaluated[r] =
        evaluate_pretraining(step, held_out, unigram, 0, [&] { return ++asked[r] == 2 && rank == 1; }).has_value();
    CHECK(step.model->is_training());
  });
  CHECK(evaluated == std::array<bool, 2>{false, false});
  CHECK(asked == std::array<int, 2>{3, 2});  // rank 0 has three of the five batches; rank 1 stops at its second
}

TEST_CASE("A model is trained on after an evaluation that fails", "[unit][trainer]") {
  const TemporaryDirectory directory;
  const PretrainConfig config = tiny(directory, "run");
  const std::string path = config.data.validation.front();
  std::string bytes = read_file(path);
  uint64_t offsets = 0, row = 0;
  std::memcpy(&offsets, bytes.data() + 32, sizeof offsets);
  std::memcpy(&row, bytes.data() + offsets + 35 * sizeof row, sizeof row);
  bytes[row + 14] = static_cast<char>(bytes[row + 14] ^ 16);
  std::ofstream(path, std::ios::binary) << bytes;
  const auto held_out = std::make_shared<const PretrainingShards>(config.data.validation);
  const UnigramModel unigram(PretrainingShards(config.data.train));
  TrainingStep step(config, c10::kCPU, nullptr);
  CHECK_THROWS_AS(evaluate_pretraining(step, held_out, unigram, 0), DataError);
  CHECK(step.model->is_training());
  CHECK(evaluate_pretraining(step, held_out, unigram, 32)->examples == 32);  // the bad row comes after these
  CHECK(step.model->is_training());
  step.model->eval();
  evaluate_pretraining(step, held_out, unigram, 32);
  CHECK_FALSE(step.model->is_training());
}
