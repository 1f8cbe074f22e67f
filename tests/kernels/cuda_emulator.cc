#include "tests/kernels/cuda_emulator.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "cuda_ext/kernels/launch.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace bert::emulator {
namespace {

// Limits of a launch (CUDA programming guide, compute capabilities 7.5 to 12.x).
constexpr unsigned kMaxThreads = 1024, kMaxGridX = 0x7FFFFFFF, kMaxGridY = 65535;
constexpr size_t kMaxSharedBytes = 48 * 1024;
constexpr size_t kStackBytes = 256 * 1024;

/// A stack with an inaccessible page below it: an overflow stops the program instead of damaging a neighbour.
class Stack {
 public:
  Stack() : guard_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    base_ =
        mmap(nullptr, guard_ + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED || mprotect(base_, guard_, PROT_NONE) != 0) {
      throw std::system_error(errno, std::generic_category(), "emulator: cannot map a stack");
    }
  }
  Stack(const Stack&) = delete;
  ~Stack() { munmap(base_, guard_ + kStackBytes); }
  [[nodiscard]] void* bottom() const { return static_cast<std::byte*>(base_) + guard_; }

 private:
  size_t guard_;
  void* base_;
};

enum class State { kReady, kAtBarrier, kAtShuffle, kDone };

/// The place where a thread continues. swapcontext alone would work, but it calls the kernel for the signal mask in
/// every switch, and under AddressSanitizer it clears the state of the whole stack: 20 to 70 % of a test's time, and 25
/// to 50 %.
struct Context {
  void* place[5];  // __builtin_setjmp's
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

struct Fiber {
  Fiber() { context.bottom = stack.bottom(), context.bytes = kStackBytes; }
  Stack stack;
  Context context;
  bool started = false;  // it waits at its end for the next block, or in the middle of this one
  State state = State::kDone;
  std::source_location where;
  // The part of the thread in a shuffle.
  void* value = nullptr;
  size_t bytes = 0;
  Exchange kind = Exchange::kLane;
  int argument = 0;
  uint32_t mask = 0;
};

/// The last threads that touched one byte of shared memory, and the number of barriers before.
struct Shadow {
  static constexpr int kNobody = -1, kSeveral = -2;
  int writer = kNobody, reader = kNobody;
  int64_t written = -1, read = -1;
};

struct Allocation {
  const void* key = nullptr;
  std::unique_ptr<std::byte[]> data;  // of the exact size, so that AddressSanitizer guards it
  size_t offset = 0, bytes = 0;
};

std::string place(const std::source_location& where) {
  const std::string file = where.file_name();
  return file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(where.line());
}

/// The one device: one block at a time, whose threads are fibers of this thread.
class Device {
 public:
  void set_order(Threads threads, Blocks blocks) { threads_ = threads, blocks_ = blocks; }
  [[nodiscard]] int64_t switches() const { return switches_; }
  [[nodiscard]] int64_t launches() const { return launches_; }
  [[nodiscard]] int64_t vectors() const { return vectors_; }
  void count_vector(size_t bytes) { vectors_ += bytes >= kVectorBytes ? 1 : 0; }

  void run(Grid grid, unsigned block, size_t shared_bytes, void (*thread)(const void*), const void* context);
  void check_ticket(const std::source_location& where);
  void barrier(const std::source_location& where);
  void exchange(void* value, size_t bytes, Exchange kind, int argument, uint32_t mask,
                const std::source_location& where);
  SharedMemory shared_memory(const void* key, size_t bytes, const char* name);
  void check_read(const SharedMemory& memory, ptrdiff_t begin, size_t bytes);
  void check_write(const SharedMemory& memory, ptrdiff_t begin, size_t bytes);
  [[noreturn]] void fail(const std::string& what) const;

 private:
  static void entry();
  void start(Fiber& fiber);
  void run_block(unsigned block);
  void allocate(const void* key, size_t bytes);
  void thread_main();
  void reschedule();
  void enter(int thread);
  void switch_to(Context& from, Context& to);
  void complete_shuffle(int warp);
  Shadow* shadow_of(const SharedMemory& memory, ptrdiff_t begin, size_t bytes);
  [[nodiscard]] Fiber& current() { return *fibers_[static_cast<size_t>(current_)]; }
  [[nodiscard]] Fiber& fiber(int thread) { return *fibers_[static_cast<size_t>(thread)]; }

