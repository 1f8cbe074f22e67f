// Runs whose initial_checkpoint has another vocabulary.
#include "app/train/initial_vocabulary.h"

#include <torch/types.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/checkpoint/checkpoint.h"
#include "app/finetune/finetuning_run.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/formats/shard.h"
#include "data/loader/sequence_reader.h"
#include "tests/support/lines.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::last_checkpoint;
using bert::testing::load_checkpoint;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;
using bert::testing::tiny_task;

namespace {

constexpr const char* kWords = "bert.embeddings.word_embeddings.weight";
constexpr const char* kBias = "cls.predictions.bias";

/// The vocabulary of tiny() with an accent, which its tokenizer strips, in the tokens from 20 to 40, and with two
/// tokens swapped that no sequence has.
std::vector<std::string> accented_tokens() {
  std::vector<std::string> tokens = bert::testing::tokens();
  for (size_t id = 20; id < 40; ++id) tokens[id].insert(1, "\xCC\x80");  // U+0300
  std::swap(tokens[60], tokens[61]);
  return tokens;
}

/// Copies a shard for the vocabulary `tokens`.
void copy_shard(const std::string& from, const std::string& to, const std::vector<std::string>& tokens) {
  const PretrainingShards source({from});
  ShardOptions options;
  options.vocab_size = static_cast<int64_t>(tokens.size());
  options.max_seq_length = bert::testing::kLength;
  options.vocabulary_checksum = Vocabulary(tokens).hash();
  ShardWriter writer(to, options);
  for (int64_t row = 0; row < source.size(); ++row) writer.add(source.example(row));
  writer.commit();
}

}  // namespace

