// Streams, events and waits.
#include <algorithm>

#include "tests/null_device/runtime/state.h"

namespace null_device {
namespace {

std::vector<Stream*>& all_streams() {
  static auto* instance = new std::vector<Stream*>;
  return *instance;
}
uint64_t& works() {
  static uint64_t count = 0;
  return count;
}

Stream* new_stream(int device, unsigned flags) {
  const Lock held = lock();
  auto* const stream = new Stream;
  stream->id = all_streams().size();
  stream->device = device;
  stream->flags = flags;
  all_streams().push_back(stream);
  return stream;
}

/// True if the host knows that everything before the event has run.
bool is_known(const Event& event) {
  for (size_t i = 0; i < event.clock.numbers.size(); ++i) {
    if (event.clock.numbers[i] > 0 && !host_knowledge().covers(i, event.clock.numbers[i])) return false;
  }
  return true;
}

Covers works_of(Clock clock) {
  return [clock = std::move(clock)](const Position& p) { return clock.covers(p.stream, p.number); };
}

/// What the host knows when it has waited for the stream. Without lock().
Clock clock_for_host(Stream& stream) {
  const std::lock_guard turn(stream.turn);
  const Lock held = lock();
  join_legacy(stream);
  return clock_of(stream);
}

Event* event_of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

}  // namespace

Stream* default_stream(int device) {
  const Lock held = lock();
  static auto* const instances = new std::array<Stream*, kMostDevices>{};
  Stream*& stream = instances->at(static_cast<size_t>(device));
  if (stream == nullptr) stream = new_stream(device, cudaStreamDefault);
  return stream;
}
Stream* stream_of(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    return default_stream(current_device());
  return reinterpret_cast<Stream*>(stream);
}
bool is_default(const Stream* stream) { return stream == default_stream(stream->device); }
std::vector<Stream*> streams() {
  const Lock held = lock();
  return all_streams();
}

std::string in_words(CUstream_st* handle) {
  const Stream* const stream = stream_of(handle);
  return "stream " + std::to_string(stream->id) + " of device " + std::to_string(stream->device);
}

Clock clock_of(const Stream& stream) {
  Clock clock = stream.after;
  clock.set(stream.id, stream.number);
  return clock;
}

void join_legacy(Stream& stream) {
  if (!stream.blocks()) return;
  for (const Stream* other : all_streams()) {
    if (other == &stream || other->device != stream.device || !other->blocks()) continue;
    if (is_default(&stream) || is_default(other)) stream.after.join(clock_of(*other));
  }
}

void check_device(const Stream& stream, const Work& work) {
  if (work.name == kPeerCopy) return;
  for (const Access& access : work.accesses) {
    const int device = device_of(access.data);
    if (device < 0 || device == stream.device) continue;
    return fault(work.name + " on stream " + std::to_string(stream.id) + " of device " + std::to_string(stream.device) +
                 " uses memory of device " + std::to_string(device));
  }
}

Position advance(Stream& stream, const Work& work, const Place& place) {
  stream.after.join(host_knowledge());
  join_legacy(stream);
  const Position position{.stream = stream.id, .number = ++stream.number};
  ++works();
  history().note(position, stream.after, host_knowledge(), work, place);
  log_line("stream " + std::to_string(stream.id) + ": " + work.name);
  return position;
}

void wait_for_device(int device) {
  Clock clock;
  for (Stream* stream : streams()) {
    if (stream->device != device) continue;
    const std::lock_guard turn(stream->turn);
    const Lock held = lock();
    clock.join(clock_of(*stream));
  }
  wait_until_done(works_of(clock));
  const Lock held = lock();
  host_learns(clock);
}

}  // namespace null_device

