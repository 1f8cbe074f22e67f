// What the files of the runtime share. One mutex guards all of it: lock() is taken by whoever reads or writes state, and
// never while work runs. No file keeps state of another.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/null_device/null_device.h"

namespace null_device {

using Lock = std::unique_lock<std::recursive_mutex>;
Lock lock();

// ---- counters.cc: settings, counts, faults ----

/// A setting from the environment; tests/README.md lists them.
std::string setting(const char* name, const char* fallback);
int64_t number_setting(const char* name, int64_t fallback);

/// A place in the program: the innermost callers.
struct Place {
  std::array<void*, 40> frames{};
  int count = 0;
};
Place here();
std::string in_words(const Place& place);
/// fault() with a second place.
void fault_of_two(const std::string& text, const Place& other);
/// A fault after which the process cannot go on, even where faults are collected.
[[noreturn]] void last_fault(const std::string& text);
/// While one lives, faults of this thread also name the place at which the work that it runs was queued or captured.
class RunsQueued {
 public:
  explicit RunsQueued(const Place& place);
  ~RunsQueued();
  RunsQueued(const RunsQueued&) = delete;
  RunsQueued& operator=(const RunsQueued&) = delete;

 private:
  const Place* before_;
};
/// A line for the file that NULL_DEVICE_LOG names. Without a file it is not worth a search for names.
bool is_logging();
void log_line(const std::string& line);

// ---- errors.cc: the error of a thread and of the device ----

/// Makes `error` the calling thread's last one, and returns it.
cudaError_t failed(cudaError_t error);
/// The begin of a function of CUDA: counts the call, and returns the error of a device that has failed.
cudaError_t begin_call(const char* function);
/// Counts a launch towards NULL_DEVICE_FAIL ("LAUNCHES:ERROR"): from that launch on the device has failed. Under lock().
void count_towards_failure();

struct Graph;
struct Stream;

// ---- order.cc: what happened before what ----

/// Numbers of the works of each stream that a point comes after.
struct Clock {
  void join(const Clock& other);
  void set(size_t stream, uint64_t number);
  [[nodiscard]] bool covers(size_t stream, uint64_t number) const;
  std::vector<uint64_t> numbers;  // by stream
};

/// One work in the order of its stream.
struct Position {
  size_t stream = 0;
  uint64_t number = 0;
};

/// The last accesses to every byte of device memory, of the program or of one graph.
class AccessHistory {
 public:
  /// Reports two accesses to the same bytes that neither `after` nor `known` orders, one of them writing: the first
  /// ones of the work.
  void note(const Position& position, const Clock& after, const Clock& known, const Work& work, const Place& place);
  void forget(const char* begin, size_t bytes);

