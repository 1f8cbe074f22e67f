// Capture and graphs. Work of a captured stream becomes nodes; a call that CUDA forbids meanwhile fails with CUDA's
// code, and is a fault. A replay runs the nodes in the order of their capture.
#include <algorithm>

#include "tests/null_device/runtime/state.h"

namespace null_device {
namespace {

std::vector<Graph*>& running_captures() {
  static auto* instance = new std::vector<Graph*>;
  return *instance;
}
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaStreamCaptureStatus status_of(const Graph* graph) {
  if (graph == nullptr) return cudaStreamCaptureStatusNone;
  return graph->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

/// True if the end of `graph` comes after the last work of all its streams.
bool is_joined(Graph& graph) {
  const Clock& end = graph.clocks[graph.origin];
  return std::all_of(graph.streams.begin(), graph.streams.end(), [&](Stream* stream) {
    return stream == graph.origin || graph.numbers[stream] == 0 || end.covers(stream->id, graph.numbers[stream]);
  });
}

/// The capture with this number that goes on; null if it has ended.
Graph* capture_with(uint64_t id) {
  const auto& running = running_captures();
  const auto found = std::find_if(running.begin(), running.end(), [&](const Graph* graph) { return graph->id == id; });
  return found != running.end() ? *found : nullptr;
}

Graph* graph_of(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }
Graph* graph_of(cudaGraphExec_t graph) { return reinterpret_cast<Graph*>(graph); }

}  // namespace

std::vector<Graph*> captures() { return running_captures(); }

bool is_capturing(CUstream_st* stream) {
  const Lock held = lock();
  return stream_of(stream)->graph != nullptr;
}

cudaError_t break_capture(Graph& graph, const std::string& what, cudaError_t error) {
  graph.invalid = true;
  add_count("forbidden in capture");
  fault(what);
  return failed(error);
}

// Source: cudaThreadExchangeStreamCaptureMode's documentation. The thread's own captures count unless they are relaxed;
// those of other threads if they and this thread are in mode global.
bool forbidden_in_capture(const char* what) {
  const Lock held = lock();
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  for (Graph* graph : running_captures()) {
    const bool own = graph->thread == std::this_thread::get_id();
    const bool counts = own ? graph->mode != cudaStreamCaptureModeRelaxed
                            : thread_mode == cudaStreamCaptureModeGlobal && graph->mode == cudaStreamCaptureModeGlobal;
    if (!counts) continue;
    break_capture(*graph, std::string(what) + " while a stream is captured", cudaErrorStreamCaptureUnsupported);
    return true;
  }
  return false;
}

void add_node(Stream& stream, Work work, const Place& place) {
  Graph& graph = *stream.graph;
  add_count("captured");
  const Position position{.stream = stream.id, .number = ++graph.numbers[&stream]};
  graph.history->note(position, graph.clocks[&stream], {}, work, place);
  graph.clocks[&stream].set(stream.id, position.number);
  log_line("stream " + std::to_string(stream.id) + " captures: " + work.name);
  std::vector<uint64_t> blocks;
  for (const Access& access : work.accesses) blocks.push_back(block_number(access.data));
  graph.nodes.push_back({.work = std::move(work), .place = place, .blocks = std::move(blocks)});
}

void record_in_capture(Stream& stream, Event& event) {
  event.graph = stream.graph->id;
  event.graph_clock = stream.graph->clocks[&stream];
}

cudaError_t wait_in_capture(Stream& stream, const Event& event) {
  const std::string which = "stream " + std::to_string(stream.id);
  if (event.graph == 0)
    return break_capture(*stream.graph,
                         which + ", which is captured, waits for an event that was recorded outside of the capture",
                         cudaErrorStreamCaptureIsolation);
  Graph* const graph = capture_with(event.graph);
  if (graph == nullptr) {
    fault(which + " waits for an event that was recorded in a capture which has ended");
    return failed(cudaErrorCapturedEvent);
  }
  if (is_default(&stream))
    return break_capture(*graph, "the legacy stream waits for an event that was recorded in a capture",
                         cudaErrorStreamCaptureImplicit);
  if (stream.graph != nullptr && stream.graph != graph)
    return break_capture(*graph, which + " waits for an event that was recorded in another capture than its own",
                         cudaErrorStreamCaptureMerge);
  stream.graph = graph;
  graph->streams.insert(&stream);
  graph->clocks[&stream].join(event.graph_clock);
  return cudaSuccess;
}

cudaError_t refuse_captured(const Event& event, const std::string& what) {
  const std::string text = what + " of an event that was recorded in a capture";
  if (Graph* const graph = capture_with(event.graph)) return break_capture(*graph, text, cudaErrorCapturedEvent);
  fault(text + ", which has ended");
  return failed(cudaErrorCapturedEvent);
}

namespace {

/// Work of a replay.
void run_node(Stream& stream, const Graph::Node& node) {
  const RunsQueued captured(node.place);
  {
    const Lock held = lock();
    for (size_t i = 0; i < node.blocks.size(); ++i)
      check_captured(node.work.accesses[i], node.blocks[i], node.work.name);
    advance(stream, node.work, node.place);
  }
  wait_before(stream);
  if (is_dry()) return;
  if (!node.work.opens_memory) return node.work.run();
  const OpenMemory open;
  node.work.run();
}

}  // namespace

}  // namespace null_device

using namespace null_device;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  BERT_BEGIN_CALL();
  const Lock held = lock();
  Stream* const stream = stream_of(handle);
  if (is_default(stream)) {
    fault("a capture of the legacy stream");
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->graph != nullptr) return failed(cudaErrorIllegalState);
  static uint64_t graphs = 0;
  auto* const graph = new Graph;
  graph->id = ++graphs;
  graph->origin = stream;
  graph->streams = {stream};
  graph->mode = mode;
  graph->thread = std::this_thread::get_id();
  graph->history = std::make_shared<AccessHistory>();
  stream->graph = graph;
  running_captures().push_back(graph);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  BERT_BEGIN_CALL();
  const Lock held = lock();
  Stream* const stream = stream_of(handle);
  Graph* const graph = stream->graph;
  *out = nullptr;
  if (graph == nullptr || graph->origin != stream) return failed(cudaErrorStreamCaptureUnmatched);
  if (graph->mode != cudaStreamCaptureModeRelaxed && graph->thread != std::this_thread::get_id())
    return break_capture(*graph, "a capture ends on another thread than it began on",
                         cudaErrorStreamCaptureWrongThread);
  for (Stream* captured : graph->streams) captured->graph = nullptr;
  std::erase(running_captures(), graph);
  std::unique_ptr<Graph> ended(graph);
  if (graph->invalid) return failed(cudaErrorStreamCaptureInvalidated);
  if (!is_joined(*graph))
    return break_capture(*graph, "the capture ends before its stream has waited for all that it forked to",
                         cudaErrorStreamCaptureUnjoined);
  *out = reinterpret_cast<cudaGraph_t>(ended.release());
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  touch_device(__func__);
  const Lock held = lock();
  *status = status_of(stream_of(stream)->graph);
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* out, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count_of_dependencies) {
  const Lock held = lock();
  Graph* const graph = stream_of(stream)->graph;
  *status = status_of(graph);
  if (id != nullptr) *id = graph != nullptr ? graph->id : 0;
  if (out != nullptr) *out = reinterpret_cast<cudaGraph_t>(graph);
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count_of_dependencies != nullptr) *count_of_dependencies = 0;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long /*flags*/) {
  BERT_BEGIN_CALL();
  *out = reinterpret_cast<cudaGraphExec_t>(new Graph(*graph_of(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* number) {
  std::vector<Graph::Node>& have = graph_of(graph)->nodes;
  for (size_t i = 0; nodes != nullptr && i < std::min(*number, have.size()); ++i)
    nodes[i] = reinterpret_cast<cudaGraphNode_t>(&have[i]);
  *number = have.size();
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t /*node*/, cudaGraphNode_t* /*dependencies*/,
                                         cudaGraphEdgeData* /*edges*/, size_t* number) {
  *number = 0;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph_of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph_of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
  BERT_BEGIN_CALL();
  add_count("replay");
  Stream& stream = *stream_of(handle);
  if (stream.graph != nullptr) {
    const Lock held = lock();
    return break_capture(*stream.graph, "a graph inside of a graph is not made", cudaErrorNotSupported);
  }
  const std::lock_guard turn(stream.turn);
  for (const Graph::Node& node : graph_of(graph)->nodes) run_node(stream, node);
  return cudaSuccess;
}

}  // extern "C"
