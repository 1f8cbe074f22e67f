#include "app/profile/step_profile.h"

#include <ATen/record_function.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "app/system/phase.h"
#include "data/io/files.h"

namespace bert {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using Json = nlohmann::ordered_json;

constexpr double kMsOfNs = 1e-6;
constexpr size_t kLargest = 20;
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kNoOperator = "(no operator)";

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view part) { return name.starts_with(part); });
}

struct Interval {
  uint64_t begin, end;  // ns
  std::string name;
};

bool has_name_of_phase(const profiler::KinetoEvent& event) {
  return std::find(kPhaseNames.begin(), kPhaseNames.end(), event.name()) != kPhaseNames.end();
}

bool is_phase(const profiler::KinetoEvent& event) {
  return static_cast<at::RecordScope>(event.scope()) == at::RecordScope::USER_SCOPE &&
         event.deviceType() == c10::DeviceType::CPU && has_name_of_phase(event);
}

std::vector<Interval> phases_of(const std::vector<profiler::KinetoEvent>& events) {
  std::vector<Interval> phases;
  for (const profiler::KinetoEvent& event : events) {
    if (is_phase(event)) phases.push_back({event.startNs(), event.endNs(), event.name()});
  }
  std::sort(phases.begin(), phases.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return phases;
}

/// The phase in which the moment lies; empty: in none.
std::string phase_at(const std::vector<Interval>& phases, uint64_t moment) {
  const auto after = std::upper_bound(phases.begin(), phases.end(), moment,
                                      [](uint64_t at, const Interval& phase) { return at < phase.begin; });
  if (after == phases.begin() || std::prev(after)->end < moment) return {};
  return std::prev(after)->name;
}

double elements(const std::vector<int64_t>& shape) {
  double count = 1;
  for (const int64_t size : shape) count *= static_cast<double>(size);
  return count;
}

double bytes_of_type(std::string_view type) {
  if (type == "float" || type == "int") return 4;
  if (type == "double" || type == "long" || type == "long int") return 8;
  if (type == "c10::Half" || type == "c10::BFloat16" || type == "short") return 2;
  if (type == "unsigned char" || type == "signed char" || type == "bool") return 1;
  return 0;
}

double flops_of(const profiler::KinetoEvent& event) {
  const std::string name = event.name();
  const auto shapes = event.shapes();
  const auto size = [&](size_t input) { return input < shapes.size() ? elements(shapes[input]) : 0.0; };
  const auto rows = [&] { return shapes.empty() || shapes[0].empty() ? 0.0 : static_cast<double>(shapes[0][0]); };
  if (name == "bert::linear" || name == "bert::padded_linear" || name.starts_with("bert::linear_gelu"))
    return 2 * rows() * size(1);
  if (name == "bert::linear_sums" && shapes.size() > 1 && !shapes[1].empty())
    return 2 * size(0) * static_cast<double>(shapes[1].back());
  if (name == "bert::linear_backward") return 4 * rows() * size(2);
  // Of sequences of one length: with other lengths the products are more.
  const auto scores = [&](size_t qkv, size_t cu_seqlens) {
    return size(qkv) / 3 * static_cast<double>(shapes[qkv][0]) / std::max(1.0, size(cu_seqlens) - 1);
  };
  if (name == "bert::attention" && shapes.size() > 1 && !shapes[0].empty()) return 4 * scores(0, 1);
  if (name == "bert::attention_backward" && shapes.size() > 5 && !shapes[1].empty()) return 8 * scores(1, 5);
  if (name == "bert::qkv_linear") return 2 * rows() * (size(1) + size(2) + size(3));
  return static_cast<double>(event.flops());
}

/// Note [Attribution of time]. 0 if no input is a tensor.
double bytes_of(const profiler::KinetoEvent& event) {
  const auto shapes = event.shapes();
  const auto types = event.dtypes();
  double bytes = 0;
  for (size_t i = 0; i < std::min(shapes.size(), types.size()); ++i) {
    const double input = shapes[i].empty() ? 0 : elements(shapes[i]) * bytes_of_type(types[i]);
    bytes += i == 0 ? 2 * input : input;
  }
  return bytes;
}

/// The calls of the host: an operator of bert has the calls inside it, and any other call has none of those.
class HostCalls {
 public:
  struct Call {
    const profiler::KinetoEvent* event;
    double own;  // ns
  };

  explicit HostCalls(const std::vector<profiler::KinetoEvent>& events) {
    std::map<uint64_t, std::vector<const profiler::KinetoEvent*>> of_thread;
    for (const profiler::KinetoEvent& event : events) {
      if (event.deviceType() == c10::DeviceType::CPU && !event.isAsync())
        of_thread[event.startThreadId()].push_back(&event);
    }
    for (auto& [thread, calls] : of_thread) add_thread(calls);
  }
  [[nodiscard]] const std::vector<Call>& calls() const { return calls_; }
  /// The call to which the work of the event with this correlation belongs; nullptr: there is none.
  [[nodiscard]] const profiler::KinetoEvent* owner(uint64_t correlation) const {
    const auto found = owners_.find(correlation);
    return correlation == 0 || found == owners_.end() ? nullptr : found->second;
  }

 private:
  struct Open {
    const profiler::KinetoEvent* event;
    double inside = 0;  // ns of the calls inside it
  };

  void close() {
    const Open call = open_.back();
    open_.pop_back();
    const auto whole = static_cast<double>(call.event->durationNs());
    if (!open_.empty()) open_.back().inside += whole;
    calls_.push_back({call.event, std::max(0.0, whole - call.inside)});
  }

  void add_thread(std::vector<const profiler::KinetoEvent*>& events) {
    std::stable_sort(events.begin(), events.end(), [](const auto* a, const auto* b) {
      return a->startNs() != b->startNs() ? a->startNs() < b->startNs() : a->endNs() > b->endNs();
    });
    for (const profiler::KinetoEvent* event : events) {
      while (!open_.empty() && open_.back().event->endNs() <= event->startNs()) close();
      if (open_.empty() || !open_.back().event->name().starts_with("bert::")) open_.push_back({.event = event});
      owners_[event->correlationId()] = open_.back().event;
    }
    while (!open_.empty()) close();
  }

  std::vector<Open> open_;
  std::vector<Call> calls_;
  std::map<uint64_t, const profiler::KinetoEvent*> owners_;
};

/// Sums of calls by operator and phase.
class OperatorTimes {
 public:
  explicit OperatorTimes(const std::vector<Interval>& phases) : phases_(phases) {}

  void add(const profiler::KinetoEvent& call, double own_ns) {
    const std::string phase = phase_at(phases_, call.startNs()), name = is_phase(call) ? kNoOperator : call.name();
    OperatorTime& time = times_[{name, phase}];
    time.name = name;
    time.phase = phase;
    time.self_ms += own_ns * kMsOfNs;
    if (!counted_.insert(&call).second) return;
    ++time.calls;
    if (is_phase(call) || call.deviceType() != c10::DeviceType::CPU) return;
    time.flops += flops_of(call);
    time.bytes += bytes_of(call);
  }
  std::vector<OperatorTime> take() {
    std::vector<OperatorTime> all;
    for (auto& [key, time] : times_) all.push_back(std::move(time));
    return all;
  }

 private:
  const std::vector<Interval>& phases_;
  std::map<std::pair<std::string, std::string>, OperatorTime> times_;
  std::set<const profiler::KinetoEvent*> counted_;
};

/// Note [Attribution of time].
std::vector<OperatorTime> operator_times(const std::vector<profiler::KinetoEvent>& events,
                                         const std::vector<Interval>& phases, bool of_kernels) {
  const HostCalls host(events);
  OperatorTimes times(phases);
  if (of_kernels) {
    for (const profiler::KinetoEvent& event : events) {
      // CUPTI has an event on the device for each phase too, beside those of the kernels inside it.
      if (event.deviceType() != c10::DeviceType::CUDA || has_name_of_phase(event)) continue;
      const profiler::KinetoEvent* const owner = host.owner(event.linkedCorrelationId());
      times.add(owner != nullptr ? *owner : event, static_cast<double>(event.durationNs()));
    }
    return times.take();
  }
  for (const HostCalls::Call& call : host.calls()) {
    if (!phase_at(phases, call.event->startNs()).empty()) times.add(*call.event, call.own);
  }
  return times.take();
}

/// One entry a name, the longest first.
std::vector<OperatorTime> by_name(const std::vector<OperatorTime>& times) {
  std::map<std::string, OperatorTime> merged;
  for (const OperatorTime& time : times) {
    OperatorTime& sum = merged[time.name];
    sum.name = time.name;
    sum.calls += time.calls;
    sum.self_ms += time.self_ms;
    sum.flops += time.flops;
    sum.bytes += time.bytes;
  }
  std::vector<OperatorTime> all;
  for (auto& [name, time] : merged) all.push_back(std::move(time));
  std::stable_sort(all.begin(), all.end(),
                   [](const OperatorTime& a, const OperatorTime& b) { return a.self_ms > b.self_ms; });
  return all;
}

bool between_steps(const std::string& phase) {
  return phase == name_of(Phase::kEvaluation) || phase == name_of(Phase::kCheckpoint);
}

const char* group_of(const OperatorTime& time) {
  if (time.phase == name_of(Phase::kUpdate)) return kOptimizer;
  if (time.phase == name_of(Phase::kReduction)) return "reduction of gradients";
  if (starts_with_any(time.name, {"bert::linear", "bert::qkv_linear", "bert::padded_linear", "bert::fp8_linear",
                                  "aten::mm", "aten::addmm"}))
    return "linear layers";
  if (starts_with_any(time.name, {"bert::attention", "bert::masked_softmax", "aten::bmm", "aten::baddbmm"}))
    return "attention";
  if (starts_with_any(time.name, {"bert::embedding", "aten::embedding"})) return "embeddings";
  if (starts_with_any(time.name, {"bert::bias_gelu"})) return "GELU";
  if (starts_with_any(time.name, {"bert::layer_norm", "bert::bias_dropout", "bert::dropout"}))
    return "LayerNorm, dropout, residual sums";
  if (starts_with_any(time.name, {"bert::cross_entropy"})) return "loss";
  if (time.name == kNoOperator) return "no operator";
  return "other operators of LibTorch";
}

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(nullptr); }