  Threads threads_ = Threads::kAscending;
  Blocks blocks_ = Blocks::kForwards;
  int64_t switches_ = 0, launches_ = 0, vectors_ = 0;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  void (*thread_)(const void*) = nullptr;
  const void* context_ = nullptr;
  std::vector<int> order_, place_in_order_;  // thread by turn, turn by thread
  int current_ = -1;                         // -1: the launching thread
  std::vector<int> waiting_in_warp_;         // at a shuffle
  int waiting_ = 0, done_ = 0;               // at the barrier; at the end
  int64_t epoch_ = 0;                        // barriers so far
  int64_t ticket_epoch_ = 0;                 // when the last ticket was taken
  std::vector<Allocation> shared_;
  std::vector<Shadow> shadow_;
  std::exception_ptr error_;

  Context main_;
};

Device& device() {
  static Device instance;
  return instance;
}

/// The queue of set_queue().
std::function<void(Launch)>& queue() {
  static std::function<void(Launch)> instance;
  return instance;
}

/// Device memory: start and size of what the tests have allocated.
std::map<const std::byte*, size_t>& buffers() {
  static std::map<const std::byte*, size_t> instance;
  return instance;
}

void Device::fail(const std::string& what) const {
  std::string who;
  if (current_ >= 0) {
    who = " block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ") thread " +
          std::to_string(current_) + ":";
  }
  throw EmulatorError("emulator:" + who + " " + what);
}

void Device::run(Grid grid, unsigned block, size_t shared_bytes, void (*thread)(const void*), const void* context) {
  if (current_ >= 0) fail("a kernel launches a kernel");
  if (block == 0 || block > kMaxThreads || block % kWarpSize != 0) {
    fail("a block of " + std::to_string(block) + " threads: expected a multiple of 32 up to 1024");
  }
  if (grid.x == 0 || grid.x > kMaxGridX || grid.y == 0 || grid.y > kMaxGridY) {
    fail("a grid of " + std::to_string(grid.x) + " x " + std::to_string(grid.y) +
         " blocks: expected 1 to 2147483647 x 1 to 65535");
  }
  if (shared_bytes > kMaxSharedBytes) {
    fail(std::to_string(shared_bytes) + " bytes of dynamic shared memory: expected at most 49152");
  }
  ++launches_;
  thread_ = thread, context_ = context;
  gridDim = {grid.x, grid.y};
  blockDim = {block, 1};
  while (fibers_.size() < block) fibers_.push_back(std::make_unique<Fiber>());
  order_.resize(block);
  place_in_order_.resize(block);
  const int64_t blocks = static_cast<int64_t>(grid.x) * grid.y;
  for (int64_t i = blocks_ == Blocks::kLastOnly ? blocks - 1 : 0; i < blocks; ++i) {
    const int64_t number = blocks_ == Blocks::kBackwards ? blocks - 1 - i : i;
    blockIdx = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x)};
    std::iota(order_.begin(), order_.end(), 0);
    if (threads_ == Threads::kDescending) std::reverse(order_.begin(), order_.end());
    if (threads_ > Threads::kDescending) {
      std::mt19937 random(static_cast<unsigned>(number) * 8 + static_cast<unsigned>(threads_));
      std::shuffle(order_.begin(), order_.end(), random);
    }
    for (size_t turn = 0; turn < order_.size(); ++turn) {
      place_in_order_[static_cast<size_t>(order_[turn])] = static_cast<int>(turn);
    }
    shared_.clear();
    shadow_.clear();
    allocate(nullptr, shared_bytes);
    run_block(block);
  }
}

void Device::run_block(unsigned block) {
  waiting_ = done_ = 0;
  epoch_ = ticket_epoch_ = 0;
  waiting_in_warp_.assign(block / kWarpSize, 0);
  error_ = nullptr;
  for (unsigned i = 0; i < block; ++i) fibers_[i]->state = State::kReady;
  current_ = order_[0];
  threadIdx = {static_cast<unsigned>(current_), 0};
  switch_to(main_, current().context);
  if (error_ != nullptr) {
    for (unsigned i = 0; i < block; ++i) fibers_[i]->started = false;  // a fiber that stopped halfway begins again
    std::rethrow_exception(error_);
  }
}

