// The resources of each kernel as nvcc prints them (target cuda_compile) against the table below: no spills, and
// the occupancy. With a disassembler, also the instructions made of vectors.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/places.h"
#include "tests/testing.h"

namespace bert {
namespace {

struct Resources {
  std::string kernel, symbol;  // kernel: the name in the source
  int registers = 0, shared_bytes = 0, spilled_bytes = 0, stack_bytes = 0;
};

/// Reads the output of `nvcc --resource-usage`.
std::vector<Resources> parse_resources(const std::string& text) {
  static const std::regex kEntry("Compiling entry function '(\\w+)'"), kName("\\d([a-z][a-z_]*_kernel)"),
      kSpills("(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill loads"),
      kRegisters("Used (\\d+) registers"), kShared("(\\d+) bytes smem");
  std::vector<Resources> all;
  std::istringstream lines(text);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, kEntry)) {
      all.push_back({});
      all.back().kernel = all.back().symbol = match[1];
      if (std::smatch name; std::regex_search(all.back().symbol, name, kName)) all.back().kernel = name[1];
    }
    if (all.empty()) continue;
    if (std::regex_search(line, match, kSpills)) {
      all.back().stack_bytes = std::stoi(match[1]);
      all.back().spilled_bytes = std::stoi(match[2]) + std::stoi(match[3]);
    }
    if (std::regex_search(line, match, kRegisters)) all.back().registers = std::stoi(match[1]);
    if (std::regex_search(line, match, kShared)) all.back().shared_bytes = std::stoi(match[1]);
  }
  return all;
}

/// The share of the 64 warps of an SM of sm_90 that can be resident. Equal to cuda_occupancy.h for every number of
/// threads, registers and shared bytes (compared once, 737,280 cases, CUDA 13.0).
double occupancy(int threads, int registers, int shared_bytes) {
  const int warps = threads / 32, registers_per_warp = (registers * 32 + 255) / 256 * 256;
  const int warps_by_registers = 65536 / 4 / registers_per_warp * 4;       // four partitions
  const int block_shared_bytes = (shared_bytes + 1024 + 127) / 128 * 128;  // 1 KiB is for the system
  const int blocks = std::min({64 / warps, 32, warps_by_registers / warps, 228 * 1024 / block_shared_bytes});
  return blocks * warps / 64.0;
}

struct Expectation {
  std::string kernel;
  std::string part;  // of the symbols of the instances meant; empty: all
  int threads;       // of a block
  double occupancy;  // at least this share of an SM's 64 warps
};

const Expectation kExpected[] = {
    {"adamw_kernel", "", 256, 0.50},
    {"bias_gelu_backward_kernel", "", 128, 0.43},
    {"bias_gelu_forward_kernel", "", 128, 0.43},
    {"cast_transpose_kernel", "", 128, 1.00},
    {"cross_entropy_backward_kernel", "", 256, 0.50},
    {"cross_entropy_forward_kernel", "", 256, 0.62},
    {"cross_entropy_mean_kernel", "", 1024, 1.00},
    {"dropout_kernel", "", 128, 1.00},
    {"dropout_mask_kernel", "", 128, 1.00},
    {"embedding_borders_kernel", "", 128, 0.56},
    {"embedding_chunks_kernel", "", 128, 0.50},
    {"embedding_keys_kernel", "", 256, 1.00},
    {"lamb_apply_kernel", "", 256, 0.62},
    {"lamb_moments_kernel", "", 256, 0.50},
    {"layer_norm_block_backward_kernel", "", 256, 0.50},
    {"layer_norm_block_forward_kernel", "", 256, 0.62},
    {"layer_norm_row_backward_kernel", "", 256, 0.25},
    {"layer_norm_row_backward_kernel", "ResidualRowsIN3c104Half", 128, 0.31},
    {"layer_norm_row_backward_kernel", "ResidualRowsIN3c108BFloat16", 128, 0.31},
    {"layer_norm_row_backward_kernel", "Lb1E", 128, 0.37},  // plain layer norm
    {"layer_norm_warp_forward_kernel", "", 128, 0.25},
    {"layer_norm_warp_forward_kernel", "RowsIN3c10", 128, 0.31},
    {"learning_rate_kernel", "", 32, 0.50},
    {"masked_softmax_group_backward_kernel", "", 128, 0.18},
    {"masked_softmax_group_forward_kernel", "", 128, 0.25},
    {"masked_softmax_row_backward_kernel", "", 128, 0.75},
    {"masked_softmax_row_forward_kernel", "", 128, 1.00},
    {"norm_kernel", "", 256, 0.62},
    {"sum_columns_kernel", "", 1024, 1.00},
    {"unscale_kernel", "", 256, 1.00},
};

/// Number of stores to global memory of each kind in each kernel of a disassembly: STG.E.128, or STG.E for 4 bytes.
std::map<std::string, std::map<std::string, int>> count_stores(std::istream& sass) {
  static const std::regex kFunction("Function : (\\w+)"), kStore("\\bSTG?\\.E[.\\w]*");
  std::map<std::string, std::map<std::string, int>> stores;
  std::string symbol;
  std::smatch match;
  for (std::string line; std::getline(sass, line);) {
    if (std::regex_search(line, match, kFunction)) symbol = match[1];
    if (std::regex_search(line, match, kStore)) ++stores[symbol][match[0]];
  }
  return stores;
}

