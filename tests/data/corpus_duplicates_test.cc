// MinHash against Jaccard similarities counted by hand.
#include <cmath>
#include <set>

#include "data/corpus/near_duplicates.h"
#include "data/corpus/words.h"
#include "tests/testing.h"

namespace bert {
namespace {

constexpr int kWords = 104;  // 100 shingles of five words

/// Words that no other `document` has. Every twentieth of the first `changed` times twenty is replaced.
std::string text_of(int document, int changed) {
  std::string text;
  for (int i = 0; i < kWords; ++i) {
    const bool replaced = i % 20 == 10 && i / 20 < changed;
    text += (replaced ? "other" : "word") + std::to_string(document) + "x" + std::to_string(i) + " ";
  }
  return text;
}

TEST_CASE("MinHash estimates the Jaccard similarity of word 5-grams", "[unit][corpus]") {
  // A replaced word is in five of the 100 shingles. With n of them 100 - 5n are common, of 100 + 5n in all.
  for (int changed = 0; changed <= 5; ++changed) {
    const double exact = (100.0 - 5 * changed) / (100.0 + 5 * changed);
    constexpr int kPairs = 200;
    double sum = 0, worst = 0;
    for (int document = 0; document < kPairs; ++document) {
      const double estimate =
          estimated_similarity(min_hash(text_of(document, 0)), min_hash(text_of(document, changed)));
      sum += estimate;
      worst = std::max(worst, std::abs(estimate - exact));
    }
    INFO(changed << " words changed, similarity " << exact);
    // Li and Koenig: four bits of different minima are equal with probability 1/16.
    const double equal = exact + (1 - exact) / 16;
    const double deviation = std::sqrt(equal * (1 - equal) / kMinHashes) / (15.0 / 16);
    CHECK(std::abs(sum / kPairs - exact) < 0.005 + 4 * deviation / std::sqrt(kPairs));
    CHECK(worst <= 0.005 + 4.5 * deviation);
  }
  CHECK(estimated_similarity(min_hash(text_of(1, 0)), min_hash(text_of(2, 0))) < 0.1);
}

TEST_CASE("Near-duplicates are found, and different documents are not", "[unit][corpus]") {
  NearDuplicates seen;
  constexpr int kDocuments = 3000;
  for (int document = 0; document < kDocuments; ++document) REQUIRE(seen.insert(min_hash(text_of(document, 0))));
  int near = 0, far = 0;
  for (int document = 0; document < kDocuments; ++document) {
    near += !seen.insert(min_hash(text_of(document, 1)));  // similarity 0.905: 3.8 standard deviations above 0.8
    far += !seen.insert(min_hash(text_of(document, 5)));   // 0.6
  }
  CHECK(near > 0.99 * kDocuments);
  CHECK(far == 0);
}

TEST_CASE("Ten million documents fit into the memory that is allowed for duplicates", "[unit][corpus]") {
  constexpr int64_t kBuilt = 40'000, kWanted = 10'000'000, kAllowed = 2'000'000'000;
  NearDuplicates seen;
  HashSet hashes;
  uint64_t state = 1;
  int64_t slots = 0, most = 0;
  for (int64_t documents = 0; documents < kWanted; ++documents) {
    // Note [Memory for duplicates]: tables grow by a quarter at a load of 75 %. Signatures are allocated by 4096.
    const bool grows = 4 * (documents + 1) > 3 * slots;
    const int64_t next = !grows ? slots : slots == 0 ? 1024 : slots + slots / 4;
    const int64_t while_growing = grows ? slots + next : next;
    const int64_t bytes = (documents / 4096 + 1) * 4096 * 64 + 15 * 4 * next + 4 * while_growing + 8 * while_growing;
    most = std::max(most, bytes);
    slots = next;
    if (documents >= kBuilt) continue;
    REQUIRE(seen.bytes_to_insert() + hashes.bytes_to_insert() == bytes);
    MinHash signature;  // of random bits, which agree in a band as those of different documents do
    for (uint8_t& byte : signature) {
      state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX generator
      byte = static_cast<uint8_t>(state >> 33);
    }
    REQUIRE(seen.insert(signature));
    REQUIRE(hashes.insert(state * 0x9E3779B97F4A7C15U));
  }
  CHECK(most < kAllowed);
}

TEST_CASE("Case, accents, punctuation and white space do not matter to near-duplicates", "[unit][corpus]") {
  const MinHash plain = min_hash("the cafe was closed when we came back from the river");
  CHECK(min_hash("The caf\u00e9 -- was CLOSED;\nwhen we came\tback, from \"the river\".") == plain);
  CHECK(min_hash("the cafe was closed when we came back from a river") != plain);
  CHECK(min_hash("three short words") == min_hash("Three short words!"));
  CHECK(min_hash("three short words") != min_hash("words short three"));
  CHECK(min_hash("") == min_hash("?!"));
  CHECK(count_words("It's caf\u00e9, \u4e2d\u6587 2.5!") == 7);
}

TEST_CASE("Boilerplate in a band takes bounded time", "[unit][corpus]") {
  // All agree in many bands, and most pairs in less than 0.8.
  NearDuplicates seen;
  const MinHash common = min_hash("boilerplate");
  int kept = 0;
  for (int document = 0; document < 6000; ++document) {
    MinHash signature = min_hash(text_of(document, 0));
    std::copy(common.begin(), common.begin() + common.size() / 2, signature.begin());
    kept += seen.insert(signature);
  }
  CHECK(kept == 6000);
}

TEST_CASE("A set of hashes holds what was put into it", "[unit][corpus]") {
  HashSet set;
  CHECK_FALSE(set.contains(0));
  CHECK(set.insert(0));
  CHECK(set.contains(0));
  CHECK_FALSE(set.insert(0));
  for (uint64_t i = 2; i < 5000; ++i) REQUIRE(set.insert(i));  // all in the same slots
  for (uint64_t i = 2; i < 5000; ++i) REQUIRE_FALSE(set.insert(i));
  for (uint64_t i = 2; i < 5000; ++i) REQUIRE(set.insert(~i));  // at the end of the slots, and around it
  for (uint64_t i = 2; i < 5000; ++i) REQUIRE(set.contains(~i));
  CHECK_FALSE(set.contains(5000));
}

}  // namespace
}  // namespace bert
