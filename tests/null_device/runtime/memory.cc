// Memory. Each device has an arena that is mapped twice: the addresses that cudaMalloc returns are closed to the host,
// host_view() is the open copy. Kernels that take device pointers run while OpenMemory opens the first mapping. Pinned
// memory is the host's own.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/null_device/runtime/state.h"

namespace null_device {
namespace {

constexpr size_t kAlignment = 512, kPage = 4096, kArenaBytes = size_t{1} << 38;
constexpr int kPoison = 0xFF;  // NaN in every floating-point type

class Arena {
 public:
  Arena() {
    descriptor_ = memfd_create("null_device", MFD_CLOEXEC);
    const auto map = [&](int protection) {
      return static_cast<char*>(
          mmap(nullptr, kArenaBytes, protection, MAP_SHARED | MAP_NORESERVE, descriptor_, /*offset=*/0));
    };
    if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(kArenaBytes)) != 0) stop("memfd");
    base_ = map(PROT_NONE);
    view_ = map(PROT_READ | PROT_WRITE);
    if (base_ == MAP_FAILED || view_ == MAP_FAILED) stop("mmap");
  }
  Arena(const Arena&) = delete;

  [[nodiscard]] bool holds(const void* pointer) const { return pointer >= base_ && pointer < base_ + kArenaBytes; }
  [[nodiscard]] char* view(const void* pointer) const { return view_ + (static_cast<const char*>(pointer) - base_); }
  [[nodiscard]] size_t used() const { return used_; }

  char* allocate(size_t bytes) {
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const auto fits = std::find_if(free_.begin(), free_.end(), [&](const auto& range) { return range.second >= size; });
    size_t at = top_;
    if (fits != free_.end()) {
      at = fits->first;
      if (fits->second > size) free_[at + size] = fits->second - size;
      free_.erase(fits);
    } else {
      if (top_ + size > kArenaBytes) return nullptr;
      top_ = (top_ + size + kPage - 1) / kPage * kPage;
      if (top_ > at + size) free_[at + size] = top_ - at - size;
    }
    used_ += size;
    segments[base_ + at] = size;
    return base_ + at;
  }
  /// False if allocate() did not give it.
  bool release(const char* pointer) {
    const auto segment = segments.find(pointer);
    if (segment == segments.end()) return false;
    const auto at = static_cast<size_t>(pointer - base_);
    const size_t size = segment->second;
    used_ -= size;
    segments.erase(segment);
    history().forget(pointer, size);
    blocks.erase(blocks.lower_bound(pointer), blocks.lower_bound(pointer + size));
    divided.erase(pointer), kept_by_graphs.erase(pointer);
    const size_t first_page = (at + kPage - 1) / kPage * kPage, last_page = (at + size) / kPage * kPage;
    if (last_page > first_page)
      fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first_page),
                static_cast<off_t>(last_page - first_page));
    const auto range = free_.emplace(at, size).first;
    if (const auto next = std::next(range); next != free_.end() && next->first == at + size) {
      range->second += next->second;
      free_.erase(next);
    }
    if (range == free_.begin()) return true;
    if (const auto before = std::prev(range); before->first + before->second == at) {
      before->second += range->second;
      free_.erase(range);
    }
    return true;
  }
  void protect(int protection) const {
    if (top_ > 0 && mprotect(base_, top_, protection) != 0) stop("mprotect");
  }

  std::map<const char*, size_t> segments;   // of cudaMalloc
  std::map<const char*, size_t> blocks;     // of LibTorch's allocator, in segments
  std::map<const char*, uint64_t> numbers;  // of these blocks, and of those before them at the same place
  std::set<const char*> divided;            // segments that have had blocks
  std::set<const char*> kept_by_graphs;     // some of them

 private:
  [[noreturn]] static void stop(const char* call) {
    std::fprintf(stderr, "null device: %s: %s\n", call, std::strerror(errno));
    std::abort();
  }
  int descriptor_ = -1;
  char *base_ = nullptr, *view_ = nullptr;
  size_t top_ = 0, used_ = 0;
  std::map<size_t, size_t> free_;  // offset and bytes of what lies free below top_
};

