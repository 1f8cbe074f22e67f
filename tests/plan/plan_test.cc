// `bert plan`: its arithmetic computed by hand, and its model of a step against published multi-node tables.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "app/config/fields.h"
#include "app/plan/flops.h"
#include "app/plan/memory.h"
#include "app/plan/step_model.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
// The last include: it includes Catch2.
#include "tests/support/command_testing.h"
#include "tests/support/lines.h"
#include "tests/support/tiny_pretraining.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::CommandResult;
using bert::testing::Contains;
using bert::testing::run_command;

namespace {

const GpuModel& gpu(const std::string& name) {
  return *std::ranges::find_if(gpu_models(), [&](const GpuModel& g) { return name == g.name; });
}

const NetworkPort& port(const std::string& name) {
  return *std::ranges::find_if(network_ports(), [&](const NetworkPort& p) { return name == p.name; });
}

BertConfig bert_large() {
  BertConfig config;
  config.hidden_size = 1024;
  config.num_hidden_layers = 24;
  config.num_attention_heads = 16;
  config.intermediate_size = 4096;
  return config;
}

/// A row of a published table: one optimizer step on a number of nodes.
struct Row {
  Cluster cluster;
  StepWork work;
  double sequences_per_step = 0, sequences_per_second = 0;
  int64_t micro_batch_size = 0;
};

std::vector<Row> rows_of(const nlohmann::json& series) {
  const auto parameters = static_cast<double>(parameter_count(bert_large()));
  std::vector<Row> rows;
  for (const nlohmann::json& values : series.at("rows")) {
    Row row;
    row.cluster.nodes = values.at(0);
    row.cluster.gpus_per_node = series.at("gpus_per_node");
    row.cluster.gpu = gpu(series.at("gpu"));
    row.cluster.node_bandwidth = series.at("ports").get<double>() * port(series.at("network")).bandwidth;
    row.micro_batch_size = values.at(1);
    row.work.accumulation_steps = values.at(2);
    row.work.gradient_bytes = parameters * (series.at("precision") == "fp16" ? 2 : 4);
    row.work.optimizer_bytes = 42 * parameters;  // LAMB with gradients of 2 bytes
    row.sequences_per_step =
        static_cast<double>(row.cluster.gpus() * row.micro_batch_size * row.work.accumulation_steps);
    row.sequences_per_second = values.at(3);
    rows.push_back(row);
  }
  return rows;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Predicts every second row of every table. One number, the seconds of a sequence on a GPU, is fitted to the other
/// rows. Returns the relative errors of the rows with at most `most_micro_steps`. `communication` scales the bytes that
/// are reduced.
std::vector<double> errors_on_held_out_rows(double communication, int64_t most_micro_steps, bool print) {
  const nlohmann::json tables = nlohmann::json::parse(read_file(bert::testing::golden("multi_node.json")));
  std::vector<double> errors;
  for (const nlohmann::json& series : tables.at("series")) {
    std::vector<Row> rows = rows_of(series);
    for (Row& row : rows) row.work.gradient_bytes *= communication;
    std::vector<double> fitted;
    for (size_t i = 0; i < rows.size(); i += 2) {
      fitted.push_back(fit_micro_step_seconds(rows[i].work, rows[i].cluster,
                                              rows[i].sequences_per_step / rows[i].sequences_per_second) /
                       static_cast<double>(rows[i].micro_batch_size));
    }
    for (size_t i = 1; i < rows.size(); i += 2) {
      Row& row = rows[i];
      if (row.work.accumulation_steps > most_micro_steps) continue;
      row.work.micro_step_seconds = median(fitted) * static_cast<double>(row.micro_batch_size);
      const double predicted = row.sequences_per_step / predict_step(row.work, row.cluster).total();
      errors.push_back(std::abs(predicted / row.sequences_per_second - 1));
      if (print) {
        fmt::print("{:34} {:9} {:4} {:3} x {:2} nodes: {:9.0f} predicted, {:9.0f} published, {:+.1f} %\n",
                   series.at("directory").get<std::string>(), series.at("gpu").get<std::string>(),
                   series.at("precision").get<std::string>(), series.at("sequence_length").get<int>(),
                   row.cluster.nodes, predicted, row.sequences_per_second,
                   100 * (predicted / row.sequences_per_second - 1));
      }
    }
  }
  return errors;
}

/// A directory with a configuration of BERT-base: 128 positions, a global batch of 64 in micro-batches of 4.
class Plan {
 public:
  Plan() {
    std::ofstream(config_) << R"({"run_directory": "run", "data": {"train": ["absent.shard"], "vocab_file": "v.txt"},
        "micro_batch_size": 4, "global_batch_size": 64, "optimizer": {"type": "lamb"}, "precision": "fp32",
        "model": {"max_position_embeddings": 128}})";
  }
  [[nodiscard]] CommandResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"plan", config_});
    return run_command(plan_command, arguments);
  }
  /// The text on stderr of a call that ends with `code`.
  [[nodiscard]] std::string refusal(const std::vector<std::string>& arguments, int code) const {
    const CommandResult result = run(arguments);
    CHECK(result.code == code);
    return result.err;
  }
  /// The line that --json prints.
  [[nodiscard]] nlohmann::json json(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    const CommandResult result = run(arguments);
    REQUIRE(result.code == kOk);
    return nlohmann::json::parse(result.out);
  }
  /// Writes a file with `report` on its last line, as `bert benchmark --json` prints it. Returns its path.
  [[nodiscard]] std::string measured(const nlohmann::json& report) const {
    std::ofstream(directory_.path("report")) << "a line before\n" << report << "\n";
    return directory_.path("report");
  }
  [[nodiscard]] std::string path(const std::string& name) const { return directory_.path(name); }

 private:
  bert::testing::TemporaryDirectory directory_;
  const std::string config_ = directory_.path("c.json");
};