/// A row of one step on average.
Json row_of(const OperatorTime& time, const DeviceLimits& limits, double steps, double step_ms) {
  return {{"calls", static_cast<double>(time.calls) / steps},
          {"self_ms", time.self_ms / steps},
          {"share", time.self_ms / steps / step_ms},
          {"flops", time.flops / steps},
          {"bytes", time.bytes / steps},
          {"limit_ms", number_or_null(limit_ms(time, limits) / steps)}};
}

/// The gaps of breakdown().
Json largest_gaps(const Json& groups) {
  constexpr size_t kShown = 5;
  std::vector<std::pair<double, std::string>> gaps;
  for (const Json& row : groups) {
    const double limit = row["limit_ms"].is_null() ? 0.0 : row["limit_ms"].get<double>();
    gaps.emplace_back(row["self_ms"].get<double>() - limit, row["group"].get<std::string>());
  }
  std::sort(gaps.begin(), gaps.end(), std::greater<>());
  Json list = Json::array();
  for (const auto& [gap, group] : gaps) {
    if (gap > 0 && list.size() < kShown) list.push_back({{"group", group}, {"gap_ms", gap}});
  }
  return list;
}

double step_ms_of(const ProfileTimes& times, double steps) {
  double ms = times.ms;
  for (const auto& [phase, of_phase] : times.phase_ms) {
    if (between_steps(phase)) ms -= of_phase;
  }
  return ms / steps;
}

}  // namespace

