#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "app/config/fields.h"
#include "app/distributed/environment.h"
#include "app/net/network_interfaces.h"
#include "app/system/errors.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;

/// Sets these variables and unsets all others that tell the rank of a process.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values) {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_STEP_NUM_NODES",
                             "LOCAL_WORLD_SIZE",
                             "SLURM_LOCALID",
                             "SLURM_JOB_NODELIST",
                             "SLURM_STEP_NODELIST",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "GLOO_SOCKET_IFNAME",
                             "BERTRUN_LOCAL_ADDRESS"}) {
      const char* value = std::getenv(name);
      before_[name] = value != nullptr ? std::optional<std::string>(value) : std::nullopt;
      unsetenv(name);
    }
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : before_) value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

struct Expected {
  int64_t rank, world_size, local_rank;
  std::string master_addr;
  int64_t master_port;
};

void expect(const std::map<std::string, std::string>& variables, const Expected& want) {
  const Variables set(variables);
  const DistributedEnvironment got = distributed_environment();
  CHECK(got.rank == want.rank);
  CHECK(got.world_size == want.world_size);
  CHECK(got.local_rank == want.local_rank);
  CHECK(got.master_addr == want.master_addr);
  CHECK(got.master_port == want.master_port);
}

std::string error_of(const std::map<std::string, std::string>& variables) {
  const Variables set(variables);
  return testing::message_of<ConfigError>(distributed_environment);
}

}  // namespace

TEST_CASE("A rank comes from whichever launcher started the process", "[unit]") {
  expect({}, {0, 1, 0, "127.0.0.1", 29500});
  expect({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "host"}, {"MASTER_PORT", "1234"}},
         {3, 4, 1, "host", 1234});
  const std::map<std::string, std::string> slurm = {
      {"SLURM_PROCID", "5"},         {"SLURM_NTASKS", "24"}, {"SLURM_STEP_NUM_TASKS", "16"},
      {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_LOCALID", "1"}, {"SLURM_JOB_NODELIST", "gpu[07-09,12]"},
      {"SLURM_JOB_ID", "123456"}};
  expect(slurm, {5, 16, 1, "gpu07", 23456});
  auto step = slurm;  // a job step with fewer tasks than the job
  step.insert_or_assign("SLURM_STEP_NUM_TASKS", std::string("8"));
  step.emplace("SLURM_STEP_NODELIST", "gpu[08-09]");
  step.emplace("MASTER_PORT", "777");
  expect(step, {5, 8, 1, "gpu08", 777});
  expect({{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"SLURM_PROCID", "0"},  // mpirun inside a Slurm job
          {"SLURM_NTASKS", "2"}},
         {1, 2, 1, "127.0.0.1", 29500});
  auto torchrun = slurm;  // torchrun inside a Slurm job
  torchrun.emplace("RANK", "0");
  torchrun.emplace("WORLD_SIZE", "2");
  expect(torchrun, {0, 2, 0, "127.0.0.1", 29500});
  auto batch_script = slurm;  // without srun there are no other tasks
  batch_script.erase("SLURM_STEP_NUM_TASKS");
  expect(batch_script, {0, 1, 0, "127.0.0.1", 29500});
}

TEST_CASE("Steps of one Slurm job meet at ports of their own, as do the jobs beside it", "[unit]") {
  std::set<int64_t> ports;
  constexpr int kJobs = 20, kSteps = 20;
  for (int job = 0; job < kJobs; ++job) {
    for (int step = 0; step < kSteps; ++step) {
      const Variables set({{"SLURM_PROCID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "2"},
                           {"SLURM_JOB_ID", std::to_string(9990 + job)},
                           {"SLURM_STEP_ID", std::to_string(step)}});
      ports.insert(distributed_environment().master_port);
    }
  }
  CHECK(ports.size() == kJobs * kSteps);
  CHECK(*ports.begin() >= 20000);
  CHECK(*ports.rbegin() < 30000);
  expect({{"SLURM_PROCID", "0"},
          {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_JOB_ID", std::to_string(INT64_MAX)},
          {"SLURM_STEP_ID", "4294967290"}},  // the step id of salloc's shell
         {0, 2, 0, "127.0.0.1", 20000 + (5807 + 1009 * 7290) % 10000});
}

TEST_CASE("Whether several machines take part comes from the launcher", "[unit]") {
  const auto several = [](const std::map<std::string, std::string>& variables) {
    const Variables set(variables);
    return distributed_environment().several_machines;
  };
  CHECK_FALSE(several({}));
  CHECK_FALSE(several({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}}));
  CHECK(several({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}));
  CHECK(several({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}}));
  CHECK_FALSE(several({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "1"}}));
}

