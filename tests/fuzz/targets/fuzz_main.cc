// libFuzzer's entries. BERT_FUZZ_TARGET names the target; its seeds are written into the directory BERT_FUZZ_SEEDS.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "data/io/error.h"
#include "tests/fuzz/targets/fuzz_targets.h"

namespace {

bert::testing::FuzzTarget target;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  for (bert::testing::FuzzTarget& known : bert::testing::fuzz_targets()) {
    if (known.name == setting("BERT_FUZZ_TARGET")) target = std::move(known);
  }
  if (target.read == nullptr) {
    std::fputs("BERT_FUZZ_TARGET names none of the targets in tests/fuzz/targets\n", stderr);
    std::exit(2);
  }
  for (size_t i = 0; i < target.seeds.size(); ++i) {
    const std::string path = setting("BERT_FUZZ_SEEDS") + "/seed-" + std::to_string(i);
    std::ofstream(path, std::ios::binary) << target.seeds[i];
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    target.read({reinterpret_cast<const char*>(data), size});
  } catch (const bert::DataError&) {
    // The reader's answer to bad bytes. Any other exception ends the program, which libFuzzer reports.
  }
  return 0;
}
