#include "app/train/rank_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "app/distributed/store_waits.h"
#include "app/system/errors.h"
#include "app/system/stop_signals.h"
#include "app/system/torch_errors.h"
#include "app/train/run_inputs.h"

namespace bert {
namespace {

using std::chrono::milliseconds;

constexpr const char* kSame = "same";
constexpr const char* kAbsent = "absent: ";  // prefix of a verdict

struct Subject {
  std::string what, own;  // name of the subject; the text of this rank
  milliseconds timeout;
};

/// The difference between another rank's text and this rank's, one line for each item; "" if they agree.
using Difference = std::function<std::string(const std::string& other)>;

/// Compares in rank 0. `keys` has the store key of each other rank's text. Returns kSame, or the differences.
std::string compare_all(c10d::Store& store, const std::map<int, std::string>& keys, const Difference& difference) {
  std::map<std::string, std::vector<int>> ranks_with;
  for (const auto& [rank, text] : read_present(store, keys)) {
    const std::string lines = difference(text);
    if (!lines.empty()) ranks_with[lines].push_back(rank);
  }
  std::string verdict;
  for (const auto& [lines, ranks] : ranks_with)
    verdict += fmt::format("\n{} and rank 0:{}", describe_ranks(ranks), lines);
  return verdict.empty() ? kSame : verdict;
}

/// The longest wait for a rank whose heartbeat continues: it may be slow, or hang where no timeout notices it.
milliseconds patience(milliseconds timeout) { return 10 * timeout; }

/// Throws Preempted after a signal. The run has nothing to save yet.
void stop_if_asked() {
  if (StopSignals::arrived())
    throw Preempted("stopped by a signal before all ranks had compared what they have; nothing was done, run again");
}

/// Compares the text `own` of all ranks. Rank 0 compares and tells all ranks which ones differ or are absent.
void expect_same(const ProcessGroupPtr& group, const Subject& subject, const Difference& difference) {
  if (!group) return;
  const auto store = store_of(group);
  const std::string prefix = "same " + subject.what + "/", verdict_key = prefix + "verdict";
  const int rank = get_rank(group);
  std::string verdict;
  try {
    if (rank == 0) {
      std::map<int, std::string> keys;
      for (int other = 1; other < get_world_size(group); ++other) keys[other] = prefix + std::to_string(other);
      const std::string absent = wait_for_ranks(store, {.what = subject.what,
                                                        .rank = rank,
                                                        .size = get_world_size(group),
                                                        .keys = keys,
                                                        .timeout = subject.timeout,
                                                        .longest = patience(subject.timeout),
                                                        .waiting = stop_if_asked});
      verdict = absent.empty() ? compare_all(*store, keys, difference) : kAbsent + absent;
      store->set(verdict_key, verdict);
    } else {
      store->set(prefix + std::to_string(rank), subject.own);
      const std::string absent = wait_for_ranks(store, {.what = "comparison of every rank's " + subject.what,
                                                        .rank = rank,
                                                        .size = get_world_size(group),
                                                        .keys = {{0, verdict_key}},
                                                        .timeout = subject.timeout,
                                                        .longest = patience(subject.timeout),
                                                        .waiting = stop_if_asked});
      verdict = absent.empty() ? store->get_to_str(verdict_key) : kAbsent + absent;
    }
  } catch (const c10::Error& error) {
    throw PeerError(fmt::format("rank {} cannot compare its {} with that of the others: check rank 0's log. ({})", rank,
                                subject.what, first_line(error.what())));
  }
  if (verdict == kSame) return;
  if (rank == 0) std::this_thread::sleep_for(Pace(get_world_size(group)).linger_for_looks);
  if (verdict.starts_with(kAbsent)) throw PeerError(verdict.substr(std::string_view(kAbsent).size()));
  throw ConfigError("ranks do not have the same " + subject.what + ":" + verdict +
                    "\nStart all of them with the same command and the same files.");
}

bool may_differ(const std::string& pointer) {
  constexpr std::array<std::string_view, 5> kKeys = {"/num_threads", "/distributed/init_method", "/data/train",
                                                     "/data/validation", "/data/vocab_file"};
  return std::ranges::any_of(kKeys, [&](std::string_view key) { return std::string_view(pointer).starts_with(key); });
}

/// The paths of data.sources may differ, their weights may not.
PretrainConfig without_source_paths(PretrainConfig config) {
  for (DataSourceConfig& source : config.data.sources) source.path.clear();
  return config;
}

/// True if the environment asks, as PyTorch's users do, for a comparison of every collective between the ranks.
bool asks_for_comparisons() {
  const char* const level = std::getenv("TORCH_DISTRIBUTED_DEBUG");
  return level != nullptr && std::string_view(level) == "DETAIL";
}

}  // namespace

ProcessGroupPtr join(const RunConfig& config, c10::Device device) {
  return init_process_group({.backend = config.distributed.backend,
                             .init_method = config.distributed.init_method,
                             .timeout_seconds = config.distributed.timeout_seconds,
                             .device = device,
                             .debug = asks_for_comparisons()});
}

void expect_same_config(const ProcessGroupPtr& group, const std::string& json, int64_t timeout_seconds,
                        const std::function<std::vector<ConfigDifference>(const std::string& other)>& compare) {
  const Subject subject = {.what = "configuration", .own = json, .timeout = std::chrono::seconds(timeout_seconds)};
  expect_same(group, subject, [&](const std::string& other) {
    std::string lines;
    for (const ConfigDifference& d : compare(other)) {
      if (!may_differ(d.pointer)) lines += fmt::format("\n  {}: {}, on rank 0 {}", d.pointer, d.after, d.before);
    }
    return lines;
  });
}

void expect_same_config(const ProcessGroupPtr& group, const PretrainConfig& config) {
  expect_same_config(group, to_json(config), config.distributed.timeout_seconds, [&](const std::string& other) {
    const PretrainConfig theirs = parse_pretrain_config(other, "another rank's configuration");
    return compare(without_source_paths(config), without_source_paths(theirs));
  });
}

void expect_same_data(const ProcessGroupPtr& group, const std::map<std::string, DataIdentity>& data,
                      int64_t timeout_seconds) {
  std::string own;  // one line for each key
  for (const auto& [key, identity] : data) own += fmt::format("{}: {}\n", field_of_data(key), describe(identity));
  expect_same(group, {.what = "data", .own = own, .timeout = std::chrono::seconds(timeout_seconds)},
              [&](const std::string& other) { return other == own ? "" : "\n" + other + "on rank 0\n" + own; });
}

}  // namespace bert
