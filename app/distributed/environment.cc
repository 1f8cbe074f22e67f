#include "app/distributed/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "app/system/environment.h"
#include "app/system/errors.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

constexpr int64_t kMostRanks = 1 << 20, kHighestPort = 65535;
constexpr int64_t kDefaultPort = 29500;  // default of torchrun
constexpr int64_t kLowestSlurmPort = 20000,
                  kSlurmPorts = 10000;   // below the ephemeral ports of Linux, which begin at 32768
constexpr int64_t kBetweenSteps = 1009;  // a prime: steps of consecutive jobs get different ports

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

int64_t integer_variable(const char* name, int64_t fallback, int64_t lowest, int64_t highest) {
  const char* text = std::getenv(name);
  if (text == nullptr) return fallback;
  const auto value = number_of<int64_t>(text);
  if (!value || *value < lowest || *value > highest) {
    throw ConfigError(std::string(name) + "=" + text + ": expected an integer from " + std::to_string(lowest) + " to " +
                      std::to_string(highest) + "; the launcher sets it");
  }
  return *value;
}

struct Variables {
  const char *rank, *world_size, *local_rank;
};

DistributedEnvironment read(const Variables& names) {
  DistributedEnvironment result;
  result.world_size = integer_variable(names.world_size, 1, 1, kMostRanks);
  result.rank = integer_variable(names.rank, 0, 0, result.world_size - 1);
  result.local_rank = integer_variable(names.local_rank, 0, 0, result.world_size - 1);
  result.local_size = integer_variable("LOCAL_WORLD_SIZE", result.world_size, 1, kMostRanks);
  result.several_machines = result.local_size < result.world_size;
  result.source = std::string(names.rank) + " and " + names.world_size;
  read_master(result);
  return result;
}

DistributedEnvironment read_open_mpi() {
  DistributedEnvironment result = read({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"});
  result.local_size = integer_variable("OMPI_COMM_WORLD_LOCAL_SIZE", result.world_size, 1, kMostRanks);
  result.several_machines = result.local_size < result.world_size;
  if (result.several_machines && !is_set("MASTER_ADDR")) {
    throw ConfigError(
        "Open MPI has started ranks on several machines and MASTER_ADDR is unset: give all ranks the "
        "address of rank 0's machine, mpirun -x MASTER_ADDR=HOST");
  }
  return result;
}

/// The largest number at the beginning of the parts of `list`, such as "4(x2),3"; 1 if there is none.
int64_t largest_number(std::string_view list) {
  int64_t largest = 1;
  while (!list.empty()) {
    const std::string_view part = take_part(list, ',');
    int64_t number = 0;
    std::from_chars(part.data(), part.data() + part.size(), number);
    largest = std::max(largest, number);
  }
  return largest;
}

DistributedEnvironment read_slurm() {
  DistributedEnvironment result = read({"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"});
  result.several_machines = integer_variable("SLURM_STEP_NUM_NODES", 1, 1, kMostRanks) > 1;
  if (is_set("SLURM_STEP_TASKS_PER_NODE")) result.local_size = largest_number(std::getenv("SLURM_STEP_TASKS_PER_NODE"));
  const char* nodes = is_set("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  if (!is_set("MASTER_ADDR") && is_set(nodes)) result.master_addr = first_slurm_host(std::getenv(nodes));
  if (!is_set("MASTER_PORT")) {
    const int64_t job = integer_variable("SLURM_JOB_ID", 0, 0, INT64_MAX) % kSlurmPorts;
    const int64_t step = integer_variable("SLURM_STEP_ID", 0, 0, INT64_MAX) % kSlurmPorts;
    result.master_port = kLowestSlurmPort + (job + kBetweenSteps * step) % kSlurmPorts;
  }
  return result;
}

}  // namespace

DistributedEnvironment distributed_environment() {
  if (is_set("RANK")) return read({"RANK", "WORLD_SIZE", "LOCAL_RANK"});
  if (integer_variable("WORLD_SIZE", 1, 1, kMostRanks) > 1) {
    throw ConfigError(std::string("WORLD_SIZE=") + std::getenv("WORLD_SIZE") +
                      " without RANK: start ranks with bertrun or torchrun");
  }
  if (is_set("OMPI_COMM_WORLD_RANK")) return read_open_mpi();
  if (is_set("SLURM_PROCID") && is_set("SLURM_STEP_NUM_TASKS")) return read_slurm();
  DistributedEnvironment alone;
  read_master(alone);
  return alone;
}

void read_master(DistributedEnvironment& environment) {
  environment.master_addr = variable_or("MASTER_ADDR", "127.0.0.1");
  environment.master_port = integer_variable("MASTER_PORT", kDefaultPort, 1, kHighestPort);
}

std::string first_slurm_host(const std::string& node_list) {
  std::string host;
  for (size_t i = 0; i < node_list.size() && node_list[i] != ','; ++i) {
    if (node_list[i] != '[') {
      host += node_list[i];
      continue;
    }
    const size_t close = node_list.find(']', i), first_end = node_list.find_first_of("-,]", i);
    if (close == std::string::npos) {
      host.clear();
      break;
    }
    host += node_list.substr(i + 1, first_end - i - 1);
    i = close;
  }
  if (host.empty() || host.find_first_of("[] ") != std::string::npos) {
    throw ConfigError("the node list \"" + node_list + "\" names no host; set MASTER_ADDR");
  }
  return host;
}

std::string take_query(const std::string& method, int64_t& rank, int64_t& world_size) {
  const size_t mark = method.find('?');
  if (mark == std::string::npos) return method;
  std::istringstream fields(method.substr(mark + 1));
  for (std::string field; std::getline(fields, field, '&');) {
    const size_t equals = field.find('=');
    const std::string name = field.substr(0, equals);
    const int64_t value =
        equals == std::string::npos ? -1 : number_of<int64_t>(std::string_view(field).substr(equals + 1)).value_or(-1);
    if ((name != "rank" && name != "world_size") || value < 0) {
      throw ConfigError("distributed.init_method \"" + method + "\": expected rank=N and world_size=N after the ?");
    }
    int64_t& target = name == "rank" ? rank : world_size;
    if (target < 0) target = value;
  }
  return method.substr(0, mark);
}

StorePlace parse_init_method(const std::string& text, const DistributedEnvironment& environment) {
  if (text == "env://") return {.file = "", .host = environment.master_addr, .port = environment.master_port};
  if (text.starts_with("file://") && text.size() > 8 && text[7] == '/') return {.file = text.substr(7), .host = ""};
  if (text.starts_with("tcp://")) {
    const size_t colon = text.rfind(':');
    StorePlace place{.file = "", .host = text.substr(6, colon - 6)};
    place.port = number_of<int64_t>(std::string_view(text).substr(colon + 1)).value_or(-1);
    if (place.host.size() > 2 && place.host.front() == '[' && place.host.back() == ']')  // IPv6
      place.host = place.host.substr(1, place.host.size() - 2);
    if (!place.host.empty() && place.port >= 1 && place.port <= kHighestPort) return place;
  }
  throw ConfigError("distributed.init_method \"" + text + "\": expected env://, tcp://HOST:PORT or file:///PATH");
}

}  // namespace bert
