// Philox and the masks of dropout.
#include <ATen/ATen.h>

#include <cmath>

#include "cuda_ext/ops.h"
#include "cuda_ext/scalar/philox.h"
#include "tests/testing.h"

namespace bert {
namespace {

TEST_CASE("Philox4x32-10 gives Random123's known answers", "[unit]") {
  // Random123 1.14, tests/kat_vectors: counter, key -> result.
  const Philox4 zeros = philox4x32_10(0, 0, 0, 0, 0, 0);
  CHECK(zeros.word[0] == 0x6627e8d5u);
  CHECK(zeros.word[1] == 0xe169c58du);
  CHECK(zeros.word[2] == 0xbc57ac4cu);
  CHECK(zeros.word[3] == 0x9b00dbd8u);
  const Philox4 ones = philox4x32_10(0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff);
  CHECK(ones.word[0] == 0x408f276du);
  CHECK(ones.word[1] == 0x41c83b0eu);
  CHECK(ones.word[2] == 0xa20bc7c6u);
  CHECK(ones.word[3] == 0x6d5451fdu);
  const Philox4 pi = philox4x32_10(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344);
  CHECK(pi.word[0] == 0xd16cfe09u);
  CHECK(pi.word[1] == 0x94fdccebu);
  CHECK(pi.word[2] == 0x5001e420u);
  CHECK(pi.word[3] == 0x24126ea1u);
}

TEST_CASE("A dropout mask is the scalar rule, whatever the packing", "[unit]") {
  const int64_t seed = 0x123456789abcdef, columns = 70, site = dropout_site(3, kOutputSite);
  const at::Tensor keys = at::arange(5, at::kLong) + (int64_t{77} << 16);
  const at::Tensor y = ops::dropout(at::ones({5, columns}), {.p = 0.3, .seed = seed, .site = site, .keys = keys});
  const uint32_t threshold = dropout_threshold(0.3);
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t c = 0; c < columns; ++c) {
      const Philox4 words = dropout_words(static_cast<uint64_t>(seed), static_cast<uint64_t>(keys[t].item<int64_t>()),
                                          static_cast<uint32_t>(site), static_cast<uint32_t>(c / 4));
      const bool kept = words.word[c % 4] >= threshold;
      REQUIRE(y[t][c].item<float>() == (kept ? static_cast<float>(1.0 / 0.7) : 0.0F));
    }
  }
  const at::Tensor one =
      ops::dropout(at::ones({1, columns}), {.p = 0.3, .seed = seed, .site = site, .keys = keys.narrow(0, 4, 1)});
  CHECK(at::equal(one[0], y[4]));
}

TEST_CASE("Dropout keeps a share of 1 - p and scales it to an unchanged mean", "[unit]") {
  const at::Tensor keys = at::arange(1000, at::kLong);
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    const at::Tensor y = ops::dropout(at::ones({1000, 256}), {.p = p, .seed = 1, .site = 2, .keys = keys});
    const double kept = y.ne(0).to(at::kDouble).mean().item<double>();
    CHECK(std::abs(kept - (1 - p)) <= 4 * std::sqrt(p * (1 - p) / 256000));  // four standard deviations
    const double by_column = y.ne(0).to(at::kDouble).mean(0).sub(1 - p).abs().max().item<double>();
    CHECK(by_column <= 5.5 * std::sqrt(p * (1 - p) / 1000));  // of 256 columns
  }
}

}  // namespace
}  // namespace bert