/// A report of 40 ms for a step of 4 sequences.
nlohmann::json step_report() {
  return {{"benchmark", "step"},
          {"precision", "fp32"},
          {"optimizer", "lamb"},
          {"batch", 4},
          {"length", 128},
          {"model",
           {{"vocab_size", 30522},
            {"hidden_size", 768},
            {"num_hidden_layers", 12},
            {"num_attention_heads", 12},
            {"intermediate_size", 3072}}},
          {"sequences_per_second", 100.0},
          {"tokens_per_second", 12800.0}};
}

MemoryPlan memory_of(const PretrainConfig& config, double tokens, double masked, int64_t ranks) {
  return plan_memory(config, parameter_sizes(config), {.tokens = tokens, .masked = masked}, ranks);
}

}  // namespace

TEST_CASE("Parameters are counted as the published models have them", "[unit][plan]") {
  CHECK(parameter_count(BertConfig()) == 110106428);
  CHECK(parameter_count(bert_large()) == 336226108);
  // Hugging Face's BertForMaskedLM of bert-base-uncased, which has no pooler.
  CHECK(parameter_count(BertConfig(), /*sentence_pair_head=*/false) == 109514298);
}

TEST_CASE("FLOPs of BERT-large at 128 tokens agree with the published count", "[unit][plan]") {
  const FlopCounter flops(bert_large());
  // 240.5 GFLOP per sequence of 128 with 20 masked tokens, forward and backward: NVIDIA's phase 1 at 139.5 TFLOP/s and
  // 580 sequences/s.
  const double training = 3 * (flops.forward_of_sequence(128) + flops.forward_of_heads(20, 1));
  CHECK(training == Approx(139.5e12 / 580).epsilon(0.005));
  // The pooler and the two logits of a pair: two products with 1024 x 1024 and 1024 x 2 numbers.
  CHECK(flops.forward_of_heads(20, 3) - FlopCounter(bert_large(), false).forward_of_heads(20, 3) ==
        Approx(3 * 2 * (1024 * 1024 + 1024 * 2)));
}