constexpr const char* kSassSample =
    "\t\tFunction : _Z14dropout_kernelIN3c104HalfELi8EEv\n"
    "        /*0b20*/                   STG.E.128 desc[UR4][R8.64], R4 ;             /* 0x0000000408007986 */\n"
    "\t\tFunction : _Z5other\n"
    "        /*0b30*/              @!P0 STG.E desc[UR4][R8.64+0x4], R5 ;             /* 0x0000040508007986 */\n"
    "        /*0b40*/                   STG.E desc[UR4][R8.64+0x8], R6 ;             /* 0x0000080608007986 */\n";

TEST_CASE("Stores are read from a disassembly", "[unit]") {
  std::istringstream sass(kSassSample);
  const auto stores = count_stores(sass);
  REQUIRE(stores.size() == 2);
  CHECK(stores.at("_Z14dropout_kernelIN3c104HalfELi8EEv") == std::map<std::string, int>{{"STG.E.128", 1}});
  CHECK(stores.at("_Z5other") == std::map<std::string, int>{{"STG.E", 2}});
}

TEST_CASE("Kernels write vectors of 2-byte elements with one instruction", "[unit]") {
  static const std::regex kVectors(
      "(bias_gelu_forward|bias_gelu_backward|dropout)_kernelIN3c10(4Half|8BFloat16)E.*Li8E");
  int kernels = 0;
  for (const char* name : {"bias_gelu", "dropout"}) {
    std::ifstream sass(std::string(BERT_BINARY_DIR "/cuda_ext/sm_90/") + name + ".sass");
    if (!sass) BERT_SKIP("no disassembly: cuobjdump, which the CUDA toolkit has and nvcc's wheels have not, is absent");
    for (const auto& [symbol, stores] : count_stores(sass)) {
      if (!std::regex_search(symbol, kVectors)) continue;
      INFO(symbol);
      CHECK(stores.count("STG.E") == 0);
      CHECK(stores.count("ST.E") == 0);
      CHECK(stores.count("STG.E.128") == 1);
      ++kernels;
    }
  }
  CHECK(kernels == 18);  // two forms of GELU by four pairs of types, forward and backward; dropout by two types
}

constexpr const char* kSample =
    "ptxas info    : Compiling entry function "
    "'_ZN4bert12_GLOBAL__N__4466ea1f_12_cu_512ab2e218block_fancy_kernelIfEEvT_' for 'sm_90'\n"
    "ptxas info    : Function properties for _ZN4bert\n"
    "    24 bytes stack frame, 60 bytes spill stores, 40 bytes spill loads\n"
    "ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 1024 bytes smem\n"
    "ptxas info    : Compile time = 10.000 ms\n";

TEST_CASE("nvcc's resource usage is read", "[unit]") {
  const auto all = parse_resources(kSample);
  REQUIRE(all.size() == 1);
  CHECK(all[0].kernel == "block_fancy_kernel");
  CHECK(all[0].stack_bytes == 24);
  CHECK(all[0].spilled_bytes == 100);
  CHECK(all[0].registers == 255);
  CHECK(all[0].shared_bytes == 1024);
}

TEST_CASE("Occupancy is what cuda_occupancy.h computes", "[unit]") {
  CHECK(occupancy(256, 24, 1024) == 1.0);
  CHECK(occupancy(128, 96, 0) == 20.0 / 64);
  CHECK(occupancy(256, 118, 128) == 16.0 / 64);
  CHECK(occupancy(32, 16, 0) == 0.5);               // 32 blocks
  CHECK(occupancy(64, 16, 48 * 1024) == 8.0 / 64);  // 4 blocks by shared memory
}

TEST_CASE("Kernels do not spill and reach the occupancy expected of them", "[unit]") {
  std::ifstream file(BERT_BINARY_DIR "/cuda_resources.txt");
  if (!file) BERT_SKIP("no build/cuda_resources.txt: the target cuda_compile, which needs nvcc, has not been built");
  std::ostringstream text;
  text << file.rdbuf();
  const auto all = parse_resources(text.str());
  REQUIRE(!all.empty());
  std::set<std::string> expected;
  for (const Expectation& expectation : kExpected) {
    INFO(expectation.kernel << "[" << expectation.part << "] is expected; was it renamed?");
    expected.insert(expectation.kernel);
    double least = 2.0;
    for (const Resources& kernel : all) {
      if (kernel.kernel != expectation.kernel || kernel.symbol.find(expectation.part) == std::string::npos) continue;
      INFO(kernel.symbol << ": " << kernel.registers << " registers, " << kernel.shared_bytes << " shared bytes");
      const double reached = occupancy(expectation.threads, kernel.registers, kernel.shared_bytes);
      CHECK(reached >= expectation.occupancy);
      least = std::min(least, reached);
    }
    CHECK(least < expectation.occupancy + 0.1);  // the expectation is close to the actual share
  }
  for (const Resources& kernel : all) {
    INFO(kernel.symbol);
    CHECK(kernel.spilled_bytes == 0);
    CHECK(kernel.stack_bytes == 0);
    CHECK(expected.count(kernel.kernel) == 1);  // else the kernel has no row in the table
  }
}

}  // namespace
}  // namespace bert
