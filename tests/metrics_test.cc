#include "app/metrics.h"

#include "data/files.h"
#include "tests/testing.h"

using namespace bert;

TEST_CASE("metrics.jsonl forgets what came after the checkpoint that a run goes on from", "[unit]") {
  const bert::testing::TemporaryDirectory directory;
  const std::string path = directory.path("metrics.jsonl");
  {
    MetricsFile file(path, 0);
    for (int64_t step = 1; step <= 3; ++step) file.write({{"step", step}});
  }
  {
    AtomicFile torn(path);
    torn.write("{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st");  // killed while it wrote
    torn.commit();
  }
  {
    MetricsFile file(path, 2);
    file.write({{"step", 3}, {"loss", 0.5}});
  }
  CHECK(read_file(path) == "{\"step\":1}\n{\"step\":2}\n{\"step\":3,\"loss\":0.5}\n");
}

TEST_CASE("FLOPs of BERT-large at 128 tokens agree with the published count", "[unit]") {
  BertConfig large;
  large.hidden_size = 1024;
  large.num_hidden_layers = 24;
  large.num_attention_heads = 16;
  large.intermediate_size = 4096;
  const FlopCounter flops(large);
  // 240.5 GFLOP per sequence of 128 with 20 masked tokens, forward and backward: NVIDIA's phase 1 at 139.5 TFLOP/s and
  // 580 sequences/s.
  const double training = 3 * (flops.forward_of_sequence(128) + flops.forward_of_heads(20, 1));
  CHECK(training == testing::Approx(139.5e12 / 580).epsilon(0.005));
}

TEST_CASE("durations", "[unit]") {
  CHECK(format_duration(59.6) == "01:00");
  CHECK(format_duration(3723) == "1:02:03");
}