TEST_CASE("A step on one GPU is compute and update alone", "[unit][plan]") {
  Cluster cluster;
  cluster.gpu = gpu("h200");
  const StepTime time = predict_step(
      {.micro_step_seconds = 0.05, .accumulation_steps = 4, .gradient_bytes = 1e9, .optimizer_bytes = 4.3e9}, cluster);
  CHECK(time.compute == Approx(0.2));
  CHECK(time.communication == 0);
  CHECK(time.exposed == 0);
  CHECK(time.optimizer == Approx(0.001));
  CHECK(time.total() == Approx(0.201));
}

TEST_CASE("Communication is what the note says, by hand", "[unit][plan]") {
  // 1 GB in 40 buckets of 25 MB on 2 nodes of 8: 2 * 7/8 / 478 + 2 * 1/2 / 350 s, and 40 times 47 us.
  Cluster cluster = {.nodes = 2, .gpus_per_node = 8, .gpu = gpu("h100"), .node_bandwidth = 350e9};
  StepWork work = {.micro_step_seconds = 1, .accumulation_steps = 1, .gradient_bytes = 1e9};
  const double communication = 1.75 / 478 + 1.0 / 350 + 40 * 47e-6;
  StepTime time = predict_step(work, cluster);
  CHECK(time.communication == Approx(communication));
  CHECK(time.exposed == Approx(communication * (1.0 / 40 + 0.08 * 39 / 40)));  // all but the last bucket is hidden
  work.micro_step_seconds = 3e-3;  // backward takes 2 ms, so it hides at most 2 ms
  CHECK(predict_step(work, cluster).exposed == Approx(communication - 2e-3 + 0.08 * 2e-3));
  CHECK(fit_micro_step_seconds(work, cluster, predict_step(work, cluster).total()) == Approx(3e-3));
  // Sharded: half of the communication with the gradients, of which 2 ms are hidden but for the last bucket, and 0.5 GB
  // of weights after the update.
  work.gathered_bytes = 0.5e9;
  const double reduced = 0.875 / 478 + 0.5 / 350 + 40 * 47e-6, gathered = 0.5 * (0.875 / 478 + 0.5 / 350);
  time = predict_step(work, cluster);
  CHECK(time.communication == Approx(reduced + gathered));
  CHECK(time.exposed == Approx(reduced - 2e-3 + 0.08 * 2e-3 + gathered));
}

TEST_CASE("A plan is of the objective that the configuration or the shards name", "[unit][plan]") {
  const Plan plan;
  constexpr int64_t kPositions = (512 - 128) * 768, kPairs = 110106428 - kPositions,
                    kMaskedAlone = 109514298 - kPositions;
  CHECK(plan.json({})["parameters"] == kPairs);
  CHECK(plan.json({"objective=mlm"})["parameters"] == kMaskedAlone);
  CHECK(plan.json({"objective=mlm"})["memory_bytes"] < plan.json({"objective=sop"})["memory_bytes"]);
  const std::string shard = plan.path("mlm.shard");
  bert::testing::write_counting_shard(shard, 5, 1, {{"objective", "mlm"}});
  CHECK(plan.json({"data.train=" + shard})["parameters"] == kMaskedAlone);
  CHECK(plan.json({"data.train=" + shard, "objective=nsp"})["parameters"] == kPairs);
}

TEST_CASE("What follows --length is not its", "[unit][plan]") {
  const Plan plan;
  CHECK(plan.json({"--length", "64", "precision=bf16"}) == plan.json({"precision=bf16", "--length", "64"}));
}