/// A separate function, because no function may both set a place and jump.
[[noreturn]] __attribute__((noinline, no_sanitize_address)) void go_on(Context& context) {
  __builtin_longjmp(context.place, 1);
}

__attribute__((noinline, no_sanitize_address)) void Device::switch_to(Context& from, Context& to) {
  ++switches_;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
#endif
  if (__builtin_setjmp(from.place) == 0) {
    if (current_ >= 0 && !current().started) start(current());
    go_on(to);
  }
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void Device::start(Fiber& fiber) {
  fiber.started = true;
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(fiber.stack.bottom(), kStackBytes);  // after a block that stopped halfway
#endif
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.bottom();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, &Device::entry, 0);
  setcontext(&context);
}

void Device::entry() {
  Device& self = device();
#ifdef __SANITIZE_ADDRESS__
  // The launching thread enters the first fiber; its stack must be known for the switch back.
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (self.main_.bottom == nullptr) self.main_.bottom = bottom, self.main_.bytes = bytes;
#endif
  for (;;) self.thread_main();
}

/// One thread of one block; returns when the next block begins.
void Device::thread_main() {
  try {
    thread_(context_);
    ++done_;
    current().state = State::kDone;
    if (waiting_ > 0) fail("ends, while other threads wait at a barrier: no return before a barrier");
    if (waiting_in_warp_[static_cast<size_t>(current_ / kWarpSize)] > 0) {
      fail("ends, while other lanes of its warp wait at a shuffle: no return before a shuffle");
    }
    if (static_cast<size_t>(done_) < order_.size()) return reschedule();
  } catch (...) {
    error_ = std::current_exception();
  }
  Context& context = current().context;
  current_ = -1;
  switch_to(context, main_);
}

/// Switches to the next thread that can run. Returns at the next turn of this thread.
void Device::reschedule() {
  const size_t block = order_.size();
  size_t turn = static_cast<size_t>(place_in_order_[static_cast<size_t>(current_)]);
  for (size_t i = 0; i < block; ++i) {
    turn = turn + 1 == block ? 0 : turn + 1;
    if (fiber(order_[turn]).state == State::kReady) return enter(order_[turn]);
  }
  for (int thread = 0; static_cast<size_t>(thread) < block; ++thread) {
    if (fiber(thread).state == State::kAtShuffle) {
      fail("thread " + std::to_string(thread) + " waits at the shuffle at " + place(fiber(thread).where) +
           " for lanes that wait at a barrier");
    }
  }
  fail("no thread can go on");
}

void Device::enter(int thread) {
  if (thread == current_) return;
  Fiber& from = current();
  current_ = thread;
  threadIdx = {static_cast<unsigned>(thread), 0};
  switch_to(from.context, current().context);
}

void Device::barrier(const std::source_location& where) {
  if (current_ < 0) fail("a barrier outside of a kernel");
  if (done_ > 0) fail("waits at the barrier at " + place(where) + ", but other threads have ended");
  const size_t block = order_.size();
  if (waiting_ > 0) {
    for (size_t i = 0; i < block; ++i) {
      const Fiber& other = *fibers_[i];
      if (other.state != State::kAtBarrier) continue;
      if (other.where.line() == where.line() && std::strcmp(other.where.file_name(), where.file_name()) == 0) break;
      fail("divergent barriers: waits at " + place(where) + ", thread " + std::to_string(i) + " at " +
           place(other.where));
    }
  }
  current().where = where;
  current().state = State::kAtBarrier;
  if (static_cast<size_t>(++waiting_) == block) {
    waiting_ = 0;
    ++epoch_;
    for (size_t i = 0; i < block; ++i) fibers_[i]->state = State::kReady;
  }
  reschedule();
}

void Device::check_ticket(const std::source_location& where) {
  if (current_ < 0) fail("a ticket outside of a kernel");
  if (epoch_ == ticket_epoch_) {
    fail("takes a ticket at " + place(where) + " without a barrier before: other threads may still have to write");
  }
  ticket_epoch_ = epoch_;
}

