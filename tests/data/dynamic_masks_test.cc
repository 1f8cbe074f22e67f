// Masks that the loader draws, on real text: the statistics of BERT's recipe, and their dependence on the epoch.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <set>
#include <vector>

#include "data/creation/document_tokenizer.h"
#include "data/formats/shard.h"
#include "data/loader/dataloader.h"
#include "tests/support/batch_sequences.h"
#include "tests/support/examples_of_text.h"
#include "tests/support/mask_statistics.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::check_masks;
using testing::count;
using testing::is_within_three_sigma;
using testing::restored;
using testing::Sequences;
using testing::take_apart;
using testing::TemporaryDirectory;

constexpr int64_t kEpochs = 4;

/// Examples of a novel with static masks, in a shard.
struct NovelShard {
  TemporaryDirectory directory;
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(testing::shared_data() + "/vocab/bert-base-uncased-vocab.txt");
  PretrainingDataConfig config{.dupe_factor = 1};
  std::vector<PretrainingExample> examples;
  std::shared_ptr<const PretrainingShards> shards;

  NovelShard() {
    const Corpus corpus = read_documents({testing::shared_data() + "/text/novels/Burnett_Garden_1911.txt"}, *tokenizer,
                                         {.reader = {.layout = Layout::kProse}, .num_threads = 2, .progress = {}});
    examples = testing::create_examples(corpus.documents, *tokenizer, config);
    ShardWriter writer(directory.path("novel.shard"), {.vocab_size = tokenizer->vocabulary().size(),
                                                       .max_seq_length = config.max_seq_length,
                                                       .vocabulary_checksum = tokenizer->vocabulary().hash(),
                                                       .parameters = {}});
    for (const PretrainingExample& example : examples) writer.add(example);
    writer.commit();
    shards = std::make_shared<const PretrainingShards>(std::vector{directory.path("novel.shard")});
  }

  [[nodiscard]] DataLoaderConfig loader() const {
    return {.micro_batch_size = 32,
            .seed = 3,
            .masking = DynamicMasking{.vocabulary = std::make_shared<const MaskingVocabulary>(*tokenizer),
                                      .config = config.masks()}};
  }

  /// All sequences of kEpochs epochs, by number.
  [[nodiscard]] Sequences run(DataLoaderConfig loader_config) const {
    Sequences sequences;
    const int64_t wanted = kEpochs * shards->size(), world_size = loader_config.world_size;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      loader_config.rank = rank;
      PretrainingDataLoader loader(shards, loader_config);
      while (loader.state().consumed_sequences < wanted) take_apart(loader.next_step(), sequences);
    }
    sequences.erase(sequences.lower_bound(wanted), sequences.end());
    REQUIRE(std::ssize(sequences) == wanted);
    return sequences;
  }
};

TEST_CASE("Statistics of masks that are drawn for real text are those of BERT's recipe", "[unit][statistics]") {
  if (testing::shared_data().empty()) BERT_SKIP("the novel and the vocabulary are in ../shared/data, which is absent");
  const NovelShard novel;
  const Sequences sequences = novel.run(novel.loader());
  std::vector<PretrainingExample> all;
  std::vector<std::vector<std::vector<int32_t>>> masked(novel.examples.size());  // positions, by example and epoch
  ExampleOrder order({{.name = "", .examples = novel.shards->size(), .weight = 1}}, novel.loader().seed,
                     /*shuffle=*/true);
  for (const auto& [number, sequence] : sequences) {
    const auto place = order(number);
    REQUIRE(place.epoch == number / novel.shards->size());
    const PretrainingExample& stored = novel.examples.at(static_cast<size_t>(place.example));
    REQUIRE(restored(sequence) == restored(stored));
    REQUIRE(sequence.segment_b_start == stored.segment_b_start);
    REQUIRE(sequence.is_random_next == stored.is_random_next);
    all.push_back(sequence);
    masked.at(static_cast<size_t>(place.example)).push_back(sequence.masked_positions);
  }
  // The number of predictions, no masked [CLS] or [SEP], and 80 % [MASK], 10 % kept, 10 % of the whole vocabulary.
  check_masks(count(all, *novel.tokenizer, novel.config), novel.tokenizer->vocabulary().size());

  // Two epochs are independent: k masked tokens of n meet k others in k k / n places in the mean (hypergeometric).
  double meetings = 0, mean = 0, variance = 0;
  int64_t equal = 0;
  for (size_t i = 0; i < masked.size(); ++i) {
    REQUIRE(masked[i].size() == kEpochs);
    const double n = static_cast<double>(novel.examples[i].input_ids.size()) - 3;
    for (size_t epoch = 0; epoch + 1 < kEpochs; epoch += 2) {
      const std::vector<int32_t>&one = masked[i][epoch], &next = masked[i][epoch + 1];
      const auto k = static_cast<double>(one.size());
      std::vector<int32_t> both;
      std::set_intersection(one.begin(), one.end(), next.begin(), next.end(), std::back_inserter(both));
      meetings += static_cast<double>(both.size());
      mean += k * k / n;
      if (n > 1) variance += k * k / n * (1 - k / n) * (n - k) / (n - 1);
      if (n >= 20) equal += one == next;
    }
  }
  CHECK(is_within_three_sigma(meetings, mean, variance));
  CHECK_FALSE(is_within_three_sigma(meetings, 1.1 * mean, variance));  // the twin
  // 3 or more of 20 or more tokens: two draws of 1,140 agree by chance. Equal masks in every epoch would give thousands.
  CHECK(equal < 10);
}

TEST_CASE("Masks that are drawn for an epoch are the same on any number of ranks and with any micro-batches",
          "[unit][statistics]") {
  if (testing::shared_data().empty()) BERT_SKIP("the novel and the vocabulary are in ../shared/data, which is absent");
  const NovelShard novel;
  const Sequences want = novel.run(novel.loader());
  DataLoaderConfig ranks = novel.loader();
  ranks.micro_batch_size = 7;
  ranks.world_size = 3;
  CHECK((novel.run(ranks) == want));
  DataLoaderConfig packed = novel.loader();
  packed.micro_batch_tokens = 2048;
  packed.global_batch_size = 64;
  CHECK((novel.run(packed) == want));
  DataLoaderConfig other = novel.loader();
  other.seed = 4;
  CHECK((novel.run(other) != want));
}

}  // namespace
}  // namespace bert