TEST_CASE("Half of the published multi-node rows predict the other half", "[unit][plan]") {
  constexpr int64_t kAll = 1 << 20, kFew = 4;
  const std::vector<double> errors = errors_on_held_out_rows(1, kAll, /*print=*/true);
  fmt::print("{} rows: median error {:.1f} %, largest {:.1f} %\n", errors.size(), 100 * median(errors),
             100 * *std::ranges::max_element(errors));
  CHECK(errors.size() == 56);
  CHECK(median(errors) <= 0.15);
  // In steps with few micro-batches communication counts: without it, or with a hundred times as much, predictions are
  // worse.
  const double few = median(errors_on_held_out_rows(1, kFew, false));
  CHECK(median(errors_on_held_out_rows(0, kFew, false)) > few);
  CHECK(median(errors_on_held_out_rows(100, kFew, false)) > 2 * few);
}

TEST_CASE("The largest micro-batch divides the batch, serves all ranks and fits", "[unit][plan]") {
  PretrainConfig config;
  config.global_batch_size = 96;
  const auto bytes_of = [&](int64_t size) {
    PretrainConfig sized = config;
    sized.micro_batch_size = size;
    return memory_of(sized, 100, 15, 1).total();
  };
  const auto largest = [&](int64_t ranks, double bytes) {
    return largest_micro_batch(config, parameter_sizes(config), {.tokens = 100, .masked = 15}, ranks, bytes);
  };
  CHECK(largest(1, 1e15) == 96);
  CHECK(largest(2, 1e15) == 48);
  CHECK(largest(5, 1e15) == 16);  // 19 for each, and 16 divides 96
  CHECK(largest(96, 1e15) == 1);
  CHECK(largest(1, bytes_of(24)) == 24);
  CHECK(largest(1, bytes_of(24) - 1) == 16);
  CHECK(largest(1, bytes_of(1)) == 1);
  CHECK(largest(1, bytes_of(1) - 1) == 0);
}

TEST_CASE("An evaluation beside graphs needs autocast's weights and its widest layer, or logits", "[unit][plan]") {
  PretrainConfig config;
  const std::vector<int64_t> sizes = {100, 28};
  CHECK(evaluation_bytes(config, sizes, {.tokens = 100, .masked = 15}, 32) == 32.0 * 4 * 100 * (4 * 768 + 2 * 3072));
  config.precision = Precision::kBf16;
  CHECK(evaluation_bytes(config, sizes, {.tokens = 100, .masked = 90}, 2) == 2 * 128 + 2.0 * 2 * 90 * 30522);
}

