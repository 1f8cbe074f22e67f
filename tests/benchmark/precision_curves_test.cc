// The loss does not depend on the precision: the curves in the documentation, their files, and, among the slow tests,
// the training itself.
#include "app/benchmark/precision_curves.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "app/report/line_chart.h"
#include "app/train/step/evaluation.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/loader/dataloader.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::TemporaryDirectory;

namespace {

const std::vector<std::string> kPrecisions = {"fp32", "bf16", "fp16", "bf16-weights", "fp16-weights"};

int64_t count_of(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// `guessing`: the loss of a guess that predicts masked tokens by their frequency and the next sentence by a coin. A
/// run at this loss has learned only the frequencies, and then all precisions agree.
void check_final_losses(const std::vector<PrecisionCurve>& curves, double guessing) {
  REQUIRE(curves.size() == kPrecisions.size());
  for (size_t i = 0; i < curves.size(); ++i) {
    CAPTURE(kPrecisions[i], final_loss(curves[i]), final_loss(curves[0]));
    CHECK(curves[i].precision == kPrecisions[i]);
    CHECK(curves[i].loss.size() == 500);
    CHECK(std::abs(final_loss(curves[i]) / final_loss(curves[0]) - 1) <= 0.01);
    CHECK(final_loss(curves[i]) < guessing - 0.3);
  }
}

}  // namespace

TEST_CASE("The README's curves end within 1 % of fp32, and the chart is that of its figures", "[golden]") {
  const std::string path = std::string(BERT_SOURCE_DIR) + "/optim/precision_curves";
  const std::vector<PrecisionCurve> curves = curves_from_csv(read_file(path + ".csv"), path + ".csv");
  check_final_losses(curves, 6.78 + std::log(2.0));  // of the Jargon File, as the quick start says
  CHECK(read_file(path + ".svg") == curves_to_svg(curves));
  CHECK(read_file(path + ".csv") == curves_to_csv(curves));
}

TEST_CASE("Curves in several precisions are of the same batches, and are written and read", "[unit][training_step]") {
  const TemporaryDirectory directory;
  int64_t heard = 0;
  const auto curves = train_in_precisions(bert::testing::tiny(directory, "run"), {"fp32", "bf16"}, 30,
                                          [&](const PrecisionCurve&) { ++heard; });
  CHECK(heard == 60);
  REQUIRE(curves.size() == 2);
  CHECK(curves[0].loss.size() == 30);
  CHECK(curves[0].loss != curves[1].loss);
  for (size_t i = 0; i < 30; ++i) {
    CHECK(curves[1].loss[i] == bert::testing::Approx(curves[0].loss[i]).epsilon(0.02));  // after 30 steps of bf16
  }
  const std::string csv = curves_to_csv(curves);
  CHECK(csv.starts_with("step,fp32,bf16\n1,"));
  CHECK(count_of(csv, "\n") == 31);
  CHECK(curves_to_csv(curves_from_csv(csv, "curves.csv")) == csv);
  CHECK_THROWS_WITH(curves_from_csv("step,fp32\n1,2.5\n2,x\n", "curves.csv"),
                    bert::testing::Contains("curves.csv:3: expected a loss for each precision, got 2,x"));
  CHECK_THROWS_WITH(curves_from_csv("step,fp32\n1,2,3\n", "c"), bert::testing::Contains("c:2: "));
  CHECK_THROWS_AS(curves_from_csv("step,fp32\n1\n", "c"), DataError);
}

TEST_CASE("The final loss is the mean of the last tenth", "[unit]") {
  PrecisionCurve curve{.precision = "fp32", .loss = std::vector<double>(20, 9.0)};
  curve.loss[18] = 1.0;
  curve.loss[19] = 2.0;
  CHECK(final_loss(curve) == 1.5);
  CHECK(final_loss({.precision = "fp32", .loss = {4.0}}) == 4.0);
}

TEST_CASE("A chart has its lines, labels and round ticks", "[unit]") {
  const std::string svg = to_svg({.title = "a < b & c",
                                  .x_label = "step",
                                  .y_label = "loss",
                                  .lines = {{"one", {2.0, 4.0, std::nan(""), 3.0, 12.0}}, {"two", {5.0, 5.0}}}});
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(svg.find(">a &lt; b &amp; c<") != std::string::npos);
  CHECK(count_of(svg, "<path d=\"M") == 4);  // two lines and their samples
  for (const char* tick : {">2<", ">4<", ">6<", ">8<", ">10<", ">12<"}) CHECK(svg.find(tick) != std::string::npos);
  // By hand: x = 1..5 of 0..5 in 64..702, y = 2..12 in 368..40; NaN begins a new piece.
  CHECK(svg.find("M191.6 368.0L319.2 302.4M574.4 335.2L702.0 40.0\"") != std::string::npos);
  CHECK_THROWS_AS(to_svg({.title = "empty", .x_label = "", .y_label = "", .lines = {}}), std::invalid_argument);
}

TEST_CASE("500 steps of a small BERT on real text reach the same loss in every precision", "[slow][training_step]") {
  const std::string data = bert::testing::shared_data();
  if (data.empty()) BERT_SKIP("no ../shared/data: needs a text");
  const TemporaryDirectory directory;
  const std::string text = data + "/text/wikitext-2/valid.txt", vocab = directory.path("vocab.txt"),
                    shard = directory.path("train.shard");
  const std::string bert = BERT_EXECUTABLE;
  REQUIRE(std::system((bert + " vocab --input " + text + " --size 4096 --output " + vocab + " 2>/dev/null").c_str()) ==
          0);
  REQUIRE(std::system((bert + " data create --split-sentences --input " + text + " --vocab " + vocab +
                       " --max-seq-length 64 --max-predictions-per-seq 10 --output " + shard + " >/dev/null 2>&1")
                          .c_str()) == 0);
  PretrainConfig config;
  config.device = "cpu";
  config.micro_batch_size = config.global_batch_size = 64;
  config.model = {.vocab_size = 4096,
                  .hidden_size = 128,
                  .num_hidden_layers = 2,
                  .num_attention_heads = 2,
                  .intermediate_size = 512,
                  .hidden_dropout_prob = 0.0,
                  .attention_probs_dropout_prob = 0.0,
                  .max_position_embeddings = 64,
                  .initializer_range = 0.1};
  config.data.train = {shard};
  config.optimizer.type = "adamw";
  config.optimizer.lr = 1e-3;
  config.schedule = {.type = "linear", .warmup_proportion = 0.1};
  const auto shards = std::make_shared<const PretrainingShards>(config.data.train);
  const UnigramModel unigram(*shards);
  const PackedBatch batch = PretrainingDataLoader(shards, {.micro_batch_size = 1000}).next_step().micro_batches.front();
  double guessing = std::log(2.0);
  for (int64_t i = 0; i < batch.num_masked(); ++i) {
    guessing += unigram.loss(batch.masked_ids[i].item<int64_t>()) / static_cast<double>(batch.num_masked());
  }
  check_final_losses(train_in_precisions(config, kPrecisions, 500, [](const PrecisionCurve&) {}), guessing);
}