struct Device {
  Arena arena;
  bool touched = false;
};
std::array<std::atomic<Device*>, kMostDevices>& devices() {
  static auto* instance = new std::array<std::atomic<Device*>, kMostDevices>{};
  return *instance;
}
/// Made when it is first asked for.
Device& device(int number) {
  const Lock held = lock();
  std::atomic<Device*>& place = devices().at(static_cast<size_t>(number));
  if (place == nullptr) place = new Device;
  return *place;
}

using Range = std::pair<const char* const, size_t>;
/// The range that holds the pointer; null if none does.
const Range* range_at(const std::map<const char*, size_t>& ranges, const void* pointer) {
  const auto next = ranges.upper_bound(static_cast<const char*>(pointer));
  if (next == ranges.begin()) return nullptr;
  const Range& range = *std::prev(next);
  return static_cast<const char*>(pointer) < range.first + range.second ? &range : nullptr;
}

struct Pinned {
  size_t bytes = 0;
  bool mapped = false;  // by cudaHostAlloc
};
std::map<const char*, Pinned>& pinned() {
  static auto* instance = new std::map<const char*, Pinned>;
  return *instance;
}

void check_unused(const std::string& function, const std::pair<const char* const, Pinned>& memory) {
  const PendingCopy* const copy = pending_copy_at(memory.first, memory.second.bytes);
  if (copy == nullptr) return;
  fault_of_two(
      function + " of memory that a copy on stream " + std::to_string(copy->position.stream) + " may still use",
      copy->place);
}

int open_count = 0;
void protect_all(int protection) {
  for (const std::atomic<Device*>& each : devices()) {
    if (each != nullptr) each.load()->arena.protect(protection);
  }
}

struct sigaction handler_before {};

/// A read or write of a device pointer by the host. It ends the process, so it may use more than a handler should.
void on_fault(int signal, siginfo_t* info, void* context) {
  if (is_device(info->si_addr)) {
    last_fault("host code touches device memory: " + block_in_words(info->si_addr) + " of device " +
               std::to_string(device_of(info->si_addr)));
  }
  if ((handler_before.sa_flags & SA_SIGINFO) != 0 && handler_before.sa_sigaction != nullptr)
    return handler_before.sa_sigaction(signal, info, context);
  sigaction(signal, &handler_before, nullptr);  // the access happens again, under the handler of before
}

}  // namespace

int& current_device() {
  thread_local int number = 0;
  return number;
}
int device_of(const void* pointer) {
  for (size_t i = 0; i < devices().size(); ++i) {
    const Device* const found = devices()[i];
    if (found != nullptr && found->arena.holds(pointer)) return static_cast<int>(i);
  }
  return -1;
}
bool is_device(const void* pointer) { return device_of(pointer) >= 0; }
void* host_view(const void* pointer) {
  const int number = device_of(pointer);
  return number < 0 ? const_cast<void*>(pointer) : device(number).arena.view(pointer);
}

bool is_pinned(const void* pointer) {
  const Lock held = lock();
  const auto next = pinned().upper_bound(static_cast<const char*>(pointer));
  if (next == pinned().begin()) return false;
  const auto& [begin, range] = *std::prev(next);
  return static_cast<const char*>(pointer) < begin + range.bytes;
}

std::string block_in_words(const void* pointer) {
  const Lock held = lock();
  const int number = device_of(pointer);
  if (number < 0) return "no device memory";
  const Arena& arena = device(number).arena;
  const Range* range = range_at(arena.blocks, pointer);
  const char* kind = "a block";
  if (range == nullptr) range = range_at(arena.segments, pointer), kind = "a segment";
  if (range == nullptr) return "memory that is not allocated";
  return "byte " + std::to_string(static_cast<const char*>(pointer) - range->first) + " of " + kind + " of " +
         std::to_string(range->second) + " bytes";
}