TEST_CASE("Memory follows the formulas, and precision the GPU", "[unit][plan]") {
  PretrainConfig config;
  config.micro_batch_size = 2;
  const double parameters = 110106428;
  constexpr double kKept = (8 * 768 + 2 * 3072) * 4 + (12 + 4) * 4;  // bytes of a token and layer
  MemoryPlan plan = memory_of(config, 100, 15, 4);
  CHECK(plan.weights == 4 * parameters);
  CHECK(plan.gradients == 4 * parameters);
  CHECK(plan.optimizer == 8 * parameters);
  constexpr double kDecoder = 30522 * 768 * 4;  // its gradient
  CHECK(plan.activations == 2.0 * (100 * (12 * kKept + 768 * 4) + 15 * (30522 * 4 + 5 * 768 * 4)) + kDecoder);
  CHECK(memory_of(config, 100, 0, 4).activations == 2.0 * 100 * (12 * kKept + 9 * 768 * 4 + 2 * 12 * 100 * 4));
  config.model.attention_probs_dropout_prob = 0;
  CHECK(memory_of(config, 100, 0, 4).activations == 2.0 * 100 * (12 * kKept + 2 * 768 * 4 + 3072 * 4));
  config.gradient_checkpointing = true;
  CHECK(memory_of(config, 100, 0, 4).activations ==
        2.0 * 100 * (12 * 768 * 4 + kKept + 768 * 4 + 2 * 768 * 4 + 3072 * 4));
  config.precision = Precision::kBf16;
  plan = memory_of(config, 100, 0, 4);
  constexpr double kLayer = 4 * 768 * 768 + 2 * 768 * 3072, kCasts = 2 * (30522 * 768 + kLayer);
  CHECK(plan.weights == 4 * parameters + kCasts);
  CHECK(plan.activations == 2.0 * 100 * (12 * 768 * 2 + 768 * 2 + 2 * 3072 * 2) + 2 * parameters - kCasts);
  config.gradient_checkpointing = false;
  CHECK(memory_of(config, 100, 0, 4).weights == 6 * parameters);
  const double in_bf16 = memory_of(config, 100, 0, 4).activations;
  config.precision = Precision::kFp8;  // 3 values of H more, one of I less; a byte of each weight
  CHECK(memory_of(config, 100, 0, 4).activations == in_bf16 + 2.0 * 100 * 12 * (3 * 768 - 3072));
  CHECK(memory_of(config, 100, 0, 4).weights == 6 * parameters - 12 * kLayer);
  config.first_last_layers_bf16 = true;
  CHECK(memory_of(config, 100, 0, 4).weights == 6 * parameters - 10 * kLayer);
  config.precision = Precision::kBf16Weights;
  config.optimizer.ema_decay = 0.999;
  plan = memory_of(config, 100, 15, 4);
  CHECK(plan.weights == 2 * parameters);
  CHECK(plan.optimizer == 16 * parameters);
  config.distributed.shard_optimizer_state = true;
  // Whole tensors are dealt in consecutive runs. Of 110.1 million elements the largest of four runs has 28.3 million.
  // From five ranks on the largest run is the word embeddings, 30522 x 768.
  CHECK(memory_of(config, 100, 15, 4).optimizer == Approx(16.0 * 28349184));
  for (const int64_t ranks : {8, 16}) CHECK(memory_of(config, 100, 15, ranks).optimizer == Approx(16.0 * 30522 * 768));
  CHECK(memory_of(config, 100, 15, 1).optimizer == 16 * parameters);
  CHECK_THROWS_WITH(memory_of(config, 100, 15, 207),
                    Contains("distributed.shard_optimizer_state: has 206 parameters to deal to 207 ranks"));
  CHECK(peak_flops(gpu("h200"), "fp8") == 1979e12);
  CHECK_THROWS_WITH(peak_flops(gpu("a100"), "fp8"), "precision fp8: a100 GPUs do not have it");
  CHECK(peak_flops(gpu("h200"), "bf16") == 989e12);
  CHECK(peak_flops(gpu("h200"), "fp32") == 67e12);
  CHECK_THROWS_WITH(peak_flops(gpu("v100"), "bf16"), "precision bf16: v100 GPUs do not have it");
}

TEST_CASE("A measured step is forward, backward and one update, however many micro-batches follow", "[unit][plan]") {
  const Plan plan;
  // 109,811,516 parameters: an update moves 44 bytes of each at 4.3 TB/s.
  const double lamb = 1e3 * 44 * 109811516 / 4.3e12, adam = lamb * 32 / 44;
  const std::string report = plan.measured(step_report());
  nlohmann::json planned = plan.json({"--measured", report});
  CHECK(planned["measured"] == true);
  CHECK(planned["gradient_accumulation_steps"] == 16);
  CHECK(planned["optimizer_ms"].get<double>() == Approx(lamb));
  CHECK(planned["compute_ms"].get<double>() == Approx(16 * (40 - lamb)));
  CHECK(planned["step_ms"].get<double>() == Approx(16 * 40 - 15 * lamb));
  // A step of one micro-batch takes the measured time.
  CHECK(plan.json({"global_batch_size=4", "--measured", report})["step_ms"].get<double>() == Approx(40));
  // Measurements with another optimizer and another batch.
  nlohmann::json other = step_report();
  other["optimizer"] = "adamw";
  const auto step_ms = [&] {
    return plan.json({"global_batch_size=4", "--measured", plan.measured(other)})["step_ms"].get<double>();
  };
  CHECK(step_ms() == Approx(40 - adam + lamb));
  other = step_report();
  other["batch"] = 8;
  CHECK(step_ms() == Approx((80 - lamb) / 2 + lamb));
}