void ProfileTimes::add(ProfileTimes more) {
  ms += more.ms;
  for (const auto& [phase, of_phase] : more.phase_ms) phase_ms[phase] += of_phase;
  std::move(more.operators.begin(), more.operators.end(), std::back_inserter(operators));
}

Json limits_json(const DeviceLimits& limits) {
  return {{"gemm_tflops", 1e-12 * limits.flops_per_second}, {"copy_gb_per_second", 1e-9 * limits.bytes_per_second}};
}

double limit_ms(const OperatorTime& time, const DeviceLimits& limits) {
  const auto at_rate = [](double amount, double rate) { return rate > 0 ? 1e3 * amount / rate : 0.0; };
  return std::max(at_rate(time.flops, limits.flops_per_second), at_rate(time.bytes, limits.bytes_per_second));
}

Profiler::Profiler(c10::Device device) : device_(device) {
  std::set<ActivityType> activities{ActivityType::CPU};
  if (device_.is_cuda()) activities.insert(ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                     /*report_input_shapes=*/true, /*profile_memory=*/false,
                                                     /*with_stack=*/false, /*with_flops=*/true, /*with_modules=*/false);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE});
}

Profiler::~Profiler() {
  if (stopped_) return;
  try {
    profiler::disableProfiler();
  } catch (...) {  // an error is on its way
  }
}

