#include "data/random/py_random.h"

#include <numeric>
#include <vector>

#include "data/random/permutation.h"
#include "tests/testing.h"

namespace bert {
namespace {

// One row per seed, printed by CPython 3.11.7: three random(), four randint(0, 30521), randint(-3, 3), randint(7, 7),
// randint(0, 2**40), getrandbits of 1, 32, 33 and 64, shuffle(range(10)), then 700 draws (past the state's 624 words),
// the start of shuffle(range(1000)) and one random().
struct Drawn {
  uint64_t seed;
  std::vector<double> random;
  std::vector<int64_t> randint;
  std::vector<uint64_t> bits;
  std::vector<int> shuffled;
  std::vector<int> shuffled_later;
  double random_later;
};

const std::vector<Drawn> kDrawn = {
    {0,
     {0.8444218515250481, 0.7579544029403025, 0.420571580830845},
     {8484, 16753, 15922, 13268, 3, 7, 1052128689543},
     {0, 2505606783, 8124620664, 9309829342914403545u},
     {1, 5, 3, 7, 8, 0, 6, 9, 4, 2},
     {799, 611, 164, 989, 346},
     0.9196592523769888},
    {12345,
     {0.41661987254534116, 0.010169169457068361, 0.8252065092537432},
     {9785, 28021, 12072, 6345, -1, 7, 821033197451},
     {0, 3754550193, 1859447115, 11570069662165393444u},
     {1, 4, 6, 3, 0, 5, 7, 9, 8, 2},
     {650, 200, 545, 313, 775},
     0.9790744775516416},
    {4294967297,
     {0.2309331037176915, 0.5124118614342635, 0.4145826832477072},
     {3003, 8792, 19831, 8151, 2, 7, 851454498928},
     {0, 3499668040, 3431772412, 8883271129160668477u},
     {1, 2, 7, 8, 6, 5, 3, 9, 0, 4},
     {785, 883, 701, 777, 335},
     0.23578573452249973},
    {18446744073709551615u,
     {0.021825695401270107, 0.3380953268613758, 0.21196748656082065},
     {20156, 3113, 30132, 29517, -1, 7, 424072724304},
     {1, 2286593340, 6312341588, 17519960284706968810u},
     {3, 8, 9, 0, 4, 6, 2, 7, 5, 1},
     {758, 393, 546, 205, 979},
     0.30667485745928824},
};

TEST_CASE("PyRandom draws what CPython draws", "[unit][pretraining]") {
  for (const Drawn& want : kDrawn) {
    CAPTURE(want.seed);
    PyRandom random(want.seed);
    for (const double value : want.random) CHECK(random.random() == value);
    const std::vector<std::pair<int64_t, int64_t>> ranges = {{0, 30521}, {0, 30521}, {0, 30521},           {0, 30521},
                                                             {-3, 3},    {7, 7},     {0, int64_t{1} << 40}};
    for (size_t i = 0; i < ranges.size(); ++i)
      CHECK(random.randint(ranges[i].first, ranges[i].second) == want.randint[i]);
    const std::vector<int> widths = {1, 32, 33, 64};
    for (size_t i = 0; i < widths.size(); ++i) CHECK(random.getrandbits(widths[i]) == want.bits[i]);
    std::vector<int> few(10), many(1000);
    std::iota(few.begin(), few.end(), 0);
    std::iota(many.begin(), many.end(), 0);
    random.shuffle(few);
    CHECK(few == want.shuffled);
    for (int i = 0; i < 700; ++i) random.random();
    random.shuffle(many);
    CHECK(std::vector<int>(many.begin(), many.begin() + 5) == want.shuffled_later);
    CHECK(random.random() == want.random_later);
  }
}

TEST_CASE("PyRandom refuses an empty range", "[unit][pretraining]") {
  CHECK_THROWS_AS(PyRandom(1).randint(2, 1), std::invalid_argument);
}

TEST_CASE("Permutation visits every element once, whatever the size", "[unit][dataloader]") {
  for (const int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 1000, 4097}) {
    CAPTURE(size);
    const Permutation permutation(size, 7, 3);
    std::vector<int> visits(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) ++visits.at(static_cast<size_t>(permutation(i)));
    CHECK(visits == std::vector<int>(static_cast<size_t>(size), 1));
  }
  CHECK_THROWS_AS(Permutation(0, 1, 1), std::invalid_argument);
}

TEST_CASE("Permutations of different seeds and epochs have nothing in common", "[unit][dataloader]") {
  const int64_t size = 10000;
  const Permutation first(size, 1, 0), next_epoch(size, 1, 1), other_seed(size, 2, 0);
  int64_t same_epoch = 0, same_seed = 0, fixed = 0, rising = 0;
  for (int64_t i = 0; i < size; ++i) {
    same_epoch += first(i) == next_epoch(i);
    same_seed += first(i) == other_seed(i);
    fixed += first(i) == i;
    rising += i > 0 && first(i) > first(i - 1);
  }
  // A random permutation agrees with another, or with the identity, in 1 element on average; 12 elements have
  // probability 1e-9. It rises in half of the steps, with a standard deviation of sqrt(size / 12) = 29.
  CHECK(same_epoch < 12);
  CHECK(same_seed < 12);
  CHECK(fixed < 12);
  CHECK(std::abs(rising - size / 2) < 6 * 29);
}

}  // namespace
}  // namespace bert