TEST_CASE("Variables that do not fit together are refused", "[unit]") {
  CHECK_THAT(error_of({{"WORLD_SIZE", "4"}}), Contains("WORLD_SIZE=4 without RANK"));
  CHECK_THAT(error_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), Contains("RANK=4: expected an integer from 0 to 3"));
  CHECK_THAT(error_of({{"RANK", "x"}, {"WORLD_SIZE", "4"}}), Contains("RANK=x"));
  CHECK_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}), Contains("from 1 to 65535"));
  CHECK_THAT(error_of({{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}), Contains("SLURM_PROCID=2"));
  CHECK_THAT(error_of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_JOB_NODELIST", "[1-2"}}),
             Contains("names no host; set MASTER_ADDR"));
  CHECK_THAT(
      error_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
      Contains("mpirun -x MASTER_ADDR=HOST"));
}

TEST_CASE("Outward leads the default route of the smallest metric, else the only interface", "[unit]") {
  const std::string heads = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
  const std::string local = "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
  const std::string slow = "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n";
  const std::string fast = "eth1\t00000000\t0101000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n";
  CHECK(outward_interface(heads + local + slow + fast) == "eth1");
  CHECK(outward_interface(heads + fast + slow) == "eth1");
  const std::string cluster = "eth0\t0000580A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
  CHECK(outward_interface(heads + cluster) == "eth0");
  CHECK(outward_interface(heads + cluster + cluster) == "eth0");
  CHECK(outward_interface(heads + cluster + local).empty());
  CHECK(outward_interface("").empty());
}

TEST_CASE("Interfaces that are named must be there", "[unit]") {
  const InterfaceAddresses present = {{"eth0", {"10.0.0.1", "fe80::1"}}, {"lo", {"127.0.0.1"}}};
  const auto chosen = [&](const std::string& names) {
    const std::map<std::string, std::string> variable = {{"GLOO_SOCKET_IFNAME", names}};
    const Variables set(variable);
    return chosen_interfaces(present);
  };
  CHECK(chosen("").empty());
  CHECK(chosen("lo") == std::vector<std::string>{"lo"});
  CHECK(chosen("lo,,eth0") == std::vector<std::string>{"lo", "eth0"});
  CHECK_THROWS_WITH(chosen("lo,ib0"),
                    "GLOO_SOCKET_IFNAME=lo,ib0: no interface ib0 is up with an address on this machine; there is eth0 "
                    "(10.0.0.1), lo (127.0.0.1)");
  CHECK_THROWS_AS(chosen("eth"), ConfigError);
  CHECK(interface_addresses().at("lo").front() == "127.0.0.1");
}

TEST_CASE("A machine's address in its job is bertrun's, else that of the route to the master", "[unit]") {
  const Variables none(std::map<std::string, std::string>{});
  CHECK(job_address("127.0.0.1", 29500)
            .empty());  // on the master's machine the address is a loopback address, useless for other machines
  CHECK(job_address("", 0).empty());
  CHECK(job_address("no.such.host.invalid", 1).empty());
  for (const auto& [name, addresses] : interface_addresses()) {
    for (const std::string& address : addresses) {
      if (name == "lo" || address.find(':') != std::string::npos) continue;
      CAPTURE(name, address);
      CHECK(job_address(address, 29500) == address);
    }
  }
  const std::map<std::string, std::string> variable = {{"BERTRUN_LOCAL_ADDRESS", "10.1.2.3"}};
  const Variables told(variable);
  CHECK(job_address("127.0.0.1", 29500) == "10.1.2.3");
}

TEST_CASE("The first host of a Slurm node list", "[unit]") {
  CHECK(first_slurm_host("node7") == "node7");
  CHECK(first_slurm_host("a,b") == "a");
  CHECK(first_slurm_host("gpu[03-07,12],login1") == "gpu03");
  CHECK(first_slurm_host("gpu[3]") == "gpu3");
  CHECK(first_slurm_host("gpu[3,5].cluster.org") == "gpu3.cluster.org");
  CHECK(first_slurm_host("r[1-2]n[04-05]") == "r1n04");
  CHECK_THROWS_AS(first_slurm_host(""), ConfigError);
  CHECK_THROWS_AS(first_slurm_host("gpu[3"), ConfigError);
}

}  // namespace bert