ProfileTimes Profiler::stop(const std::string& trace) {
  stopped_ = true;
  const std::unique_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();
  if (!trace.empty()) {
    AtomicFile file(trace);
    result->save(file.temporary_name());
    file.commit();
  }
  const std::vector<profiler::KinetoEvent>& events = result->events();
  const std::vector<Interval> phases = phases_of(events);
  ProfileTimes times;
  if (phases.empty()) return times;
  uint64_t end = 0;
  for (const Interval& phase : phases) {
    end = std::max(end, phase.end);
    times.phase_ms[phase.name] += static_cast<double>(phase.end - phase.begin) * kMsOfNs;
  }
  times.ms = static_cast<double>(end - phases.front().begin) * kMsOfNs;
  times.operators = operator_times(events, phases, device_.is_cuda());
  return times;
}

Json profile_report(const ProfileTimes& times, const DeviceLimits& limits, int64_t first, int64_t last) {
  const auto steps = static_cast<double>(last - first + 1);
  const double step_ms = step_ms_of(times, steps);
  Json parts = Json::array(), operators = Json::array();
  for (const char* phase : kPhaseNames) {
    const auto found = times.phase_ms.find(phase);
    if (found == times.phase_ms.end()) continue;
    parts.push_back({{"name", phase},
                     {"ms", found->second / steps},
                     {"share", between_steps(phase) ? Json(nullptr) : Json(found->second / steps / step_ms)}});
  }
  std::vector<OperatorTime> all;
  std::copy_if(times.operators.begin(), times.operators.end(), std::back_inserter(all),
               [](const OperatorTime& time) { return !between_steps(time.phase); });
  all = by_name(all);
  for (size_t i = 0; i < std::min(all.size(), kLargest); ++i) {
    Json row = {{"name", all[i].name}};
    row.update(row_of(all[i], limits, steps, step_ms));
    operators.push_back(std::move(row));
  }
  return {{"steps", {first, last}},
          {"step_ms", step_ms},
          {"parts", std::move(parts)},
          {"operators", std::move(operators)},
          {"limits", limits_json(limits)}};
}

std::string profile_table(const Json& report) {
  std::string text = fmt::format("steps {} to {}: {:.2f} ms a step", report["steps"][0].get<int64_t>(),
                                 report["steps"][1].get<int64_t>(), report["step_ms"].get<double>());
  for (const Json& part : report["parts"]) {
    text += fmt::format(", {} {:.2f}", part["name"].get<std::string>(), part["ms"].get<double>());
  }
  text += fmt::format("\n{:<58}{:>8}{:>10}{:>8}{:>10}", "operator", "calls", "ms", "share", "limit, ms");
  for (const Json& row : report["operators"]) {
    text += fmt::format("\n{:<58.57}{:>8.1f}{:>10.3f}{:>6.1f} %{:>10}", row["name"].get<std::string>(),
                        row["calls"].get<double>(), row["self_ms"].get<double>(), 100 * row["share"].get<double>(),
                        row["limit_ms"].is_null() ? "-" : fmt::format("{:.3f}", row["limit_ms"].get<double>()));
  }
  return text;
}

Json breakdown(const ProfileTimes& times, const DeviceLimits& limits, int64_t steps, int64_t update_bytes) {
  std::vector<OperatorTime> groups;
  for (OperatorTime time : times.operators) {
    time.name = group_of(time);
    groups.push_back(std::move(time));
  }
  groups = by_name(groups);
  Json rows = Json::array();
  const auto count = static_cast<double>(steps);
  for (OperatorTime& group : groups) {
    if (group.name == kOptimizer) group.bytes = static_cast<double>(update_bytes * steps);
    Json row = {{"group", group.name}};
    row.update(row_of(group, limits, count, step_ms_of(times, count)));
    rows.push_back(std::move(row));
  }
  Json gaps = largest_gaps(rows);
  return {{"step_ms", step_ms_of(times, count)},
          {"groups", std::move(rows)},
          {"gaps", std::move(gaps)},
          {"limits", limits_json(limits)}};
}

}  // namespace bert
