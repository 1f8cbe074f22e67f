// Pickles of PyTorch's checkpoints, and files of the format before PyTorch 1.6.
#include "app/interop/files/torch_file.h"

#include "tests/fuzz/targets/fuzz_targets.h"
#include "tests/support/torch_checkpoint.h"

namespace bert::testing {
namespace {

void read(std::string_view input) {
  constexpr std::string_view kLegacy("\x80\x02\x8a\x0a",
                                     4);  // a long number, with which a checkpoint's pickle never begins
  const bool legacy = input.starts_with(kLegacy);
  const TorchState state = legacy ? parse_legacy_torch_file(input) : parse_torch_pickle(input);
  for (const TorchStorage& storage : state.storages) {
    require(storage.elements >= 0, "a storage has a negative size");
    require(element_bytes(storage.dtype) > 0, "a storage has an unknown type");
    if (!legacy) continue;
    const auto end = static_cast<uint64_t>(storage.begin) +
                     static_cast<uint64_t>(storage.elements) * static_cast<uint64_t>(element_bytes(storage.dtype));
    require(storage.begin >= 0 && end <= input.size(), "a storage is outside of the file");
  }
  for (const TorchTensor& tensor : state.tensors) {
    require(tensor.storage < state.storages.size(), "a tensor has a storage that is not there");
    require(tensor.shape.size() == tensor.strides.size(), "a tensor has other strides than sizes");
  }
}

}  // namespace

FuzzTarget torch_file_target() { return {"torch_file", {some_torch_pickle(), some_legacy_torch_file()}, read}; }

}  // namespace bert::testing