void check_live(const Access& access, const std::string& name) {
  const int number = device_of(access.data);
  if (access.bytes == 0 || number < 0) return;
  const Arena& arena = device(number).arena;
  const auto* const end = static_cast<const char*>(access.data) + access.bytes;
  const char* const did = access.write ? " writes " : " reads ";
  const Range* const segment = range_at(arena.segments, access.data);
  if (segment == nullptr || end > segment->first + segment->second)
    return fault(name + did + std::to_string(access.bytes) + " bytes outside of what cudaMalloc gave");
  if (!arena.divided.contains(segment->first)) return;
  const Range* const block = range_at(arena.blocks, access.data);
  if (block == nullptr) return fault(name + did + std::to_string(access.bytes) + " bytes of a block that was freed");
  if (end > block->first + block->second)
    fault(name + did + std::to_string(end - block->first - static_cast<ptrdiff_t>(block->second)) +
          " bytes beyond a block of " + std::to_string(block->second) + " bytes");
}

uint64_t block_number(const void* pointer) {
  const int number = device_of(pointer);
  if (number < 0) return 0;
  const Arena& arena = device(number).arena;
  const Range* const block = range_at(arena.blocks, pointer);
  const Range* const segment = range_at(arena.segments, pointer);
  if (block == nullptr || segment == nullptr || arena.kept_by_graphs.contains(segment->first)) return 0;
  return arena.numbers.at(block->first);
}

void check_captured(const Access& access, uint64_t block, const std::string& name) {
  const int number = device_of(access.data);
  if (access.bytes == 0 || number < 0) return;
  const Arena& arena = device(number).arena;
  const Range* const segment = range_at(arena.segments, access.data);
  if (segment != nullptr && arena.kept_by_graphs.contains(segment->first)) return;
  if (block != 0 && range_at(arena.blocks, access.data) != nullptr && block_number(access.data) != block)
    return fault(name + " of a graph" + (access.write ? " writes " : " reads ") + std::to_string(access.bytes) +
                 " bytes of a block that was freed after the capture, and now is another block");
  check_live(access, name + " of a graph");
}

bool is_allocated(const void* pointer) {
  const Lock held = lock();
  const int number = device_of(pointer);
  if (number < 0) return false;
  const Arena& arena = device(number).arena;
  const auto* const byte = static_cast<const char*>(pointer);
  for (const char* at : {byte, byte - 1}) {  // the end of a block is as good as its bytes
    const Range* const segment = range_at(arena.segments, at);
    if (segment == nullptr) continue;
    if (!arena.divided.contains(segment->first) || range_at(arena.blocks, at) != nullptr) return true;
  }
  return false;
}

void block_allocated(const void* begin, size_t bytes, bool for_graphs) {
  const Lock held = lock();
  const int number = device_of(begin);
  if (number < 0) return;
  static uint64_t blocks = 0;
  Arena& arena = device(number).arena;
  arena.blocks[static_cast<const char*>(begin)] = bytes;
  arena.numbers[static_cast<const char*>(begin)] = ++blocks;
  if (const Range* const segment = range_at(arena.segments, begin)) {
    arena.divided.insert(segment->first);
    if (for_graphs) arena.kept_by_graphs.insert(segment->first);
  }
  if (!is_dry()) std::memset(arena.view(begin), kPoison, bytes);
}
void block_freed(const void* begin) {
  const Lock held = lock();
  const int number = device_of(begin);
  if (number >= 0) device(number).arena.blocks.erase(static_cast<const char*>(begin));
}

OpenMemory::OpenMemory() {
  const Lock held = lock();
  if (open_count++ == 0) protect_all(PROT_READ | PROT_WRITE);
}
OpenMemory::~OpenMemory() {
  const Lock held = lock();
  if (--open_count == 0) protect_all(PROT_NONE);
}

void keep_signal_handler() {
  struct sigaction current {};
  sigaction(SIGSEGV, nullptr, &current);
  if (current.sa_sigaction == on_fault) return;
  handler_before = current;
  struct sigaction own {};
  own.sa_sigaction = on_fault;
  own.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &own, nullptr);
}

bool is_touched(int number) {
  const Device* const found = devices().at(static_cast<size_t>(number));
  return found != nullptr && found->touched;
}

void touch_device(const char* function) {
  const Lock held = lock();
  if (current_device() >= device_count()) return;
  Device& current = device(current_device());
  if (std::exchange(current.touched, true)) return;
  add_count("context");
  log_line("context on device " + std::to_string(current_device()) + " by " + function);
  const int64_t rank = number_setting("LOCAL_RANK", -1);
  if (rank >= 0 && rank % device_count() != current_device())
    fault(std::string(function) + " uses device " + std::to_string(current_device()) + ", and LOCAL_RANK " +
          std::to_string(rank) + " has device " + std::to_string(rank % device_count()));
}

}  // namespace null_device