TEST_CASE("The state of a run takes another vocabulary: old rows keep their bits, moments of new rows are 0",
          "[unit][vocabulary]") {
  const WordPieceTokenizer old(Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b"}));
  const VocabularyRows plan =
      vocabulary_rows({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "b", "abb", "##bb", "a"}, old);
  StateDict initial, state;
  initial.insert(kWords, torch::full({10, 3}, 7.0));  // a row of padding
  initial.insert(kBias, torch::full({10}, 7.0));
  for (const torch::Dtype dtype : {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    CAPTURE(c10::toString(dtype));
    state = StateDict();
    const torch::Tensor words = (torch::randn({8, 3}, torch::kDouble) * 0.3).to(dtype);
    const torch::Tensor bias = torch::randn({8}).to(dtype), other = torch::randn({3, 3});
    for (const char* prefix : {"", "master.", "ema.", "exp_avg.", "exp_avg_sq."})
      state.insert(std::string(prefix) + kWords, words.clone());
    state.insert(kBias, bias);
    state.insert("bert.pooler.dense.weight", other);
    for (const InitialRows rows : {InitialRows::kMeanOfPieces, InitialRows::kRandom}) {
      const StateDict extended = extend_embeddings(state, plan, rows, initial);
      CHECK(extended.size() == state.size());
      CHECK(extended["bert.pooler.dense.weight"].is_same(other));
      for (const auto& item : extended) {
        CAPTURE(item.key());
        if (!item.key().ends_with(kWords) && item.key() != kBias) continue;
        const torch::Tensor now = item.value(), before = state[item.key()];
        REQUIRE(now.scalar_type() == dtype);
        REQUIRE(now.size(0) == 10);
        CHECK(torch::equal(now.narrow(0, 0, 5), before.narrow(0, 0, 5)));
        CHECK(torch::equal(now[5], before[6]));
        CHECK(torch::equal(now[8], before[5]));
        CHECK(now[9].eq(0).all().item<bool>());
        const auto mean = [&](const std::vector<int64_t>& ids) {
          return before.index_select(0, torch::tensor(ids)).to(torch::kDouble).mean(0).to(dtype);
        };
        const bool moment = item.key().starts_with("exp_avg"), random = rows == InitialRows::kRandom;
        const torch::Tensor unlike = torch::full_like(mean({5}), moment ? 0.0 : 7.0);
        CHECK(torch::equal(now[6], moment || random ? unlike : mean({5, 7, 7})));
        CHECK(torch::equal(now[7], moment || random ? unlike : mean({7, 7})));
      }
    }
  }
  const StateDict empty = extend_embeddings(
      [&] {
        StateDict meta;
        for (const auto& item : state) meta.insert(item.key(), item.value().to(torch::kMeta));
        return meta;
      }(),
      plan, InitialRows::kMeanOfPieces, initial);
  CHECK(empty[kWords].is_meta());
  CHECK(empty[kWords].size(0) == 10);
}

TEST_CASE("A run with another vocabulary starts where the run before it ended, and not with random rows",
          "[unit][vocabulary]") {
  const TemporaryDirectory directory;
  PretrainConfig first = tiny(directory, "first");
  first.max_steps = first.checkpoint_every = first.evaluate_every = 250;
  first.num_threads = 1;
  first.schedule.warmup_proportion = 0.1;
  first.optimizer.lr = 5e-3;
  REQUIRE(pretrain(first, false) == kOk);
  const auto losses = [](const PretrainConfig& config) {
    std::vector<double> of_evaluations;
    for (const nlohmann::json& line : bert::testing::metrics_of(config.run_directory)) {
      if (line.contains("evaluation")) of_evaluations.push_back(line["evaluation"]["mlm_loss"]);
    }
    return of_evaluations;
  };
  const double learnt = losses(first).back();

  PretrainConfig next = first;
  next.run_directory = directory.path("next");
  next.initial_checkpoint = first.run_directory;
  next.max_steps = next.checkpoint_every = next.evaluate_every = 2;
  next.data.vocab_file = directory.path("accented.txt");
  std::ofstream lines(next.data.vocab_file);
  for (const std::string& token : accented_tokens()) lines << token << "\n";
  lines.close();
  for (std::string* shard : {&next.data.train.front(), &next.data.validation.front()}) {
    copy_shard(*shard, *shard + "-accented", accented_tokens());
    *shard += "-accented";
  }
  CHECK_THROWS_WITH(pretrain(next, false), Contains("was trained with another vocabulary than " + next.data.vocab_file +
                                                    ": token 20 is \"20\" "
                                                    "there") &&
                                               Contains("; initial_vocabulary.rows=mean_of_pieces takes"));
  next.model.vocab_size = 68;
  next.initial_vocabulary.rows = InitialRows::kMeanOfPieces;
  next.initial_optimizer_state = true;
  int code = -1;
  CHECK_THAT(testing::said(next, code, 2), Contains("initial_vocabulary: 42 rows kept, 2 moved, 20 new, "
                                                    "20 dropped"));
  REQUIRE(code == kOk);
  // Each token with an accent is one piece, the token without it.
  CHECK(losses(next).front() == Approx(learnt).margin(1e-5));
  const Checkpoint last = load_checkpoint(last_checkpoint(next));
  CHECK(last.model[kWords].size(0) == 68);
  CHECK(last.state.model.vocabulary == accented_tokens());

  next.run_directory = directory.path("random");
  next.model = BertConfig();
  next.initial_vocabulary.rows = InitialRows::kRandom;
  REQUIRE(pretrain(next, false) == kOk);
  CHECK(losses(next).front() > learnt + 0.1);
  CHECK(load_checkpoint(last_checkpoint(next)).model[kWords].size(0) == 64);

  next.run_directory = directory.path("refused");
  next.initial_vocabulary.from = next.data.vocab_file;
  CHECK_THROWS_WITH(pretrain(next, false), Contains("has not the vocabulary of initial_vocabulary.from"));
  next.initial_vocabulary.from = first.data.vocab_file;
  CHECK(pretrain(next, false) == kOk);
}

TEST_CASE("Fine-tuning takes more tokens than its initial checkpoint has", "[unit][finetune][vocabulary]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.max_steps = config.checkpoint_every = 4;
  config.data.vocab_file = directory.path("more.txt");
  std::vector<std::string> tokens = bert::testing::tokens();
  tokens.insert(tokens.end(), {"64", "5 6"});
  std::ofstream lines(config.data.vocab_file);
  for (const std::string& token : tokens) lines << token << "\n";
  lines.close();
  CHECK_THROWS_WITH(finetune(config, false),
                    Contains("token 64 is absent there and \"64\" here; initial_vocabulary.rows="));
  for (const InitialRows rows : {InitialRows::kMeanOfPieces, InitialRows::kRandom}) {
    config.run_directory = directory.path(name_of_value(rows));
    config.initial_vocabulary.rows = rows;
    config.optimizer.lr = 1e-12;
    config.model = BertConfig();
    REQUIRE(finetune(config, false) == kOk);
    const Checkpoint last = load_checkpoint(checkpoint_directory(config.run_directory, config.max_steps));
    CHECK(last.state.model.vocabulary == tokens);
    const torch::Tensor now = last.model[kWords];
    const torch::Tensor before = load_checkpoint(config.initial_checkpoint).model[kWords];
    REQUIRE(now.size(0) == 66);
    CHECK(torch::allclose(now.narrow(0, 0, 64), before, 0, 1e-9));
    const torch::Tensor mean = (before[5] + before[6]) / 2;
    CHECK(torch::allclose(now[65], mean, 0, 1e-7) == (rows == InitialRows::kMeanOfPieces));
    config.max_steps = config.checkpoint_every = 6;  // the run has its own tokens now
    CHECK(finetune(config, true) == kOk);
    config.max_steps = config.checkpoint_every = 4;
  }
}
