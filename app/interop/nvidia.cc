#include "app/interop/nvidia.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "app/interop/files/torch_file.h"
#include "app/interop/neighbours.h"
#include "app/system/errors.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

/// The name without what NVIDIA's LinearActivation adds.
std::string plain_name(std::string name) {
  constexpr std::string_view kActivation = ".dense_act.";
  if (const size_t place = name.find(kActivation); place != std::string::npos)
    name.replace(place, kActivation.size(), ".dense.");
  return name;
}

}  // namespace

std::vector<TensorSource> torch_tensors(const std::string& path, ImportReport& report) {
  const auto file = std::make_shared<const TorchFile>(path);
  file->verify();
  const auto copy = std::make_shared<std::string>();  // of the view that was asked for last
  std::vector<TensorSource> tensors;
  for (const TorchTensor& tensor : file->tensors()) {
    const TorchTensor* const place = &tensor;
    TensorSource& source =
        tensors.emplace_back(TensorSource{plain_name(tensor.name), tensor.dtype, tensor.shape,
                                          [file, copy, place] { return file->data(*place, *copy); }});
    if (TorchFile::in_place(tensor)) source.mapping = file;
  }
  if (!file->left_out().empty())
    report.notes.push_back(
        fmt::format("parts of the file beside the model are left out: {}", fmt::join(file->left_out(), ", ")));
  return tensors;
}

void require_trust(const std::string& path, const ForeignOptions& options) {
  if (options.trust) return;
  throw RefusedError(path +
                     ": is a pickle, a format that can hold code. None of it is executed here, but only a file from a "
                     "source that you trust should be read: say so with --trust, or trust_initial_checkpoint=true in a "
                     "configuration");
}

ForeignCheckpoint read_nvidia(const std::string& path, const ForeignOptions& options) {
  require_trust(path, options);
  ForeignCheckpoint checkpoint;
  checkpoint.path = path;
  const fs::path directory = fs::path(path).parent_path();
  read_neighbours(checkpoint, directory.empty() ? "." : directory.string(), options.config);
  take_all(checkpoint, torch_tensors(path, checkpoint.report), options);
  return checkpoint;
}

}  // namespace bert