TEST_CASE("A report of something else than is planned is refused, with what differs", "[unit][plan]") {
  const Plan plan;
  const auto refusal = [&](const nlohmann::json& report) {
    return plan.refusal({"--measured", plan.measured(report)}, kBadData);
  };
  nlohmann::json report = step_report();
  report["benchmark"] = "inference";
  CHECK_THAT(refusal(report), Contains("a report of `bert benchmark inference`"));
  report = step_report();
  report["precision"] = "bf16";
  report["tokens_per_second"] = 51200.0;
  report["model"]["num_hidden_layers"] = 24;
  CHECK_THAT(refusal(report), Contains("model.num_hidden_layers: measured 24, planned 12") &&
                                  Contains("precision: measured bf16, planned fp32") &&
                                  Contains("tokens of a sequence: measured 512, planned 128"));
  report = step_report();
  report["objective"] = "mlm";
  CHECK_THAT(refusal(report), Contains("objective: measured mlm, planned nsp"));
  CHECK(plan.run({"objective=mlm", "--measured", plan.measured(report)}).code == kOk);
  CHECK_THAT(plan.refusal({"objective=mlm", "--measured", plan.measured(step_report())}, kBadData),
             Contains("objective: measured nsp, planned mlm"));
  CHECK(plan.run({"objective=sop", "--measured", plan.measured(step_report())}).code == kOk);  // it has the same layers
  report["objective"] = "clm";
  CHECK_THAT(refusal(report), Contains("clm"));
  report = step_report();
  report["tokens_per_second"] = 12300.0;  // mean length of a few real sequences
  CHECK(plan.run({"--measured", plan.measured(report)}).code == kOk);
  report["sequences_per_second"] = 0;
  CHECK_THAT(refusal(report), Contains("sequences_per_second is 0, expected more than 0"));
  report = step_report();
  report["batch"] = 0;
  CHECK_THAT(refusal(report), Contains("batch is 0, expected at least 1"));
  report = step_report();
  report.erase("model");
  CHECK_THAT(refusal(report), Contains("model"));
  // 4 sequences in a microsecond.
  report = step_report();
  report["sequences_per_second"] = 4e6;
  report["tokens_per_second"] = 4e6 * 128;
  CHECK_THAT(refusal(report), Contains("a step of 0.001 ms is shorter than the update alone, 1.124 ms on --gpu h200"));
  CHECK_THAT(plan.refusal({"--measured", plan.path("absent")}, kInputMissing), Contains("absent: cannot be read"));
}

