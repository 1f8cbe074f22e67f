// Planted faults that the emulator must catch. Each is in a kernel of the usual shape, and must be caught by the
// mechanism that the table names. Without a fault the same kernel passes.
#include <cmath>
#include <string>
#include <vector>

#include "cuda_ext/kernels/launch.h"
#include "tests/kernels/cuda_emulator.h"
#include "tests/testing.h"

namespace bert::emulator {
namespace {

enum class Fault {
  kNone,
  kMissingBarrier,
  kMissingBarrierBeforeTotal,
  kMissingBarrierBeforeReuse,
  kOffByOneTail,
  kShortTail,
  kOneVectorTooMany,
  kWrongLane,
  kMissingShuffle,
  kLaneOutOfRange,
  kUninitialisedShared,
  kMisalignedVector,
  kMissingPredicate,
  kVectorBehindBuffer,
  kExitedLane,
  kMismatchedMask,
  kSharedRace,
  kGlobalRace,
  kBlocksDepend,
  kDivergentBarriers,
  kDivergentShuffles,
  kReturnBeforeBarrier,
  kOneBarrierTooMany,
  kWarpLeftAtShuffle,
  kTooMuchDynamicShared,
  kTooMuchShared,
  kBlockTooLarge,
  kBlockOfPartialWarps,
  kEmptyGrid,
  kGridTooTall,
};

constexpr int kThreads = 64, kWarps = kThreads / kWarpSize, kWidth = 4;
constexpr int kRows = 3, kColumns = 100;  // one block too many, and a tail of threads without columns

/// y[row] = x[row] reversed, divided by its sum; total[row] = its sum. One block per row, staged in shared memory.
template <Fault kFault>
__global__ void normalise_kernel(const float* x, float* y, float* total, int rows, int columns) {
  BERT_SHARED(float, warp_totals, kWarps);
  BERT_DYNAMIC_SHARED(float, staged);  // [columns]
  if constexpr (kFault == Fault::kTooMuchShared) {
    BERT_SHARED(float, more, 12288 - 100);
    static_cast<void>(more);
  }
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize, warp = thread / kWarpSize;
  const int row = static_cast<int>(blockIdx.x);
  const bool active = row < rows;

  const int vectors = active ? columns / kWidth : 0;
  for (int v = thread; v < (kFault == Fault::kOneVectorTooMany ? vectors + 1 : vectors); v += kThreads) {
    const int shift = kFault == Fault::kMisalignedVector ? 1 : 0;
    const Vector<float, kWidth> values = load<kWidth>(x + row * columns + v * kWidth + shift);
    for (int i = 0; i < kWidth; ++i) staged[v * kWidth + i] = values[i];
  }
  if constexpr (kFault == Fault::kVectorBehindBuffer) {
    if (!active) static_cast<void>(load<kWidth>(x + row * columns));
  }
  if constexpr (kFault == Fault::kReturnBeforeBarrier) {
    if (warp == 1) return;
  }
  if constexpr (kFault == Fault::kDivergentBarriers) {
    if (warp == 0) {
      sync_block();
    } else {
      sync_block();
    }
  } else if constexpr (kFault != Fault::kMissingBarrier) {
    sync_block();
  }

  float sum = 0.0F;
  if (active) {
    for (int c = thread; c < columns; c += kThreads) sum += staged[c];
  }
  if constexpr (kFault == Fault::kExitedLane) {
    if (lane == kWarpSize - 1) return;
  }
  if constexpr (kFault == Fault::kWarpLeftAtShuffle) {
    if (lane == 5) sync_block();
  }
  uint32_t mask = kFullMask;
  if constexpr (kFault == Fault::kMismatchedMask) mask = lane < 16 ? 0xFFFFU : kFullMask;
  for (int lanes = kWarpSize / (kFault == Fault::kMissingShuffle ? 4 : 2); lanes > 0; lanes /= 2) {
    if constexpr (kFault == Fault::kDivergentShuffles) {
      if (lane < 16) {
        sum += shuffle_down(sum, lanes);
      } else {
        sum += shuffle_down(sum, lanes);
      }
    } else if constexpr (kFault == Fault::kLaneOutOfRange) {
      sum += shuffle_down(sum, 2 * lanes);
    } else {
      sum += shuffle_down(sum, lanes, mask);
    }
  }
  bool writes = lane == (kFault == Fault::kWrongLane ? 1 : 0);
  if constexpr (kFault == Fault::kUninitialisedShared) writes = thread == 0;
  if constexpr (kFault == Fault::kSharedRace) writes = lane < 2;
  if (writes) warp_totals[warp] = sum;
  if constexpr (kFault != Fault::kMissingBarrierBeforeTotal) sync_block();
  float all = 0.0F;
  for (int w = 0; w < kWarps; ++w) all += warp_totals[w];

  if constexpr (kFault == Fault::kMissingBarrierBeforeReuse) {
    if (lane == 0) warp_totals[warp] = all;
  }

  const bool may_write = active || kFault == Fault::kMissingPredicate;
  if (may_write && thread == 0) total[row] = all;
  if constexpr (kFault == Fault::kGlobalRace) {
    if (active && thread % 2 == 0) total[row] = all + static_cast<float>(thread);
  }
  if constexpr (kFault == Fault::kBlocksDepend) {
    if (active && thread == 0 && row > 0) total[row] = total[row] + (std::isnan(total[row - 1]) ? 1.0F : 2.0F);
  }
  int end = columns;
  if constexpr (kFault == Fault::kOffByOneTail) ++end;
  if constexpr (kFault == Fault::kShortTail) --end;
  if (active) {
    for (int c = thread; c < end; c += kThreads) {
      const int from = columns - 1 - c;
      const float value = staged[from < 0 ? 0 : from];
      y[row * columns + c] = value / all;
    }
  }
  if constexpr (kFault == Fault::kOneBarrierTooMany) {
    if (warp == 0) sync_block();
  }
}

/// The complaint of the emulator, of the memory around the results, of the results themselves or of another order; ""
/// is a pass.
template <Fault kFault>
std::string outcome() {
  std::vector<float> values(kRows * kColumns), want_total(kRows), want(values.size());
  for (int row = 0; row < kRows; ++row) {
    for (int c = 0; c < kColumns; ++c) {
      values[static_cast<size_t>(row * kColumns + c)] = static_cast<float>(1 + row + c % 7);  // sums are exact
      want_total[static_cast<size_t>(row)] += values[static_cast<size_t>(row * kColumns + c)];
    }
  }
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t row = i / kColumns, c = i % kColumns;
    want[i] = values[row * kColumns + kColumns - 1 - c] / want_total[row];
  }
  const DeviceBuffer<float> x(values, Guard::kBytes), y(values.size(), Guard::kBytes), total(kRows, Guard::kBytes);
  Grid grid{.x = kRows + 1};
  unsigned block = kThreads;
  size_t shared_bytes = kColumns * sizeof(float);
  if (kFault == Fault::kEmptyGrid) grid.x = 0;
  if (kFault == Fault::kGridTooTall) grid.y = 65536;
  if (kFault == Fault::kBlockTooLarge) block = 1056;
  if (kFault == Fault::kBlockOfPartialWarps) block = 48;
  if (kFault == Fault::kTooMuchDynamicShared) shared_bytes = 48 * 1024 + 4;

