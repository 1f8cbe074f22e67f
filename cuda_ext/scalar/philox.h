// Philox4x32-10 and the dropout rule, for host and device.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; Random123's known-answer vectors are
// in the tests.
#pragma once

#include <cstdint>

#include "cuda_ext/scalar/math.h"

namespace bert {

// Note [Dropout keys]
// A mask bit is a pure function of (seed, number of the sequence since the run began, position in the sequence, site in
// the model, column). It does not depend on where the element is computed. So a mask is the same on CPU and CUDA,
// packed or padded, on any number of ranks, with any micro-batch size and after any resume. Backward can compute it again instead
// of keeping it (Note [Kept masks] tells when it is kept). The loader writes one 64-bit key per token, sequence << 16 |
// position; dropout_site() numbers the sites. Counter: {key low, key high, site, column / 4}, Philox key: {seed low,
// seed high}; column % 4 selects the word of the result.

struct Philox4 {
  uint32_t word[4];
};

BERT_HOST_DEVICE Philox4 philox4x32_10(uint32_t key0, uint32_t key1, uint32_t c0, uint32_t c1, uint32_t c2,
                                       uint32_t c3) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    uint32_t low0 = 0, high0 = 0, low1 = 0, high1 = 0;
    wide_product(kMultiplier0, c0, low0, high0);
    wide_product(kMultiplier1, c2, low1, high1);
    c0 = high1 ^ c1 ^ key0;
    c2 = high0 ^ c3 ^ key1;
    c1 = low1;
    c3 = low0;
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

/// The four random words of columns 4 * block .. 4 * block + 3 of one token at one site.
BERT_HOST_DEVICE Philox4 dropout_words(uint64_t seed, uint64_t token_key, uint32_t site, uint32_t block) {
  return philox4x32_10(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(token_key),
                       static_cast<uint32_t>(token_key >> 32), site, block);
}

/// An element is kept when its word is at least this. p in [0, 1).
BERT_HOST_DEVICE uint32_t dropout_threshold(double p) { return static_cast<uint32_t>(p * 4294967296.0); }

/// Numbers of the sites. 0 is the embedding's. Each layer has 1024: the first two are its two dense outputs, and those
/// from kAttentionSite on are its heads' attention probabilities (column = position of the key token).
inline constexpr uint32_t kEmbeddingSite = 0, kSitesPerLayer = 1024, kAttentionOutputSite = 0, kOutputSite = 1,
                          kAttentionSite = 16,
                          kHeadSite = 1,  // dropout before a classifier
    kGeneratorSite = 2;                   // the state of LibTorch's generator for a micro-batch
inline constexpr uint32_t dropout_site(uint32_t layer, uint32_t site) { return (layer + 1) * kSitesPerLayer + site; }

}  // namespace bert
