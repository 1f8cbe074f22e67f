// The language of kernels (launch.h) for the host compiler. tests/kernels/cuda_emulator.cc defines what is only
// declared here. It runs the threads of a block as fibers, one block after another, and throws EmulatorError at the
// first broken rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
// Inlined by force as nvcc does it. In functions that g++ 12 leaves alone at -O1, AddressSanitizer takes variables for
// redzones.
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __maxnreg__(...)

namespace bert {

struct Index {
  unsigned x = 0, y = 0;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;  // of the fiber that runs

namespace emulator {

enum class Exchange { kLane, kXor, kDown };

/// A piece of the block's shared memory.
struct SharedMemory {
  std::byte* data = nullptr;
  size_t offset = 0, bytes = 0;  // its place among all shared bytes of the block, which the shadow words follow
  const char* name = "";
};

/// Every thread that passes the same key gets the same memory. A null key is the dynamic part, whose size the launch
/// sets.
SharedMemory shared_memory(const void* key, size_t bytes, const char* name);
void check_read(const SharedMemory& memory, ptrdiff_t begin, size_t bytes);
void check_write(const SharedMemory& memory, ptrdiff_t begin, size_t bytes);
void check_access(const void* pointer, size_t bytes, size_t alignment, const std::source_location& where);
void check_ticket(const std::source_location& where);
void barrier(const std::source_location& where);
void exchange(void* value, size_t bytes, Exchange kind, int argument, uint32_t mask, const std::source_location& where);

/// A launch as a device gets it: with copies of the kernel's arguments.
struct Launch {
  const void* kernel = nullptr;
  const char* signature = "";  // a text that contains the types of the kernel's parameters
  Grid grid;
  unsigned block = 0;
  size_t shared_bytes = 0;
  kernels::Stream stream = nullptr;
  std::vector<std::byte> arguments;  // one after another, each from a multiple of 8 bytes
  std::function<void()> run;         // runs every thread of every block
};

/// Runs the kernel, of which `thread` runs one thread, or gives it to the queue of set_queue() (cuda_emulator.h).
void submit(Launch launch, std::function<void()> thread);

}  // namespace emulator

/// One shared word between shared memory and a register. It has no name and no copies: `const float v = shared[i];`.
template <class T>
class SharedReference {
 public:
  SharedReference(const emulator::SharedMemory& memory, ptrdiff_t begin) : memory_(memory), begin_(begin) {}
  SharedReference(const SharedReference&) = delete;

  operator T() && {  // NOLINT(google-explicit-constructor)
    emulator::check_read(memory_, begin_, sizeof(T));
    T value;
    std::memcpy(&value, memory_.data + begin_, sizeof(T));
    return value;
  }
  void operator=(const T& value) && {
    emulator::check_write(memory_, begin_, sizeof(T));
    std::memcpy(memory_.data + begin_, &value, sizeof(T));
  }
  void operator=(SharedReference&& other) && { std::move(*this) = static_cast<T>(std::move(other)); }
  void operator+=(const T& value) && {
    const T old = SharedReference(memory_, begin_);
    std::move(*this) = old + value;
  }

 private:
  const emulator::SharedMemory& memory_;
  ptrdiff_t begin_;
};

template <class T>
class SharedPointer {
  static_assert(std::is_trivially_copyable_v<T>, "shared memory holds plain data only");

 public:
  explicit SharedPointer(const emulator::SharedMemory& memory, ptrdiff_t element = 0)
      : memory_(memory), element_(element) {}

  template <class I>
  SharedReference<T> operator[](I index) const {
    return SharedReference<T>(memory_, (element_ + static_cast<ptrdiff_t>(index)) * static_cast<ptrdiff_t>(sizeof(T)));
  }
  template <class I>
  SharedPointer operator+(I elements) const {
    return SharedPointer(memory_, element_ + static_cast<ptrdiff_t>(elements));
  }