TEST_CASE("Two phases on two networks: days follow from steps, time from the network, memory from the formulas",
          "[unit][plan]") {
  const Plan plan;
  const std::string second = plan.path("second.json");
  std::ofstream(second) << R"({"extends": "c.json", "max_steps": 2000, "micro_batch_size": 2})";
  const auto phases = [&](const std::string& network) {
    const CommandResult result =
        plan.run({second, "--length", "64,128", "--gpus", "4", "--nodes", "4", "--network", network, "--json"});
    REQUIRE(result.code == kOk);
    std::vector<nlohmann::json> lines = testing::json_lines(std::istringstream(result.out));
    REQUIRE(lines.size() == 2);
    return lines;
  };
  const auto fast = phases("NDR"), slow = phases("100GbE");
  const double bytes = 4.0 * 109811516;  // bytes of the gradients, with 128 positions
  // Difference between four fast ports and one slow port.
  const double longer = 1e3 * 2 * 3 / 4 * bytes * (1 / port("100GbE").bandwidth - 1 / (4 * port("NDR").bandwidth));
  double days = 0;
  for (size_t i = 0; i < 2; ++i) {
    CAPTURE(i);
    const PretrainConfig config = load_pretrain_config(i == 0 ? plan.path("c.json") : second, {});
    const double step_ms = fast[i]["step_ms"];
    CHECK(fast[i]["steps"] == config.max_steps);
    CHECK(fast[i]["days"].get<double>() == Approx(static_cast<double>(config.max_steps) * step_ms / 86.4e6));
    CHECK(fast[i]["sequences_per_second"].get<double>() == Approx(64 * 1e3 / step_ms));
    const double tokens = i == 0 ? 64 : 128, masked = i == 0 ? 10 : 20;  // 15 %, rounded up
    CHECK(fast[i]["memory_bytes"] == memory_of(config, tokens, masked, 16).total());
    CHECK(slow[i]["communication_ms"].get<double>() - fast[i]["communication_ms"].get<double>() == Approx(longer));
    CHECK(slow[i]["step_ms"].get<double>() > step_ms);
    days += fast[i]["days"].get<double>();
  }
  const std::string text = plan.run({second, "--length", "64,128", "--gpus", "4", "--nodes", "4"}).out;
  CHECK_THAT(text, Contains(fmt::format("together         {:.2f} days ({:.1f} hours)", days, 24 * days)));
  CHECK_THAT(text, !Contains("DOES NOT FIT"));
  CHECK(plan.json({"micro_batch_size=auto"})["micro_batch_size"] == 64);  // the whole batch
  CHECK(plan.json({"micro_batch_size=auto", "--gpus", "2"})["micro_batch_size"] == 32);
  const nlohmann::json full = plan.json({"micro_batch_size=auto", "global_batch_size=65536", "--gpu", "a100-40gb"});
  CHECK(full["memory_bytes"].get<double>() <= 0.955 * 40e9 - 0.35e9);
  CHECK(full["memory_bytes"].get<double>() > 0.46 * 40e9 - 4e9);  // the next divisor is twice as large
  CHECK_THAT(plan.run({"micro_batch_size=8192", "global_batch_size=8192", "--gpu", "a100-40gb"}).out,
             Contains("DOES NOT FIT: lower micro_batch_size"));
}

TEST_CASE("bert plan refuses what it cannot plan, and says what is allowed", "[unit][plan]") {
  const Plan plan;
  CHECK_THAT(
      plan.refusal({"--gpus", "17"}, kBadConfiguration),
      Contains("global_batch_size 64: has 16 micro-batches of micro_batch_size 4 for 17 ranks; expected at least "
               "one for each: set micro_batch_size=2"));
  CHECK_THAT(plan.refusal({"--gpus", "2", "micro_batch_size=64"}, kBadConfiguration),
             Contains("has 1 micro-batch of micro_batch_size 64 for 2 ranks; expected at least one for each: set "
                      "micro_batch_size=32"));
  CHECK_THAT(plan.refusal({"--gpus", "65"}, kBadConfiguration),
             Contains("use at most 64 ranks, or a larger global_batch_size"));
  CHECK_THAT(plan.refusal({"--gpu", "abacus"}, kUsage),
             Contains("--gpu abacus: expected one of h200, h100, a100, a100-40gb, v100"));
  CHECK_THAT(plan.refusal({"--network", "string"}, kUsage), Contains("--network string: expected one of NDR, HDR"));
  CHECK_THAT(plan.refusal({"--length", "129"}, kUsage), Contains("--length 129: model.max_position_embeddings is 128"));
  CHECK_THAT(plan.refusal({"--length", "64,128"}, kUsage), Contains("more values for an option than CONFIGs"));
  CHECK_THAT(run_command(plan_command, {"plan", "a.b=1"}).err, Contains("no CONFIG was given"));
}
