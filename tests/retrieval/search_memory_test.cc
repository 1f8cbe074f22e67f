// The memory of an exact search of a million vectors.
#include <torch/types.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "app/retrieval/vector_search.h"
#include "tests/testing.h"

namespace bert {
namespace {

/// The largest memory of this process so far, kilobytes.
int64_t peak_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  return -1;
}

TEST_CASE("A million vectors of 384 numbers are searched in 3 GB", "[slow][retrieval]") {
  constexpr int64_t kVectors = 1000000, kPiece = 16384, kSize = 384, kQueries = 500, kMost = 100, kLimit = 3000000;
  const torch::Tensor queries = torch::randn({kQueries, kSize});
  torch::Tensor piece = torch::randn({kPiece, kSize});
  VectorSearch search(Similarity::kCosine, queries, kMost);
  for (int64_t done = 0; done < kVectors; done += kPiece) {
    piece = piece.roll({1, 1}, {0, 1});
    search.add(piece.narrow(0, 0, std::min(kPiece, kVectors - done)));
  }
  const auto nearest = search.nearest();
  REQUIRE(nearest.size() == kQueries);
  for (const auto& list : nearest) {
    REQUIRE(list.size() == kMost);
    for (size_t i = 1; i < list.size(); ++i) REQUIRE(list[i].score <= list[i - 1].score);
  }
  const int64_t peak = peak_kilobytes();
  CAPTURE(peak);
  CHECK(peak < kLimit);
}

}  // namespace
}  // namespace bert
