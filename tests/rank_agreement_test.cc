// Ranks of one run that were not started alike.
#include <filesystem>
#include <fstream>

#include "app/config.h"
#include "tests/tiny_pretraining.h"
// Last: it brings Catch2.
#include "tests/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

struct Run {
  Run() {
    PretrainConfig config = tiny(directory, "run");
    config.max_steps = 2;
    std::ofstream(directory.path("run.json")) << to_json(config);
  }
  /// Starts two ranks, of which the second has `overrides` of its own; the exit code.
  int start(const std::string& overrides) {
    const std::string script = "[ $RANK = 0 ] || more='" + overrides + "'; exec " BERT_EXECUTABLE " pretrain " +
                               directory.path("run.json") + " $more";
    Launcher launcher(
        {"--standalone", "--nproc-per-node", "2", "sh", "-c", script}, [] {}, BERTRUN_EXECUTABLE);
    const int code = launcher.wait();
    error = launcher.err();
    return code;
  }
  TemporaryDirectory directory;
  std::string error;
};

}  // namespace

TEST_CASE("Ranks with another configuration are refused, with keys and values", "[distributed]") {
  Run run;
  CHECK(run.start("seed=7 micro_batch_size=2 model.hidden_size=64 distributed.bucket_mb=3 num_threads=1") ==
        kBadConfiguration);
  CHECK_THAT(run.error, Contains("ranks do not have the same configuration:"));
  CHECK_THAT(run.error, Contains("rank 1 and rank 0:"));
  CHECK_THAT(run.error, Contains("/seed: 7, on rank 0 42"));
  CHECK_THAT(run.error, Contains("/micro_batch_size: 2, on rank 0 4"));
  CHECK_THAT(run.error, Contains("/model/hidden_size: 64, on rank 0 32"));
  CHECK_THAT(run.error, Contains("/distributed/bucket_mb: 3, on rank 0 25"));
  CHECK_THAT(run.error, !Contains("/num_threads"));
  CHECK_FALSE(std::filesystem::exists(run.directory.path("run/checkpoints/step-00000002")));
}

TEST_CASE("Ranks with other data are refused; copies under another name are the same", "[distributed]") {
  Run run;
  write_counting_shard(run.directory.path("other.shard"), 300, 3);
  CHECK(run.start("data.train=" + run.directory.path("other.shard")) == kBadConfiguration);
  CHECK_THAT(run.error, Contains("ranks do not have the same data:"));
  CHECK_THAT(run.error, Contains("data.train: 300 examples, checksum "));
  std::filesystem::copy_file(run.directory.path("train.shard"), run.directory.path("copy.shard"));
  CHECK(run.start("num_threads=1 data.train=" + run.directory.path("copy.shard")) == kOk);
}
