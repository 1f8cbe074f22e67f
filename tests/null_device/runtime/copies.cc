// Copies and fills. A copy from pinned memory is checked against changes of its source until the host knows that it has
// run; a copy to pinned memory leaves NaN there, and arrives when the host has waited. Copies from and to pageable
// memory are counted, and those to it wait, as on a device.
#include <cstring>

#include "tests/null_device/runtime/state.h"

namespace null_device {
namespace {

constexpr int kNotYet = 0xFF;  // NaN: what the host finds before it has waited

cudaError_t capture_of_pageable(Stream& stream, const char* what) {
  const Lock held = lock();
  return break_capture(*stream.graph, std::string(what) + " pageable memory is captured",
                       cudaErrorStreamCaptureUnsupported);
}

void settle(Stream* stream, const void* pinned, size_t bytes, bool write) {
  const Lock held = lock();
  join_legacy(*stream);
  settle_pending(*stream, static_cast<const char*>(pinned), bytes, write);
}

cudaStream_t handle_of(Stream* stream) { return reinterpret_cast<cudaStream_t>(stream); }

cudaError_t copy_to_device(void* to, const void* from, size_t bytes, Stream* stream, bool asynchronous) {
  const bool pinned = is_pinned(from);
  add_count(pinned ? "pinned to device" : "pageable to device");
  if (!pinned && is_logging()) log_line("copy from pageable memory" + in_words(here()));
  if (!pinned && stream->graph != nullptr) return capture_of_pageable(*stream, "a copy from");
  if (pinned && stream->graph == nullptr) settle(stream, from, bytes, /*write=*/false);
  enqueue(handle_of(stream), {.name = pinned ? "copy from pinned memory" : "copy from pageable memory",
                              .accesses = {{to, bytes, true}},
                              .opens_memory = false,
                              .run = [=] { std::memcpy(host_view(to), from, bytes); }});
  if (!pinned || !asynchronous || stream->graph != nullptr) return cudaSuccess;
  const Lock held = lock();
  const auto* const source = static_cast<const char*>(from);
  add_pending({.position = {stream->id, stream->number},
               .host = const_cast<char*>(source),
               .bytes = bytes,
               .to_host = false,
               .data = {},
               .checksum = checksum_of(source, bytes),
               .place = here()});
  return cudaSuccess;
}

cudaError_t copy_to_host(void* to, const void* from, size_t bytes, Stream* stream, bool asynchronous) {
  const bool pinned = is_pinned(to);
  add_count(pinned ? "device to pinned" : "device to pageable");
  const char* const name = pinned ? "copy to pinned memory" : "copy to pageable memory";
  if (stream->graph != nullptr) {
    if (!pinned) return capture_of_pageable(*stream, "a copy to");
    enqueue(handle_of(stream), {.name = name, .accesses = {{from, bytes, false}}, .opens_memory = false, .run = [=] {
                                  std::memcpy(to, host_view(from), bytes);
                                }});
    return cudaSuccess;
  }
  if (pinned) settle(stream, to, bytes, /*write=*/true);
  std::vector<char> data(bytes);
  enqueue(handle_of(stream), {.name = name, .accesses = {{from, bytes, false}}, .opens_memory = false, .run = [&] {
                                std::memcpy(data.data(), host_view(from), bytes);
                              }});
  const Lock held = lock();
  if (pinned && asynchronous) {
    std::memset(to, kNotYet, bytes);
    add_pending({.position = {stream->id, stream->number},
                 .host = static_cast<char*>(to),
                 .bytes = bytes,
                 .to_host = true,
                 .data = std::move(data),
                 .checksum = 0,
                 .place = here()});
    return cudaSuccess;
  }
  if (asynchronous) add_count("wait");  // the caller of the synchronous copy counts its own
  host_learns(clock_of(*stream));
  std::memcpy(to, data.data(), bytes);
  return cudaSuccess;
}

}  // namespace

cudaError_t copy(void* to, const void* from, size_t bytes, Stream* stream, bool asynchronous) {
  if (bytes == 0) return cudaSuccess;
  if (is_device(to) && is_device(from)) {
    add_count("device to device");
    enqueue(handle_of(stream), {.name = device_of(to) == device_of(from) ? "copy on the device" : kPeerCopy,
                                .accesses = {{from, bytes, false}, {to, bytes, true}},
                                .opens_memory = false,
                                .run = [=] { std::memmove(host_view(to), host_view(from), bytes); }});
    return cudaSuccess;
  }
  if (is_device(to)) return copy_to_device(to, from, bytes, stream, asynchronous);
  if (is_device(from)) return copy_to_host(to, from, bytes, stream, asynchronous);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

}  // namespace null_device

using namespace null_device;

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
  BERT_BEGIN_CALL();
  touch_device(__func__);
  add_count("wait");
  if (forbidden_in_capture(__func__)) return failed(cudaErrorStreamCaptureUnsupported);
  Stream* const stream = default_stream(current_device());
  const cudaError_t error = copy(to, from, bytes, stream, /*asynchronous=*/false);
  const Lock held = lock();
  host_learns(clock_of(*stream));
  return error;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  BERT_BEGIN_CALL();
  touch_device(__func__);
  return copy(to, from, bytes, stream_of(stream), /*asynchronous=*/true);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int /*to_device*/, const void* from, int /*from_device*/, size_t bytes,
                                cudaStream_t stream) {
  BERT_BEGIN_CALL();
  return copy(to, from, bytes, stream_of(stream), /*asynchronous=*/true);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  BERT_BEGIN_CALL();
  enqueue(stream, {.name = "fill", .accesses = {{to, bytes, true}}, .opens_memory = false, .run = [=] {
                     std::memset(host_view(to), value, bytes);
                   }});
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (forbidden_in_capture(__func__)) return failed(cudaErrorStreamCaptureUnsupported);
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
// Constants of LibTorch's kernels, which do not run here.
cudaError_t cudaMemcpyToSymbol(const void* /*symbol*/, const void* /*from*/, size_t /*bytes*/, size_t /*offset*/,
                               cudaMemcpyKind /*kind*/) {
  BERT_BEGIN_CALL();
  return cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  BERT_BEGIN_CALL();
  *address = const_cast<void*>(symbol);
  return cudaSuccess;
}

}  // extern "C"