using namespace null_device;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int /*priority*/) {
  BERT_BEGIN_CALL();
  touch_device(__func__);
  *out = reinterpret_cast<cudaStream_t>(new_stream(current_device(), flags));
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  BERT_BEGIN_CALL();
  const Lock held = lock();
  stream_of(stream)->destroyed = true;  // kept: work may still come after it
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  BERT_BEGIN_CALL();
  touch_device(__func__);
  add_count("wait");
  Stream* const stream = stream_of(handle);
  {
    const Lock held = lock();
    if (stream->graph != nullptr)
      return break_capture(*stream->graph, "cudaStreamSynchronize of a stream that is captured",
                           cudaErrorStreamCaptureUnsupported);
  }
  const Clock clock = clock_for_host(*stream);
  wait_until_done(works_of(clock));
  const Lock held = lock();
  log_line("wait for stream " + std::to_string(stream->id));
  host_learns(clock);
  return begin_call("cudaStreamSynchronize: end");  // reports what has failed meanwhile
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  BERT_BEGIN_CALL();
  Stream* const stream = stream_of(handle);
  {
    const Lock held = lock();
    if (stream->graph != nullptr)
      return break_capture(*stream->graph, "cudaStreamQuery of a stream that is captured",
                           cudaErrorStreamCaptureUnsupported);
  }
  const Clock clock = clock_for_host(*stream);
  if (is_running(works_of(clock))) return cudaErrorNotReady;
  const Lock held = lock();
  host_learns(clock);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  BERT_BEGIN_CALL();
  touch_device(__func__);
  add_count("wait");
  if (forbidden_in_capture(__func__)) return failed(cudaErrorStreamCaptureUnsupported);
  wait_for_device(current_device());
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned /*flags*/) {
  BERT_BEGIN_CALL();
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  BERT_BEGIN_CALL();
  touch_device(__func__);
  auto* const event = new Event;
  event->device = current_device();
  event->flags = flags;
  *out = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  BERT_BEGIN_CALL();
  delete event_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned /*flags*/) {
  BERT_BEGIN_CALL();
  Event& event = *event_of(handle);
  Stream& stream = *stream_of(stream_handle);
  const std::lock_guard turn(stream.turn);
  const Lock held = lock();
  if (event.device != stream.device) {
    fault("an event of device " + std::to_string(event.device) + " is recorded on stream " + std::to_string(stream.id) +
          " of device " + std::to_string(stream.device));
    return failed(cudaErrorInvalidResourceHandle);
  }
  event.recorded = true;
  event.queries = 0;
  event.graph = 0;
  event.order = works();
  if (stream.graph != nullptr) {
    record_in_capture(stream, event);
    return cudaSuccess;
  }
  join_legacy(stream);
  event.clock = clock_of(stream);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned /*flags*/) {
  BERT_BEGIN_CALL();
  const Lock held = lock();
  const Event& event = *event_of(handle);
  Stream& stream = *stream_of(stream_handle);
  if (!event.recorded) return cudaSuccess;
  if (event.graph != 0 || stream.graph != nullptr) return wait_in_capture(stream, event);
  join_legacy(stream);
  stream.after.join(event.clock);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  BERT_BEGIN_CALL();
  constexpr int kPolls = 3;  // until the device is done
  if (forbidden_in_capture(__func__)) return failed(cudaErrorStreamCaptureUnsupported);
  Event& event = *event_of(handle);
  Clock clock;
  {
    const Lock held = lock();
    if (event.graph != 0) return refuse_captured(event, __func__);
    clock = event.clock;
  }
  const bool running = is_running(works_of(clock));
  const Lock held = lock();
  if (!event.recorded || is_known(event)) return cudaSuccess;
  if (running || event.queries++ < kPolls) return cudaErrorNotReady;
  host_learns(clock);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  BERT_BEGIN_CALL();
  add_count("wait");
  if (forbidden_in_capture(__func__)) return failed(cudaErrorStreamCaptureUnsupported);
  Clock clock;
  {
    const Lock held = lock();
    const Event& event = *event_of(handle);
    if (event.graph != 0) return refuse_captured(event, __func__);
    if (!event.recorded) return cudaSuccess;
    clock = event.clock;
  }
  wait_until_done(works_of(clock));
  const Lock held = lock();
  host_learns(clock);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  BERT_BEGIN_CALL();
  constexpr float kMillisecondsPerWork = 0.1F;  // about what a small kernel takes in the emulator
  const Lock held = lock();
  const Event &first = *event_of(from), &second = *event_of(to);
  for (const Event* event : {&first, &second}) {
    if (event->graph != 0) return refuse_captured(*event, __func__);
  }
  if (!first.recorded || !second.recorded || ((first.flags | second.flags) & cudaEventDisableTiming) != 0)
    return failed(cudaErrorInvalidResourceHandle);
  if (!is_known(first) || !is_known(second)) return failed(cudaErrorNotReady);
  *milliseconds = kMillisecondsPerWork * static_cast<float>(static_cast<int64_t>(second.order - first.order));
  return cudaSuccess;
}

}  // extern "C"
