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
    const double deviation = std::sqrt(exact * (1 - exact) / kMinHashes);
    CHECK(std::abs(sum / kPairs - exact) < 0.005 + 4 * deviation / std::sqrt(kPairs));
    CHECK(worst <= 0.005 + 4.5 * deviation);
  }
  CHECK(estimated_similarity(min_hash(text_of(1, 0)), min_hash(text_of(2, 0))) < 0.05);
}

TEST_CASE("Near-duplicates are found, and different documents are not", "[unit][corpus]") {
  NearDuplicates seen;
  constexpr int kDocuments = 3000;
  for (int document = 0; document < kDocuments; ++document) REQUIRE(seen.insert(min_hash(text_of(document, 0))));
  int near = 0, far = 0;
  for (int document = 0; document < kDocuments; ++document) {
    near += !seen.insert(min_hash(text_of(document, 1)));  // similarity 0.905: 3 standard deviations above 0.8
    far += !seen.insert(min_hash(text_of(document, 5)));   // 0.6
  }
  CHECK(near > 0.99 * kDocuments);
  CHECK(far == 0);
  // The bounds of the header: 128 bytes, and 16 slots of 4 bytes at a load of 35 to 70 %.
  const double each = static_cast<double>(seen.bytes()) / (kDocuments + kDocuments - near + kDocuments - far);
  CHECK(each >= 128 + 64 / 0.71);
  CHECK(each <= 128 + 64 / 0.34);
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
    std::copy(common.begin(), common.begin() + kMinHashes / 2, signature.begin());
    kept += seen.insert(signature);
  }
  CHECK(kept == 6000);
}

TEST_CASE("A set of hashes holds what was put into it", "[unit][corpus]") {
  HashSet set;
  CHECK(set.insert(0, 0));
  CHECK_FALSE(set.insert(0, 0));
  for (uint64_t i = 1; i < 5000; ++i) REQUIRE(set.insert(i << 10, i));  // all in the same slots
  for (uint64_t i = 1; i < 5000; ++i) REQUIRE_FALSE(set.insert(i << 10, i));
  CHECK(set.insert(0, 1));
  CHECK(set.bytes() <= static_cast<int64_t>(5001 * 16 / 0.34));
}

}  // namespace
}  // namespace bert
