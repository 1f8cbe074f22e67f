// Event files beside those that TensorBoard's own code writes.
#include "app/report/event_file.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/io/files.h"
#include "tests/support/hex.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::from_hex;
using bert::testing::TemporaryDirectory;

namespace {

constexpr double kEventTime = 1700000000.125;

nlohmann::json golden() { return nlohmann::json::parse(read_file(testing::golden("event_file.json"))); }

std::string bytes_of(const nlohmann::json& file, const char* name) {
  return from_hex(file.at(name).get<std::string>());
}

}  // namespace

TEST_CASE("An event file has the bytes that TensorBoard's own writer gives it", "[golden][report]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("events");
  {
    EventFile file(path, kEventTime, std::nullopt);
    SummaryValues begin, scalars, histograms, end;
    CHECK(begin.empty());
    begin.add_text("args/text_summary", "# α\n");
    begin.add_session_start({{"fused", true}, {"lr", 0.006}, {"type", "lamb"}}, "runs/first", kEventTime);
    file.write(kEventTime, 0, begin);
    scalars.add_scalar("train/loss", 7.25);
    scalars.add_scalar("train/learning_rate", 1e-4);
    file.write(kEventTime + 1, 2, scalars);
    histograms.add_histogram("weights/a", histogram_of(std::vector<float>{0, 0.5F, 30}));
    file.write(kEventTime + 2, 2, histograms);
    end.add_scalar("train/train_runtime", 0);
    end.add_session_end(/*success=*/true, kEventTime + 60);
    file.write(kEventTime + 60, 300, end);
  }
  CHECK(read_file(path) == bytes_of(golden(), "begun"));
}

TEST_CASE("The event file of a run that goes on tells TensorBoard to drop the steps of the earlier process",
          "[golden][report]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("events");
  SummaryValues values;
  values.add_scalar("eval/loss", -1.5);
  EventFile(path, kEventTime, 9).write(kEventTime + 1, 10, values);
  const std::string right = bytes_of(golden(), "continued");
  CHECK(read_file(path) == right);

  const std::string other = directory.path("other");
  EventFile(other, kEventTime, 10).write(kEventTime + 1, 10, values);
  CHECK(read_file(other) != right);
}

TEST_CASE("A histogram counts finite values, and others apart", "[unit][report]") {
  const float inf = std::numeric_limits<float>::infinity();
  const TensorHistogram some = histogram_of(std::vector<float>{-1, inf, 2, std::nanf(""), 2}, 0.5);
  CHECK(some.count == 3);
  CHECK(some.not_finite == 2);
  CHECK(some.least == -0.5);
  CHECK(some.most == 1);
  CHECK(some.sum == 1.5);
  CHECK(some.sum_of_squares == 2.25);
  REQUIRE(some.counts.size() == kHistogramRanges);
  CHECK(some.counts.front() == 1);
  CHECK(some.counts.back() == 2);
  CHECK(some.bound(0) == -0.45);
  CHECK(some.bound(kHistogramRanges - 1) == 1);

  const TensorHistogram equal = histogram_of(std::vector<float>{3, 3});
  CHECK(equal.counts == std::vector<int64_t>{2});
  CHECK(equal.bound(0) == 3);
  CHECK(histogram_of({}).counts.empty());
}

TEST_CASE("An event file's name is that of torch's writer", "[unit][report]") {
  CHECK(event_file_name(1700000000.9, "host", 4711) == "events.out.tfevents.1700000000.host.4711.0");
}