  std::string result;
  std::vector<float> first;
  try {
    for_each_order([&] {
      y.fill_with_nan();
      total.fill_with_nan();
      launch(normalise_kernel<kFault>, grid, block, shared_bytes, nullptr, x.data(), y.data(), total.data(), kRows,
             kColumns);
      std::vector<float> all = y.values();
      for (const float value : total.values()) all.push_back(value);
      if (first.empty()) first = all;
      if (std::memcmp(all.data(), first.data(), all.size() * sizeof(float)) != 0) result = "the order matters";
    });
  } catch (const EmulatorError& error) {
    return error.what();
  }
  if (!result.empty()) return result;
  if (!y.intact() || !total.intact()) return "wrote outside";
  if (y.values() != want || total.values() != want_total) return "wrong result";
  return "";
}

TEST_CASE("The kernel of the planted faults passes without a fault", "[unit][cuda_emulator]") {
  const int64_t before = switches();
  CHECK(outcome<Fault::kNone>().empty());
  CHECK(switches() - before > 10 * kThreads);  // the threads really took turns
}

TEST_CASE("The emulator catches every planted fault", "[unit][cuda_emulator]") {
  const struct {
    const char* name;
    std::string (*run)();
    const char* caught_by;
  } faults[] = {
      {"missing barrier", outcome<Fault::kMissingBarrier>, "shared staged"},
      {"missing barrier before the total", outcome<Fault::kMissingBarrierBeforeTotal>, "shared warp_totals"},
      {"missing barrier before reuse", outcome<Fault::kMissingBarrierBeforeReuse>, "data race: "},
      {"off-by-one tail", outcome<Fault::kOffByOneTail>, "the order matters"},
      {"short tail", outcome<Fault::kShortTail>, "wrong result"},
      {"one vector too many", outcome<Fault::kOneVectorTooMany>, "touches byte 400 of shared staged, which has 400"},
      {"wrong lane", outcome<Fault::kWrongLane>, "wrong result"},
      {"missing shuffle", outcome<Fault::kMissingShuffle>, "wrong result"},
      {"lane out of range", outcome<Fault::kLaneOutOfRange>, "has lane 32: expected 0 to 31"},
      {"uninitialised shared memory", outcome<Fault::kUninitialisedShared>, "reads uninitialised shared warp_totals"},
      {"misaligned vector", outcome<Fault::kMisalignedVector>, "misaligned vector at cuda_faults_test.cc:"},
      {"vector behind the buffer", outcome<Fault::kVectorBehindBuffer>, "is outside of every buffer"},
      {"missing predicate", outcome<Fault::kMissingPredicate>, "wrote outside"},
      {"exited lane at a shuffle", outcome<Fault::kExitedLane>, "shuffle"},
      {"mismatched mask", outcome<Fault::kMismatchedMask>, "has not the full mask"},
      {"two threads write one shared word", outcome<Fault::kSharedRace>, "data race: writes shared warp_totals"},
      {"two threads write one global word", outcome<Fault::kGlobalRace>, "the order matters"},
      {"a block reads another's result", outcome<Fault::kBlocksDepend>, "the order matters"},
      {"divergent barriers", outcome<Fault::kDivergentBarriers>, "divergent barriers: waits at"},
      {"divergent shuffles", outcome<Fault::kDivergentShuffles>, "divergent shuffles: at"},
      {"return before a barrier", outcome<Fault::kReturnBeforeBarrier>, "barrier"},
      {"one barrier too many", outcome<Fault::kOneBarrierTooMany>, "barrier"},
      {"a lane at a barrier, its warp at a shuffle", outcome<Fault::kWarpLeftAtShuffle>, "barrier"},
      {"too much dynamic shared memory", outcome<Fault::kTooMuchDynamicShared>, "49156 bytes of dynamic shared memory"},
      {"too much shared memory", outcome<Fault::kTooMuchShared>, "bytes of shared memory in one block"},
      {"block too large", outcome<Fault::kBlockTooLarge>, "a block of 1056 threads"},
      {"block of partial warps", outcome<Fault::kBlockOfPartialWarps>, "a block of 48 threads"},
      {"empty grid", outcome<Fault::kEmptyGrid>, "a grid of 0 x 1 blocks"},
      {"grid too tall", outcome<Fault::kGridTooTall>, "a grid of 4 x 65536 blocks"},
  };
  for (const auto& fault : faults) {
    INFO(fault.name);
    CHECK_THAT(fault.run(), testing::Contains(fault.caught_by));
    CHECK(outcome<Fault::kNone>().empty());  // nothing is left behind
  }
}

enum class TicketFault { kNone, kBeforeBarrier, kOneTooFew, kNotReset };

/// total = the sum of x, one block per 64 elements; the last block adds up the blocks' sums.
template <TicketFault kFault>
__global__ void sum_with_ticket_kernel(const float* x, float* block_sums, unsigned* ticket, float* total) {
  BERT_SHARED(int, last, 1);
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  float sum = x[block * kThreads + thread];
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) sum += shuffle_down(sum, lanes);
  if (thread % kWarpSize == 0) block_sums[block * kWarps + thread / kWarpSize] = sum;
  if constexpr (kFault != TicketFault::kBeforeBarrier) sync_block();
  if (thread == 0) {
    const unsigned awaited = gridDim.x - (kFault == TicketFault::kOneTooFew ? 1 : 0);
    last[0] = take_ticket(ticket) + 1 == awaited ? 1 : 0;
  }
  sync_block();
  if (thread != 0 || last[0] == 0) return;
  float all = 0.0F;
  for (unsigned i = 0; i < gridDim.x * kWarps; ++i) all += block_sums[i];
  *total = all;
  if constexpr (kFault != TicketFault::kNotReset) *ticket = 0;
}