void Device::exchange(void* value, size_t bytes, Exchange kind, int argument, uint32_t mask,
                      const std::source_location& where) {
  if (current_ < 0) fail("a shuffle outside of a kernel");
  if (mask != kFullMask) fail("the shuffle at " + place(where) + " has not the full mask");
  if (argument < 0 || argument >= kWarpSize) {
    fail("the shuffle at " + place(where) + " has lane " + std::to_string(argument) + ": expected 0 to 31");
  }
  const int warp = current_ / kWarpSize;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const Fiber& other = fiber(warp * kWarpSize + lane);
    if (other.state == State::kDone) {
      fail("shuffles at " + place(where) + ", but lane " + std::to_string(lane) + " of its warp has ended");
    }
    if (other.state == State::kAtShuffle &&
        (other.kind != kind || other.bytes != bytes || other.where.line() != where.line())) {
      fail("divergent shuffles: at " + place(where) + ", lane " + std::to_string(lane) + " of its warp at " +
           place(other.where));
    }
  }
  Fiber& self = current();
  self.where = where;
  self.value = value, self.bytes = bytes, self.kind = kind, self.argument = argument, self.mask = mask;
  self.state = State::kAtShuffle;
  if (++waiting_in_warp_[static_cast<size_t>(warp)] == kWarpSize) complete_shuffle(warp);
  reschedule();
}

void Device::complete_shuffle(int warp) {
  constexpr size_t kMaxBytes = 8;
  std::array<std::array<std::byte, kMaxBytes>, kWarpSize> values;
  const size_t bytes = fiber(warp * kWarpSize).bytes;
  if (bytes > kMaxBytes) fail("a shuffle of " + std::to_string(bytes) + " bytes: expected at most 8");
  for (int lane = 0; lane < kWarpSize; ++lane) {
    std::memcpy(values[static_cast<size_t>(lane)].data(), fiber(warp * kWarpSize + lane).value, bytes);
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    Fiber& self = fiber(warp * kWarpSize + lane);
    int source = self.argument;
    if (self.kind == Exchange::kXor) source ^= lane;
    if (self.kind == Exchange::kDown) source = lane + source < kWarpSize ? lane + source : lane;
    std::memcpy(self.value, values[static_cast<size_t>(source)].data(), bytes);
    self.state = State::kReady;
  }
  waiting_in_warp_[static_cast<size_t>(warp)] = 0;
}

void Device::allocate(const void* key, size_t bytes) {
  size_t total = 0;
  for (const Allocation& allocation : shared_) total += allocation.bytes;
  if (total + bytes > kMaxSharedBytes) {
    fail(std::to_string(total + bytes) + " bytes of shared memory in one block: expected at most 49152");
  }
  Allocation allocation{key, std::unique_ptr<std::byte[]>(new std::byte[bytes]), total, bytes};
  std::memset(allocation.data.get(), 0xFF, bytes);  // NaN in every floating-point type
  shared_.push_back(std::move(allocation));
  shadow_.resize(total + bytes);
}

SharedMemory Device::shared_memory(const void* key, size_t bytes, const char* name) {
  if (current_ < 0) fail(std::string("shared memory ") + name + " outside of a kernel");
  const auto find = [&] {
    return std::find_if(shared_.begin(), shared_.end(), [&](const Allocation& a) { return a.key == key; });
  };
  if (find() == shared_.end()) allocate(key, bytes);
  const Allocation& found = *find();
  return {found.data.get(), found.offset, found.bytes, name};
}

Shadow* Device::shadow_of(const SharedMemory& memory, ptrdiff_t begin, size_t bytes) {
  if (current_ < 0) fail(std::string("shared memory ") + memory.name + " is used outside of a kernel");
  if (begin < 0 || static_cast<size_t>(begin) + bytes > memory.bytes) {
    fail("touches byte " + std::to_string(begin) + " of shared " + memory.name + ", which has " +
         std::to_string(memory.bytes));
  }
  return shadow_.data() + memory.offset + begin;
}