using namespace null_device;

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  BERT_BEGIN_CALL();
  touch_device(__func__);
  *out = nullptr;
  if (forbidden_in_capture(__func__)) return failed(cudaErrorStreamCaptureUnsupported);
  keep_signal_handler();
  const Lock held = lock();
  add_count("allocation");
  Arena& arena = device(current_device()).arena;
  char* const pointer = arena.used() + bytes > memory_bytes(current_device()) ? nullptr : arena.allocate(bytes);
  if (pointer == nullptr) return failed(cudaErrorMemoryAllocation);
  if (open_count > 0) arena.protect(PROT_READ | PROT_WRITE);
  log_line("cudaMalloc " + std::to_string(bytes));
  *out = pointer;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  BERT_BEGIN_CALL();
  if (pointer == nullptr) return cudaSuccess;
  if (forbidden_in_capture(__func__)) return failed(cudaErrorStreamCaptureUnsupported);
  const int number = device_of(pointer);
  if (number >= 0) {
    add_count("wait");  // cudaFree waits for the device
    wait_for_device(number);
  }
  const Lock held = lock();
  if (number >= 0 && device(number).arena.release(static_cast<const char*>(pointer))) return cudaSuccess;
  fault("cudaFree of memory that cudaMalloc did not give");
  return failed(cudaErrorInvalidValue);
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t /*stream*/) {
  return cudaMalloc(pointer, bytes);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t /*stream*/) { return cudaFree(pointer); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  BERT_BEGIN_CALL();
  touch_device(__func__);
  const Lock held = lock();
  *total = memory_bytes(current_device());
  *free = *total - std::min(*total, device(current_device()).arena.used());
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned /*flags*/) {
  BERT_BEGIN_CALL();
  touch_device(__func__);
  if (forbidden_in_capture(__func__)) return failed(cudaErrorStreamCaptureUnsupported);
  const Lock held = lock();
  add_count("host allocation");
  const size_t size = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  void* const pointer = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pointer == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  std::memset(pointer, kPoison, bytes);
  pinned()[static_cast<const char*>(pointer)] = {.bytes = size, .mapped = true};
  *out = pointer;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  BERT_BEGIN_CALL();
  if (pointer == nullptr) return cudaSuccess;
  if (forbidden_in_capture(__func__)) return failed(cudaErrorStreamCaptureUnsupported);
  const Lock held = lock();
  const auto found = pinned().find(static_cast<const char*>(pointer));
  if (found == pinned().end()) return failed(cudaErrorInvalidValue);
  check_unused(__func__, *found);
  if (found->second.mapped) munmap(pointer, found->second.bytes);
  pinned().erase(found);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned /*flags*/) {
  BERT_BEGIN_CALL();
  const Lock held = lock();
  pinned()[static_cast<const char*>(pointer)] = {.bytes = bytes, .mapped = false};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
  BERT_BEGIN_CALL();
  const Lock held = lock();
  const auto found = pinned().find(static_cast<const char*>(pointer));
  if (found == pinned().end()) return failed(cudaErrorInvalidValue);
  check_unused(__func__, *found);
  pinned().erase(found);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  BERT_BEGIN_CALL();
  *attributes = {};
  const int number = device_of(pointer);
  void* const plain = const_cast<void*>(pointer);
  if (number >= 0) {
    attributes->type = cudaMemoryTypeDevice, attributes->device = number, attributes->devicePointer = plain;
  } else if (is_pinned(pointer)) {
    attributes->type = cudaMemoryTypeHost, attributes->device = current_device();
    attributes->hostPointer = attributes->devicePointer = plain;
  } else {
    constexpr int kNoDevice = -2;  // as CUDA answers
    attributes->type = cudaMemoryTypeUnregistered, attributes->device = kNoDevice, attributes->hostPointer = plain;
  }
  return cudaSuccess;
}

}  // extern "C"