/// The complaint of the emulator or about the sum; "" if two launches in every order give the sum.
template <TicketFault kFault>
std::string ticket_outcome() {
  constexpr int kBlocks = 3;
  const DeviceBuffer<float> x(std::vector<float>(kBlocks * kThreads, 1.0F)), block_sums(kBlocks * kWarps), total(1);
  const DeviceBuffer<unsigned> ticket(std::vector<unsigned>{0});
  std::string result;
  try {
    for_each_order([&] {
      for (int time = 0; time < 2; ++time) {
        block_sums.fill_with_nan();
        total.fill_with_nan();
        launch(sum_with_ticket_kernel<kFault>, {.x = kBlocks}, kThreads, 0, nullptr, x.data(), block_sums.data(),
               ticket.data(), total.data());
        if (total[0] != kBlocks * kThreads) result = "wrong result";
      }
    });
  } catch (const EmulatorError& error) {
    return error.what();
  }
  return result;
}

TEST_CASE("The emulator catches a ticket taken too early, by the wrong block, or never given back",
          "[unit][cuda_emulator]") {
  CHECK(ticket_outcome<TicketFault::kNone>().empty());
  CHECK_THAT(ticket_outcome<TicketFault::kBeforeBarrier>(), testing::Contains("without a barrier before"));
  CHECK(ticket_outcome<TicketFault::kOneTooFew>() == "wrong result");
  CHECK(ticket_outcome<TicketFault::kNotReset>() == "wrong result");
}

__global__ void shuffles_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = shuffle(lane, 7);
  out[32 + lane] = shuffle_xor(lane, 5);
  out[64 + lane] = shuffle_down(lane, 30);
}

TEST_CASE("Shuffles give what CUDA's programming guide says", "[unit][cuda_emulator]") {
  const DeviceBuffer<int> out(96);
  launch(shuffles_kernel, {}, 32, 0, nullptr, out.data());
  for (int lane = 0; lane < 32; ++lane) {
    const auto i = static_cast<size_t>(lane);
    CHECK(out[i] == 7);
    CHECK(out[32 + i] == (lane ^ 5));
    CHECK(out[64 + i] == (lane < 2 ? lane + 30 : lane));  // past the end a lane gets its own value
  }
}

}  // namespace
}  // namespace bert::emulator
