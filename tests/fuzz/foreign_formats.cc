#include "tests/fuzz/foreign_formats.h"

#include <fmt/format.h>

#include "app/interop/files/tensor_bundle.h"
#include "app/interop/files/torch_file.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/hex.h"
#include "tests/support/tensor_bundle.h"
#include "tests/support/text_file.h"
#include "tests/support/torch_checkpoint.h"

namespace bert::testing {
namespace {

Format tensorflow(const std::string& directory) {
  const BundleFiles bundle = some_tensor_bundle();
  return format_of_files("tensorflow", true, directory,
                         {{"model.ckpt.index", bundle.index}, {"model.ckpt.data-00000-of-00001", bundle.data}},
                         [](const std::string& place) { TensorBundle(place + "/model.ckpt").verify(); });
}

/// The names and the bytes of all tensors.
std::string contents(const std::string& path) {
  const TorchFile file(path);
  file.verify();
  std::string all, copy;
  for (const TorchTensor& tensor : file.tensors()) {
    all += tensor.name + tensor.dtype;
    for (const int64_t size : tensor.shape) all += fmt::format(" {}", size);
    all += file.data(tensor, copy);
  }
  return all;
}

/// A checkpoint of PyTorch. Damage to what is no tensor of the model, such as moments, changes nothing: it counts as
/// refused if all that is read was written so.
Format pytorch(const std::string& name, bool sealed, const std::string& bytes, const std::string& directory) {
  const std::string valid = directory + "/valid.pt";
  write_text(valid, bytes);
  const std::string written = contents(valid);
  return format_of_files(name, sealed, directory, {{"model.pt", bytes}}, [=](const std::string& place) {
    const std::string path = place + "/model.pt";
    if (contents(path) == written && read_file(path) != bytes) throw DataError("all that is read was written");
  });
}

}  // namespace

std::vector<Format> foreign_checkpoint_formats(const std::string& directory) {
  return {tensorflow(directory), pytorch("pytorch", true, some_torch_archive(), directory),
          pytorch("pytorch before 1.6", false, some_legacy_torch_file(), directory)};
}

}  // namespace bert::testing
