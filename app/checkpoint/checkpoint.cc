#include "app/checkpoint/checkpoint.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "app/checkpoint/files.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr std::pair<const char*, c10::ScalarType> kTypes[] = {
    {"F64", c10::kDouble},         {"F32", c10::kFloat},
    {"F16", c10::kHalf},           {"BF16", c10::kBFloat16},
    {"I64", c10::kLong},           {"I32", c10::kInt},
    {"I16", c10::kShort},          {"I8", c10::kChar},
    {"U64", c10::kUInt64},         {"U32", c10::kUInt32},
    {"U16", c10::kUInt16},         {"U8", c10::kByte},
    {"BOOL", c10::kBool},          {"F8_E4M3", c10::kFloat8_e4m3fn},
    {"F8_E5M2", c10::kFloat8_e5m2}};

c10::ScalarType scalar_type(const std::string& dtype) {
  for (const auto& [name, type] : kTypes) {
    if (dtype == name) return type;
  }
  throw DataError("no tensor has the dtype " + dtype);
}

std::string dtype_name(const std::string& tensor, c10::ScalarType type) {
  for (const auto& [name, known] : kTypes) {
    if (type == known) return name;
  }
  throw DataError("tensor " + tensor + ": safetensors cannot hold " + c10::toString(type));
}

/// The tensors as sources for the writer. A tensor is copied to the CPU when it is written, one at a time.
std::vector<TensorSource> sources_of(const StateDict& tensors) {
  std::vector<TensorSource> sources;
  const auto on_cpu = std::make_shared<at::Tensor>();
  for (const auto& item : tensors) {
    const at::Tensor tensor = item.value().detach();
    sources.push_back(
        {item.key(), dtype_name(item.key(), tensor.scalar_type()), tensor.sizes().vec(), [tensor, on_cpu] {
           *on_cpu = tensor.to(c10::kCPU).contiguous();
           return std::string_view(static_cast<const char*>(on_cpu->data_ptr()), on_cpu->nbytes());
         }});
  }
  return sources;
}

at::Tensor read_tensor(const SafetensorsFile& file, const TensorInfo& info) {
  const at::Tensor tensor = at::empty(info.shape, scalar_type(info.dtype));
  if (info.bytes > 0) std::memcpy(tensor.data_ptr(), file.data(info).data(), static_cast<size_t>(info.bytes));
  return tensor;
}

/// A tensor over the bytes of the mapped file. The mapping lives as long as the tensor.
at::Tensor map_tensor(const std::shared_ptr<const SafetensorsFile>& file, const TensorInfo& info) {
  const c10::ScalarType type = scalar_type(info.dtype);
  auto* data = const_cast<char*>(file->data(info).data());
  const bool aligned =
      reinterpret_cast<uintptr_t>(data) % c10::elementSize(type) == 0;  // true for files of write_safetensors
  if (info.bytes == 0 || !aligned) return read_tensor(*file, info);
  return at::from_blob(
      data, info.shape, [file](void*) {}, type);
}

/// Replaces the weights in `model` by their averages from the optimizer's state. Returns false if it has none.
bool use_averages(const std::string& optimizer_file, StateDict& model) {
  const SafetensorsFile file(optimizer_file);
  bool any = false;
  for (auto& item : model) {
    const TensorInfo* average = file.find("ema." + item.key());
    if (average == nullptr) continue;
    item.value() = read_tensor(file, *average);
    any = true;
  }
  return any;
}

StateDict map_safetensors(const std::string& path, TensorBytes bytes) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  StateDict tensors;
  for (const TensorInfo& info : file->tensors()) {
    tensors.insert(info.name,
                   bytes == TensorBytes::kMapped
                       ? map_tensor(file, info)
                       : at::empty(info.shape, at::TensorOptions(scalar_type(info.dtype)).device(at::kMeta)));
  }
  return tensors;
}

Checkpoint without_tensors(const std::string& directory, const Manifest& manifest) {
  Checkpoint checkpoint;
  const std::string state = directory + "/" + kStateFile;
  checkpoint.state = parse_checkpoint_state(read_file(state), state);
  if (manifest.contains(kTokenizerFile)) checkpoint.tokenizer_model = read_file(directory + "/" + kTokenizerFile);
  return checkpoint;
}

}  // namespace

void write_checkpoint(const std::string& directory, const Checkpoint& checkpoint) {
  const std::vector<TensorSource> model = sources_of(checkpoint.model);
  const std::vector<TensorSource> optimizer = sources_of(checkpoint.optimizer);
  const std::string state = write_checkpoint_state(checkpoint.state);
  CheckpointWriter writer(directory, {.bytes = safetensors_bytes(model) + safetensors_bytes(optimizer) +
                                               static_cast<int64_t>(state.size() + checkpoint.tokenizer_model.size()),
                                      .tensors = static_cast<int64_t>(model.size() + optimizer.size())});
  writer.add_tensors(kModelFile, model);
  writer.add_tensors(kOptimizerFile, optimizer);
  writer.add_text(kStateFile, state);
  if (!checkpoint.tokenizer_model.empty()) writer.add_text(kTokenizerFile, checkpoint.tokenizer_model);
  writer.publish();
}

std::string save_checkpoint(const std::string& run_directory, const Checkpoint& checkpoint, int64_t keep) {
  std::string directory = checkpoint_directory(run_directory, checkpoint.state.step);
  write_checkpoint(directory, checkpoint);
  finish_checkpoint(run_directory, checkpoint.state.step, keep);
  return directory;
}

StateDict read_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  StateDict tensors;
  for (const TensorInfo& info : file.tensors()) tensors.insert(info.name, read_tensor(file, info));
  return tensors;
}

void save_safetensors(const std::string& path, const StateDict& tensors,
                      const std::function<void(size_t bytes)>& written) {
  AtomicFile file(path);
  write_safetensors(
      [&](const void* data, size_t bytes) {
        file.write(data, bytes);
        if (written) written(bytes);
      },
      sources_of(tensors));
  file.commit();
}

Checkpoint open_checkpoint(const std::string& directory, TensorBytes bytes) {
  const Manifest manifest = read_manifest(directory);
  Checkpoint checkpoint = without_tensors(directory, manifest);
  checkpoint.model = map_safetensors(directory + "/" + kModelFile, bytes);
  if (manifest.contains(kOptimizerFile))
    checkpoint.optimizer = map_safetensors(directory + "/" + kOptimizerFile, bytes);
  return checkpoint;
}

Checkpoint load_model(const std::string& path, WeightsKind weights,
                      const std::function<void(const std::string& message)>& note,
                      const std::function<void(double share)>& progress) {
  const auto [directory, manifest] = find_valid_checkpoint(path, note, progress);
  Checkpoint checkpoint = without_tensors(directory, manifest);
  checkpoint.directory = directory;
  checkpoint.model = read_safetensors(directory + "/" + kModelFile);
  if (weights == WeightsKind::kAveraged && manifest.contains(kOptimizerFile)) {
    checkpoint.averaged = use_averages(directory + "/" + kOptimizerFile, checkpoint.model);
  }
  return checkpoint;
}

}  // namespace bert
