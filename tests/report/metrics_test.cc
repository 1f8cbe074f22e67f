#include "app/report/metrics.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/testing.h"

using namespace bert;

TEST_CASE("metrics.jsonl loses the lines after the checkpoint that a run resumes from", "[unit]") {
  const bert::testing::TemporaryDirectory directory;
  const std::string path = directory.path("metrics.jsonl");
  {
    MetricsFile file(path, 0);
    for (int64_t step = 1; step <= 3; ++step) file.write({{"step", step}});
  }
  {
    AtomicFile torn(path);
    torn.write("{\"step\":1}\n{\"step\":\"x\"}\n{\"step\":2}\n{\"step\":3}\n{\"st");  // an incomplete last line
    torn.commit();
  }
  {
    MetricsFile file(path, 2);
    file.write({{"step", 3}, {"loss", 0.5}});
  }
  CHECK(read_file(path) == "{\"step\":1}\n{\"step\":2}\n{\"step\":3,\"loss\":0.5}\n");
}

TEST_CASE("A line of progress fits the terminal, and always has the step and the time left", "[unit]") {
  const StepMetrics metrics{.step = 1234,
                            .max_steps = 8000,
                            .skipped = 3,
                            .loss = 7.1234,
                            .learning_rate = 1e-3,
                            .grad_norm = 1.5,
                            .loss_scale = 1,
                            .terms = {{"mlm", 6.5}, {"nsp", 0.6234}},
                            .sequences_per_second = 123.4,
                            .tokens_per_second = 7890,
                            .mfu = 0.123};
  const auto columns_of = [](const std::string& line) {  // the number of code points; each takes one column here
    return std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  };
  const std::string wide = progress_line(metrics, 0.5, 90, 200);
  CHECK(wide ==
        "████████████░░░░░░░░░░░░ step 1234/8000  loss 7.1234 (mlm 6.5000 nsp 0.6234)  lr 0.001  |g| 1.500  "
        "123.4 seq/s  7890 tok/s  mfu 12.3%  skipped 3  eta 01:30");
  StepMetrics without_pairs = metrics;
  without_pairs.terms = {{"mlm", 6.5}};
  CHECK_THAT(progress_line(without_pairs, 0.5, 90, 200), testing::Contains("  loss 7.1234  lr 0.001  "));
  const std::string usual = progress_line(metrics, 0.5, 90, 79);
  CHECK(usual == "███░░░ step 1234/8000  loss 7.1234  lr 0.001  123.4 seq/s  skipped 3  eta 01:30");
  for (int columns = 0; columns <= 160; ++columns) {
    const std::string line = progress_line(metrics, 0.3, 5000, columns);
    CAPTURE(columns, line);
    CHECK(columns_of(line) <= columns);
    if (columns >= 40) CHECK_THAT(line, testing::Contains("step 1234/8000") && testing::Contains("eta 1:23:20"));
  }
}

TEST_CASE("A sign of life has the step, the work of the moment, the rate and the time left", "[unit]") {
  CHECK(life_line(100, 100, 400, 12, "evaluation") == "step 100/400  evaluation");
  CHECK(life_line(300, 100, 400, 50, "forward") == "step 300/400  forward  4 steps/s  eta 00:25");
  CHECK(life_line(102, 100, 400, 50, "update") == "step 102/400  update  25 s a step  eta 2:04:10");
}

TEST_CASE("Progress breaks a silence, and stays quiet while there is news", "[unit]") {
  using namespace std::chrono_literals;
  std::mutex mutex;
  std::vector<std::string> lines;
  const auto record = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return lines.size();
  };
  {
    Progress progress([] { return std::string("forward"); }, record, 20ms);
    while (count() < 1) std::this_thread::sleep_for(1ms);
    progress.start(10, 50);
    progress.reached(30);
    const size_t before = count();
    while (count() < before + 2) std::this_thread::sleep_for(1ms);
  }
  CHECK(lines.front() == "forward");
  CHECK_THAT(lines.back(), testing::Contains("step 30/50  forward  "));
  lines.clear();
  {
    Progress progress([] { return std::string("forward"); }, record, 1h);
    progress.start(0, 50);
    progress.reached(30);
    progress.message("a message");
  }
  CHECK(lines == std::vector<std::string>{"a message"});
}

namespace {

void set_columns(unsigned short columns) {
  const winsize window{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(ioctl(STDERR_FILENO, TIOCSWINSZ, &window) == 0);
}

}  // namespace

TEST_CASE("A bar that a terminal wraps, because it is narrower now, leaves nothing behind", "[unit]") {
  unsetenv("CI");  // in which there is no bar
  const StepMetrics metrics{.step = 10, .max_steps = 50, .loss = 7.1, .terms = {{"mlm", 6.5}, {"nsp", 0.6}}};
  constexpr int kWide = 120, kNarrow = 35;
  const std::string seen = testing::on_terminal([&] {
    set_columns(kWide);
    Progress progress([] { return std::string("forward"); }, [](const std::string&) {}, std::chrono::hours(1));
    progress.start(0, 50);
    progress.update(metrics);
    set_columns(kNarrow);
    progress.update(metrics);
    progress.finish();
  });
  // The first bar fills rows of the narrow terminal; the cursor goes up to the first of them, and all below is erased.
  const size_t erased = seen.find("\033[");
  REQUIRE(erased != std::string::npos);
  const auto columns_of = [](std::string_view line) {
    return std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  };
  const int64_t columns = columns_of(std::string_view(seen).substr(0, erased));
  REQUIRE(columns > 2 * kNarrow);
  const std::string erasure = "\033[" + std::to_string((columns - 1) / kNarrow) + "A\r\033[J";
  CHECK(seen.substr(erased, erasure.size()) == erasure);
  const std::string rest = seen.substr(erased + erasure.size());
  CHECK(rest.find('\033') == std::string::npos);
  CHECK(rest.ends_with("\r\n"));
  CHECK(columns_of(rest) - 2 < kNarrow);
  CHECK_THAT(rest, testing::Contains("step 10/50"));
}

TEST_CASE("A duration has hours from one hour on", "[unit]") {
  CHECK(format_duration(59.6) == "01:00");
  CHECK(format_duration(3723) == "1:02:03");
}