 private:
  emulator::SharedMemory memory_;
  ptrdiff_t element_;
};

#define BERT_SHARED(T, name, N)                                        \
  const ::bert::SharedPointer<T> name(::bert::emulator::shared_memory( \
      [] {                                                             \
        static const char key = 0;                                     \
        return static_cast<const void*>(&key);                         \
      }(),                                                             \
      (N) * sizeof(T), #name))
#define BERT_DYNAMIC_SHARED(T, name) \
  const ::bert::SharedPointer<T> name(::bert::emulator::shared_memory(nullptr, 0, #name))

inline void sync_block(std::source_location where = std::source_location::current()) { emulator::barrier(where); }

template <class V>
V shuffle(V value, int lane, uint32_t mask = kFullMask, std::source_location where = std::source_location::current()) {
  emulator::exchange(&value, sizeof(V), emulator::Exchange::kLane, lane, mask, where);
  return value;
}

template <class V>
V shuffle_xor(V value, int lanes, uint32_t mask = kFullMask,
              std::source_location where = std::source_location::current()) {
  emulator::exchange(&value, sizeof(V), emulator::Exchange::kXor, lanes, mask, where);
  return value;
}

template <class V>
V shuffle_down(V value, int lanes, uint32_t mask = kFullMask,
               std::source_location where = std::source_location::current()) {
  emulator::exchange(&value, sizeof(V), emulator::Exchange::kDown, lanes, mask, where);
  return value;
}

inline unsigned take_ticket(unsigned* ticket, std::source_location where = std::source_location::current()) {
  emulator::check_ticket(where);
  emulator::check_access(ticket, sizeof(unsigned), alignof(unsigned), where);
  return (*ticket)++;
}

inline void atomic_max(float* pointer, float value, std::source_location where = std::source_location::current()) {
  emulator::check_access(pointer, sizeof(float), alignof(float), where);
  uint32_t before = 0, bits = 0;
  std::memcpy(&before, pointer, sizeof(before));
  std::memcpy(&bits, &value, sizeof(bits));
  if (bits > before) std::memcpy(pointer, &bits, sizeof(bits));
}

template <int N, class T>
Vector<T, N> load(const T* pointer, std::source_location where = std::source_location::current()) {
  emulator::check_access(pointer, N * sizeof(T), alignof(Vector<T, N>), where);
  Vector<T, N> result;
  std::memcpy(result.word, pointer, sizeof(result));
  return result;
}

template <int N, class T>
void store(T* pointer, const Vector<T, N>& vector, std::source_location where = std::source_location::current()) {
  emulator::check_access(pointer, N * sizeof(T), alignof(Vector<T, N>), where);
  std::memcpy(pointer, vector.word, sizeof(vector));
}

namespace detail {

template <class T>
void append_bytes(std::vector<std::byte>& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>, "a kernel gets plain data only");
  constexpr size_t kAlignment = 8;
  const size_t begin = bytes.size();
  bytes.resize(begin + (sizeof(T) + kAlignment - 1) / kAlignment * kAlignment);
  T plain = value;
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&plain);
#endif
  std::memcpy(bytes.data() + begin, &plain, sizeof(T));
}

}  // namespace detail

/// Runs every thread of every block before it returns, unless set_queue() (cuda_emulator.h) has named a queue.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, unsigned block, size_t shared_bytes, kernels::Stream stream,
            const Arguments&... arguments) {
  const std::tuple<Parameters...> copies(arguments...);
  emulator::Launch launch{.kernel = reinterpret_cast<const void*>(kernel),
                          .signature = __PRETTY_FUNCTION__,
                          .grid = grid,
                          .block = block,
                          .shared_bytes = shared_bytes,
                          .stream = stream,
                          .arguments = {},
                          .run = {}};
  std::apply([&](const auto&... copy) { (detail::append_bytes(launch.arguments, copy), ...); }, copies);
  emulator::submit(std::move(launch), [kernel, copies] { std::apply(kernel, copies); });
}

}  // namespace bert
