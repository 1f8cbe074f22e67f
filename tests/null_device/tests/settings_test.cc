// The settings of the device. Each needs a process of its own: a hidden test case, which runs with these variables.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/cuda.h>

#include <nlohmann/json.hpp>

#include "tests/null_device/tests/device_testing.h"

namespace bert {
namespace {

using at::Tensor;
using namespace testing;

using Variables = std::map<std::string, std::string>;

void check_process(const TestProgram& program, const Variables& variables) {
  const Ended ended = run_in_process(program, variables);
  CHECK(ended.code == 0);
  CHECK(ended.signal == 0);
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// The text of the error that the body throws.
template <class Error, class Body>
std::string thrown_by(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace

const TestProgram kSeesDevices("a process that looks at the devices it sees", [] {
  std::string seen;  // the numbers in the machine
  for (int i = 0; i < torch::cuda::device_count(); ++i) {
    const cudaDeviceProp* const properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(i));
    seen += std::to_string(properties->uuid.bytes[15]) +
            (std::string(properties->name).find("MIG") != std::string::npos
                 ? " as a slice of " + std::to_string(properties->totalGlobalMem >> 20) + " MB"
                 : "") +
            ";";
    const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(i));
    CHECK(on_host(filled(4, i, device)).sum().item<float>() == 4.0F * static_cast<float>(i));
  }
  CHECK(seen == variable("SEEN"));
  CHECK(torch::cuda::is_available() == !seen.empty());
});

TEST_CASE("CUDA_VISIBLE_DEVICES chooses devices by numbers, UUIDs and slices", "[cuda][null_device]") {
  const std::string uuid = "GPU-00000000-0000-0000-0000-00000000000";
  const std::map<std::string, std::string> seen = {{"", ""},
                                                   {"1,0", "1;0;"},
                                                   {"0,7,1", "0;"},
                                                   {"-1", ""},
                                                   {uuid + "1", "1;"},
                                                   {"GPU-", ""},  // of which?
                                                   {uuid + "1," + uuid + "0", "1;0;"},
                                                   {"MIG-GPU-0/1/0", "0 as a slice of 1170 MB;"}};
  for (const auto& [visible, devices] : seen) {
    INFO("CUDA_VISIBLE_DEVICES=" << visible);
    check_process(kSeesDevices, {{"CUDA_VISIBLE_DEVICES", visible}, {"SEEN", devices}});
  }
  check_process(kSeesDevices, {{"NULL_DEVICE_COUNT", "4"}, {"SEEN", "0;1;2;3;"}});
}

const TestProgram kWithoutDevice("a process without a device", [] {
  CHECK_FALSE(torch::cuda::is_available());
  CHECK(torch::cuda::device_count() == 0);
  int count = -1;
  const std::string error = cudaGetErrorString(cudaGetDeviceCount(&count));
  CHECK(count == 0);
  CHECK_THAT(error, Contains(variable("ERROR")));
  CHECK_THAT(thrown_by<c10::Error>([] { filled(1, 1.0); }), Contains(variable("LIBTORCH_ERROR")));
  CHECK(at::ones({2}).sum().item<float>() == 2.0F);
});

TEST_CASE("No device, and a driver that is too old, are errors as CUDA's", "[cuda][null_device]") {
  const std::string none = "no CUDA-capable device is detected", no_gpus = "No CUDA GPUs are available";
  check_process(kWithoutDevice, {{"NULL_DEVICE_COUNT", "0"}, {"ERROR", none}, {"LIBTORCH_ERROR", no_gpus}});
  check_process(kWithoutDevice, {{"CUDA_VISIBLE_DEVICES", ""}, {"ERROR", none}, {"LIBTORCH_ERROR", no_gpus}});
  check_process(kWithoutDevice,
                {{"NULL_DEVICE_DRIVER", "12080"},
                 {"ERROR", "CUDA driver version is insufficient for CUDA runtime version"},
                 {"LIBTORCH_ERROR", "The NVIDIA driver on your system is too old (found version 12080)"}});
}

const TestProgram kOnOtherKind("a process on a device of another kind", [] {
  const cudaDeviceProp* const properties = at::cuda::getDeviceProperties(0);
  CHECK(std::string(properties->name) == "an older device");
  CHECK(properties->major == 8);
  CHECK(properties->minor == 6);
  CHECK(properties->totalGlobalMem == size_t{256} << 20);
  size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(total == size_t{256} << 20);
  CHECK(free == total);
});

TEST_CASE("Name, capability and memory of the device are settings", "[cuda][null_device]") {
  check_process(
      kOnOtherKind,
      {{"NULL_DEVICE_NAME", "an older device"}, {"NULL_DEVICE_CAPABILITY", "86"}, {"NULL_DEVICE_MEMORY_MB", "256"}});
}

const TestProgram kFillsDevice("a process that fills a device of 64 MB", [] {
  const auto allocate = [](int64_t megabytes) {
    return at::empty({megabytes << 20}, at::TensorOptions().dtype(at::kByte).device(kFirst));
  };
  std::vector<Tensor> kept = {allocate(40)};
  const std::string text = thrown_by<c10::OutOfMemoryError>([&] { kept.push_back(allocate(30)); });
  CHECK_THAT(text, Contains("CUDA out of memory. Tried to allocate 30.00 MiB") &&
                       Contains("total capacity of 64.00 MiB") && Contains("of which 24.00 MiB is free"));
  kept.push_back(allocate(24));  // all of it
  CHECK(thrown_by<c10::OutOfMemoryError>([&] { kept.push_back(allocate(1)); }) != "");
  kept.clear();
  kept.push_back(allocate(60));  // the allocator gives back what is free
  CHECK(on_host(kept.front().fill_(1)).sum().item<int64_t>() == int64_t{60} << 20);
});

TEST_CASE("A device that is full is LibTorch's error, with what was asked and what is free", "[cuda][null_device]") {
  check_process(kFillsDevice, {{"NULL_DEVICE_MEMORY_MB", "64"}});
}

const TestProgram kFailsAtThirdLaunch("a process whose device fails at the third launch", [] {
  const Tensor x = filled(4, 1.0);  // the first
  x.add_(1.0);
  c10::cuda::getCurrentCUDAStream().synchronize();
  const std::string wanted = variable("ERROR");
  const auto fail = [&](const auto& call) { CHECK_THAT(thrown_by<c10::Error>(call), Contains(wanted)); };
  fail([&] {  // at the launch or when the host waits, as on a device
    x.add_(1.0);
    c10::cuda::getCurrentCUDAStream().synchronize();
  });
  fail([&] { on_host(x); });  // and for ever
  fail([&] { c10::cuda::device_synchronize(); });
  CHECK(cudaGetLastError() != cudaSuccess);
  CHECK(cudaDeviceSynchronize() == static_cast<cudaError_t>(std::stoi(variable("NULL_DEVICE_FAIL").substr(2))));
  CHECK(at::ones({2}).sum().item<float>() == 2.0F);
});

TEST_CASE("NULL_DEVICE_FAIL makes every later call fail", "[cuda][null_device]") {
  check_process(kFailsAtThirdLaunch, {{"NULL_DEVICE_FAIL", "3:710"}, {"ERROR", "device-side assert triggered"}});
  check_process(kFailsAtThirdLaunch, {{"NULL_DEVICE_FAIL", "3:719"}, {"ERROR", "unspecified launch failure"}});
}

const TestProgram kRaces("a process with a race", [] {
  const Tensor x = filled(4, 1.0);
  const c10::cuda::CUDAStreamGuard on(c10::cuda::getStreamFromPool());
  std::signal(SIGABRT, SIG_DFL);
  x.add_(1.0);
});

TEST_CASE("A broken rule ends the process with SIGABRT and a sentence, and stands in the log", "[cuda][null_device]") {
  const TemporaryDirectory directory;
  const Ended ended = run_in_process(kRaces, {{"NULL_DEVICE_LOG", directory.path("log")}});
  CHECK(ended.signal == SIGABRT);
  CHECK_THAT(ended.errors, Contains("null device: race: aten::add_.Tensor on stream ") && Contains("    at\n") &&
                               Contains("    and the other at\n"));
  std::ostringstream log;
  log << std::ifstream(directory.path("log")).rdbuf();
  CHECK_THAT(log.str(), Contains("cudaMalloc ") && Contains("stream 0: aten::fill_.Scalar") &&
                            Contains("FAULT race: aten::add_.Tensor"));
}

const TestProgram kCounts("a process that counts", [] { CHECK(on_host(filled(4, 1.0)).sum().item<float>() == 4.0F); });

TEST_CASE("NULL_DEVICE_REPORT names a file for the counts", "[cuda][null_device]") {
  const TemporaryDirectory directory;
  check_process(kCounts, {{"NULL_DEVICE_REPORT", directory.path("counts-%p.json")}});
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    ++files;
    CHECK_THAT(entry.path().filename().string(), Contains("counts-") && !Contains("%p"));
    const auto counts = nlohmann::json::parse(std::ifstream(entry.path()));
    CHECK(counts.at("device to pageable") == 1);
    CHECK(counts.at("wait") == 2);  // of the copy, and of LibTorch
    CHECK(counts.at("context") == 1);
    CHECK_FALSE(counts.contains("fault"));
  }
  CHECK(files == 1);
}

const TestProgram kRankOnDevice("a rank on a device", [] {
  const bool right = variable("LOCAL_RANK") == variable("USED");
  const auto device = static_cast<c10::DeviceIndex>(std::stoi(variable("USED")));
  const auto faults = faults_of([&] {
    const c10::cuda::CUDAGuard guard(device);
    filled(1, 1.0, c10::Device(c10::kCUDA, device));
  });
  if (right) return check_no_fault(faults);
  check_fault(faults, {"uses device " + variable("USED") + ", and LOCAL_RANK " + variable("LOCAL_RANK") +
                       " has device " + variable("LOCAL_RANK")});
});

TEST_CASE("A rank that starts on the device of another rank is found", "[cuda][null_device]") {
  for (const std::string rank : {"0", "1"}) {
    for (const std::string used : {"0", "1"}) {
      INFO("rank " << rank << " on device " << used);
      check_process(kRankOnDevice, {{"LOCAL_RANK", rank}, {"USED", used}});
    }
  }
}

}  // namespace bert