void Device::check_read(const SharedMemory& memory, ptrdiff_t begin, size_t bytes) {
  Shadow* shadow = shadow_of(memory, begin, bytes);
  const auto at = [&] { return std::string(" shared ") + memory.name + " at byte " + std::to_string(begin); };
  for (size_t i = 0; i < bytes; ++i, ++shadow) {
    if (shadow->writer == Shadow::kNobody) fail("reads uninitialised" + at());
    if (shadow->written == epoch_ && shadow->writer != current_) {
      fail("data race: reads" + at() + ", which thread " + std::to_string(shadow->writer) +
           " wrote since the last barrier");
    }
    if (shadow->read != epoch_) {
      shadow->read = epoch_, shadow->reader = current_;
    } else if (shadow->reader != current_) {
      shadow->reader = Shadow::kSeveral;
    }
  }
}

void Device::check_write(const SharedMemory& memory, ptrdiff_t begin, size_t bytes) {
  Shadow* shadow = shadow_of(memory, begin, bytes);
  const auto at = [&] { return std::string(" shared ") + memory.name + " at byte " + std::to_string(begin); };
  for (size_t i = 0; i < bytes; ++i, ++shadow) {
    if (shadow->written == epoch_ && shadow->writer != current_) {
      fail("data race: writes" + at() + ", which thread " + std::to_string(shadow->writer) +
           " wrote since the last barrier");
    }
    if (shadow->read == epoch_ && shadow->reader != current_) {
      fail("data race: writes" + at() + ", which another thread read since the last barrier");
    }
    shadow->written = epoch_, shadow->writer = current_;
  }
}

}  // namespace

SharedMemory shared_memory(const void* key, size_t bytes, const char* name) {
  return device().shared_memory(key, bytes, name);
}
void check_read(const SharedMemory& memory, ptrdiff_t begin, size_t bytes) {
  device().check_read(memory, begin, bytes);
}
void check_write(const SharedMemory& memory, ptrdiff_t begin, size_t bytes) {
  device().check_write(memory, begin, bytes);
}
void check_access(const void* pointer, size_t bytes, size_t alignment, const std::source_location& where) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
    device().fail("misaligned vector at " + place(where) + ": expected a multiple of " + std::to_string(alignment) +
                  " bytes");
  }
  const auto* begin = static_cast<const std::byte*>(pointer);
  const auto next = buffers().upper_bound(begin);
  if (next == buffers().begin() || begin + bytes > std::prev(next)->first + std::prev(next)->second) {
    device().fail("the vector at " + place(where) + " is outside of every buffer");
  }
  device().count_vector(bytes);
}
void add_buffer(const void* begin, size_t bytes) { buffers()[static_cast<const std::byte*>(begin)] = bytes; }
void remove_buffer(const void* begin) { buffers().erase(static_cast<const std::byte*>(begin)); }
void check_ticket(const std::source_location& where) { device().check_ticket(where); }
void barrier(const std::source_location& where) { device().barrier(where); }
void exchange(void* value, size_t bytes, Exchange kind, int argument, uint32_t mask,
              const std::source_location& where) {
  device().exchange(value, bytes, kind, argument, mask, where);
}
void submit(Launch launch, std::function<void()> thread) {
  launch.run = [grid = launch.grid, block = launch.block, shared_bytes = launch.shared_bytes,
                thread = std::move(thread)] {
    device().run(
        grid, block, shared_bytes, [](const void* context) { (*static_cast<const std::function<void()>*>(context))(); },
        &thread);
  };
  queue() ? queue()(std::move(launch)) : launch.run();
}
void set_queue(std::function<void(Launch)> queue_launch) { queue() = std::move(queue_launch); }

void set_order(Threads threads, Blocks blocks) { device().set_order(threads, blocks); }
int64_t switches() { return device().switches(); }

int64_t launches() { return device().launches(); }
int64_t vectors() { return device().vectors(); }

void for_each_order(const std::function<void()>& body) {
  const struct Restore {
    ~Restore() { set_order(Threads::kAscending, Blocks::kForwards); }
  } restore;
  constexpr std::pair<Threads, Blocks> kOrders[] = {
      {Threads::kAscending, Blocks::kForwards},  {Threads::kAscending, Blocks::kBackwards},
      {Threads::kDescending, Blocks::kForwards}, {Threads::kShuffled1, Blocks::kBackwards},
      {Threads::kShuffled2, Blocks::kForwards},  {Threads::kShuffled3, Blocks::kBackwards}};
  for (const auto& [threads, blocks] : kOrders) {
    set_order(threads, blocks);
    body();
  }
}

}  // namespace bert::emulator
