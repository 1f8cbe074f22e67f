// Indices of TensorFlow's checkpoints. In the fuzzer checksums are compiled out (zero_checksums.cc), so that damage
// reaches the blocks and the protocol buffers.
#include "app/interop/files/tensor_bundle.h"

#include "tests/fuzz/targets/fuzz_targets.h"
#include "tests/support/tensor_bundle.h"

namespace bert::testing {
namespace {

void read(std::string_view input) {
  const BundleIndex index = parse_bundle_index(input);
  require(index.num_shards > 0, "a checkpoint has no files");
  for (size_t i = 0; i < index.tensors.size(); ++i) {
    const BundleTensor& tensor = index.tensors[i];
    require(i == 0 || index.tensors[i - 1].name < tensor.name, "the names are not in ascending order");
    require(tensor.shard >= 0 && tensor.shard < index.num_shards, "a tensor is in a file that is not there");
    require(tensor.begin >= 0 && tensor.bytes >= 0, "a tensor has a negative place");
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) {
      require(size >= 0, "a size is negative");
      elements *= size;
    }
    require(elements * element_bytes(tensor.dtype) == tensor.bytes, "a tensor has another size than its shape");
  }
}

}  // namespace

FuzzTarget tensor_bundle_target() { return {"tensor_bundle", {some_tensor_bundle().index}, read}; }

}  // namespace bert::testing