 private:
  struct Last {
    Position position;
    std::shared_ptr<const std::string> name;
    std::shared_ptr<const Place> place;
  };
  struct Interval {
    const char* end = nullptr;
    bool written = false;
    Last writer;
    std::vector<Last> readers;
  };
  using Compare = std::function<void(const Last& other, const char* did)>;
  void note_read(const Access& access, const Last& self, const Compare& compare);
  void note_write(const Access& access, const Last& self, const Compare& compare);
  void split_at(const char* place);
  std::map<const char*, Interval> intervals_;  // by begin
};
AccessHistory& history();

/// What the host knows to have run.
Clock& host_knowledge();
/// The host has waited for `clock`: copies to pinned memory arrive, and sources in pinned memory are compared.
void host_learns(const Clock& clock);

/// A copy from or to pinned memory of which the host does not know that it has run.
struct PendingCopy {
  Position position;
  char* host = nullptr;
  size_t bytes = 0;
  bool to_host = false;
  std::vector<char> data;  // of a copy to the host
  uint64_t checksum = 0;   // of a source
  Place place;
};
uint64_t checksum_of(const char* data, size_t bytes);
void add_pending(PendingCopy copy);
/// A pending copy that touches the range; null if there is none.
const PendingCopy* pending_copy_at(const char* begin, size_t bytes);
/// A copy on the stream comes to use pinned memory: what is pending there ends now, and is reported if nothing orders it.
void settle_pending(const Stream& stream, const char* begin, size_t bytes, bool write);

// ---- memory.cc ----

constexpr int kMostDevices = 16;
int device_count();
int& current_device();
/// The device whose memory holds the pointer; -1: none.
int device_of(const void* pointer);
bool is_pinned(const void* pointer);
/// "byte 512 of a block of 2048 bytes", or "no block".
std::string block_in_words(const void* pointer);
/// Reports bytes of a device that belong to no block, where blocks are known.
void check_live(const Access& access, const std::string& name);
/// Which of the blocks so far holds the pointer. 0: blocks are not known there, or graphs keep their memory.
uint64_t block_number(const void* pointer);
/// check_live() of a captured access. In the memory that graphs keep, bytes of freed blocks are as good as others.
void check_captured(const Access& access, uint64_t block, const std::string& name);
size_t memory_bytes(int device);
/// Device pointers may be used while one lives.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};
/// Turns a SIGSEGV at a device pointer into a sentence. Test frameworks replace handlers, so each work calls it.
void keep_signal_handler();
/// A function creates the context of the current device if there is none yet.
void touch_device(const char* function);
bool is_touched(int device);

// ---- streams.cc ----

struct Stream {
  size_t id = 0;
  int device = 0;
  unsigned flags = 0;
  uint64_t number = 0;  // of the last work
  Clock after;          // of the next work
  Graph* graph = nullptr;
  bool destroyed = false;
  std::recursive_mutex turn;  // held while a work runs. It is taken before lock()
  [[nodiscard]] bool blocks() const { return (flags & cudaStreamNonBlocking) == 0; }
};
Stream* stream_of(cudaStream_t stream);
Stream* default_stream(int device);
bool is_default(const Stream* stream);
std::vector<Stream*> streams();
/// What the host knows when it has waited for the stream.
Clock clock_of(const Stream& stream);
/// The legacy stream and the blocking streams of a device wait for each other, before anything is done in one of them.
void join_legacy(Stream& stream);
/// Reports memory of another device than the stream's.
void check_device(const Stream& stream, const Work& work);
/// Numbers the next work of a stream and notes what it touches.
Position advance(Stream& stream, const Work& work, const Place& place);
/// The host waits for all work of a device. Without lock().
void wait_for_device(int device);

struct Event {
  int device = 0;
  unsigned flags = 0;
  bool recorded = false;
  Clock clock;
  uint64_t order = 0;
  int queries = 0;
  uint64_t graph = 0;  // in whose capture it was recorded
  Clock graph_clock;
};

// ---- graphs.cc ----

struct Graph {
  struct Node {
    Work work;
    Place place;
    std::vector<uint64_t> blocks;  // of the accesses
  };
  uint64_t id = 0;
  Stream* origin = nullptr;
  std::set<Stream*> streams;
  std::map<Stream*, uint64_t> numbers;
  std::map<Stream*, Clock> clocks;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;  // that began the capture
  bool invalid = false;
  std::shared_ptr<AccessHistory> history;
  std::vector<Node> nodes;
};
/// Reports and invalidates if the call may not be made while a stream is captured. True then.
bool forbidden_in_capture(const char* what);
/// Invalidates a capture with a fault.
cudaError_t break_capture(Graph& graph, const std::string& what, cudaError_t error);
std::vector<Graph*> captures();
void add_node(Stream& stream, Work work, const Place& place);
/// A captured stream records an event, and a stream waits for one of a capture.
void record_in_capture(Stream& stream, Event& event);
cudaError_t wait_in_capture(Stream& stream, const Event& event);
/// Reports a call about an event that was recorded in a capture.
cudaError_t refuse_captured(const Event& event, const std::string& what);

// ---- collectives.cc: work on other threads ----

using Covers = std::function<bool(const Position&)>;
/// True if a work that `covers` names still runs. Without lock().
bool is_running(const Covers& covers);
void wait_until_done(const Covers& covers);
/// Waits for those that the last work of the stream comes after.
void wait_before(const Stream& stream);

// ---- copies.cc ----

/// The name of the one work that may use memory of another device than its stream's.
inline constexpr char kPeerCopy[] = "copy between devices";
cudaError_t copy(void* to, const void* from, size_t bytes, Stream* stream, bool asynchronous);

}  // namespace null_device

/// Counts the call of the function that it stands in, and returns the error of a device that has failed.
#define BERT_BEGIN_CALL() \
  if (const cudaError_t broken = null_device::begin_call(__func__); broken != cudaSuccess) return broken
