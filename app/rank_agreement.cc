#include "app/rank_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "app/collective_monitor.h"
#include "app/exit_codes.h"

namespace bert {
namespace {

constexpr const char* kSame = "same";

/// What another rank's text says that this rank's does not, a line for each; "" when they are the same.
using Difference = std::function<std::string(const std::string& other)>;

/// In rank 0: what all ranks are to hear.
std::string compare_all(c10d::Store& store, const std::string& prefix, int size, const Difference& difference) {
  std::map<std::string, std::vector<int>> ranks_with;
  for (int rank = 1; rank < size; ++rank) {
    const std::string lines = difference(store.get_to_str(prefix + std::to_string(rank)));
    if (!lines.empty()) ranks_with[lines].push_back(rank);
  }
  std::string verdict;
  for (const auto& [lines, ranks] : ranks_with)
    verdict += fmt::format("\n{} and rank 0:{}", describe_ranks(ranks), lines);
  return verdict.empty() ? kSame : verdict;
}

/// Every rank gives `own`; rank 0 compares.
void expect_same(const ProcessGroupPtr& group, const std::string& what, const std::string& own,
                 const Difference& difference) {
  constexpr std::chrono::milliseconds kLinger(150);  // rank 0 may hold the store: the others read its verdict first
  if (!group) return;
  c10d::Store& store = *group->getStore();
  const std::string prefix = "same " + what + "/", verdict_key = prefix + "verdict";
  const int rank = get_rank(group);
  std::string verdict;
  try {
    if (rank == 0) {
      verdict = compare_all(store, prefix, get_world_size(group), difference);
      store.set(verdict_key, verdict);
    } else {
      store.set(prefix + std::to_string(rank), own);
      verdict = store.get_to_str(verdict_key);
    }
  } catch (const c10::Error& error) {
    throw PeerError("rank " + std::to_string(rank) + " cannot compare its " + what +
                    " with that of the others: check their logs. (" + first_line(error) + ")");
  }
  if (verdict == kSame) return;
  if (rank == 0) std::this_thread::sleep_for(kLinger);
  throw ConfigError("ranks do not have the same " + what + ":" + verdict +
                    "\nStart all of them with the same command and the same files.");
}

bool may_differ(const std::string& pointer) {
  constexpr std::array<std::string_view, 5> kKeys = {"/num_threads", "/distributed/init_method", "/data/train",
                                                     "/data/validation", "/data/vocab_file"};
  return std::any_of(kKeys.begin(), kKeys.end(),
                     [&](std::string_view key) { return std::string_view(pointer).starts_with(key); });
}

}  // namespace

ProcessGroupPtr expect_same_config(ProcessGroupPtr group, const PretrainConfig& config) {
  expect_same(group, "configuration", to_json(config), [&](const std::string& other) {
    std::string lines;
    for (const ConfigDifference& d : compare(config, parse_pretrain_config(other, "another rank's configuration"))) {
      if (!may_differ(d.pointer)) lines += fmt::format("\n  {}: {}, on rank 0 {}", d.pointer, d.after, d.before);
    }
    return lines;
  });
  return group;
}

void expect_same_data(const ProcessGroupPtr& group, const std::map<std::string, DataIdentity>& data) {
  const auto text_of = [](const DataIdentity& identity) {
    return fmt::format("{} examples, checksum {}", identity.examples, identity.content_checksum);
  };
  std::string own;  // a line for each key
  for (const auto& [key, identity] : data) own += fmt::format("data.{}: {}\n", key, text_of(identity));
  expect_same(group, "data", own,
              [&](const std::string& other) { return other == own ? "" : "\n" + other + "on rank 0\n" + own; });
}

}  // namespace bert
