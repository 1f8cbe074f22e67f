// Runs the kernels of cuda_ext without a GPU, and stops at the first behaviour that a GPU leaves undefined (see
// EmulatorError). It does not find errors of the memory model and of streams, races between blocks or through global
// memory that no order of threads and blocks shows, differences of fast-math, or slowness.
#pragma once

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace bert::emulator {

/// Thrown for: a launch beyond the limits of the device; a barrier or a shuffle that not all threads reach, or at
/// different places, or with different masks; two threads that touch one shared word between two barriers, one of them
/// writing; a read of shared memory that was not written; a ticket taken without a barrier before; an access outside of
/// a shared array; a vector that is misaligned or outside of every buffer. The message names file, line, block and
/// thread.
struct EmulatorError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The orders in which the threads of a block and the blocks of a grid run. kLastOnly: the last block and no other, for
/// tensors too large for all blocks.
enum class Threads { kAscending, kDescending, kShuffled1, kShuffled2, kShuffled3 };
enum class Blocks { kForwards, kBackwards, kLastOnly };
void set_order(Threads threads, Blocks blocks);

/// Calls body 6 times: in every order of the threads, and in both orders of the blocks. Afterwards the order is
/// ascending and forwards.
void for_each_order(const std::function<void()>& body);

/// From now on every launch goes to `queue`, which calls its run(), one launch at a time. Empty: launches run at once.
struct Launch;  // cuda_ext/kernels/launch_emulated.h
void set_queue(std::function<void(Launch)> queue);

/// Number of context switches so far. It shows that kernels really ran as threads.
int64_t switches();

/// Number of launches so far that the device would have taken.
int64_t launches();

/// Number of accesses of 16 bytes or more so far, which only the fast kernels make. It shows that they ran.
int64_t vectors();

// Called by DeviceBuffer.
void add_buffer(const void* begin, size_t bytes);
void remove_buffer(const void* begin);

enum class Guard {
  kBytes,     // intact() is false if the bytes around it were written to
  kSanitizer  // and under AddressSanitizer an access stops the program
};

/// Memory as a device allocator gives it: aligned to 256 bytes and filled with NaN bytes. NaN bytes on both sides spoil
/// the result of a read outside.
template <class T>
class DeviceBuffer {
  static constexpr size_t kAlignment = 256;

 public:
  explicit DeviceBuffer(size_t size, Guard guard = Guard::kSanitizer)
      : size_(size), total_(3 * kAlignment + size * sizeof(T)), bytes_(std::make_unique<std::byte[]>(total_)) {
    void* start = bytes_.get() + kAlignment;
    size_t space = 2 * kAlignment + size * sizeof(T);
    data_ = static_cast<T*>(std::align(kAlignment, size * sizeof(T), start, space));
    std::memset(bytes_.get(), 0xFF, total_);
    add_buffer(data_, size * sizeof(T));
#ifdef __SANITIZE_ADDRESS__
    if (guard == Guard::kSanitizer) {
      __asan_poison_memory_region(bytes_.get(), front());
      __asan_poison_memory_region(bytes_.get() + back(), total_ - back());
    }
#else
    static_cast<void>(guard);
#endif
  }
  explicit DeviceBuffer(const std::vector<T>& values, Guard guard = Guard::kSanitizer)
      : DeviceBuffer(values.size(), guard) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    remove_buffer(data_);
    unpoison();
  }

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] T operator[](size_t i) const { return data_[i]; }
  [[nodiscard]] std::vector<T> values() const { return {data_, data_ + size_}; }
  void fill_with_nan() const { std::memset(static_cast<void*>(data_), 0xFF, size_ * sizeof(T)); }

  /// True if nothing was written outside. The guard of the sanitizer ends here.
  [[nodiscard]] bool intact() const {
    unpoison();
    for (size_t i = 0; i < total_; i = i + 1 == front() ? back() : i + 1) {
      if (i < total_ && bytes_[i] != std::byte{0xFF}) return false;
    }
    return true;
  }

 private:
  [[nodiscard]] size_t front() const {
    return static_cast<size_t>(reinterpret_cast<const std::byte*>(data_) - bytes_.get());
  }
  [[nodiscard]] size_t back() const { return front() + size_ * sizeof(T); }
  void unpoison() const {
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(bytes_.get(), total_);
#endif
  }

  size_t size_, total_;
  std::unique_ptr<std::byte[]> bytes_;
  T* data_ = nullptr;
};

}  // namespace bert::emulator
