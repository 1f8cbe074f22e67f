#include "app/checkpoint/checkpoint.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "app/checkpoint/files.h"
#include "data/io/error.h"
#include "data/io/mapping_guard.h"

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

at::Tensor meta_tensor(const std::string& dtype, const std::vector<int64_t>& shape) {
  return at::empty(shape, at::TensorOptions(scalar_type(dtype)).device(at::kMeta));
}

at::Tensor read_tensor(const SafetensorsFile& file, const TensorInfo& info) {
  const at::Tensor tensor = at::empty(info.shape, scalar_type(info.dtype));
  if (info.bytes > 0) std::memcpy(tensor.data_ptr(), file.data(info).data(), static_cast<size_t>(info.bytes));
  return tensor;
}

/// A tensor of one source: over its mapping, if it has one, else a copy of its bytes.
at::Tensor tensor_of(const TensorSource& source) {
  const c10::ScalarType type = scalar_type(source.dtype);
  const std::string_view data = source.bytes();
  const size_t bytes = meta_tensor(source.dtype, source.shape).nbytes();
  if (data.size() != bytes) {
    throw DataError("tensor " + source.name + ": has " + std::to_string(data.size()) + " bytes, but its shape needs " +
                    std::to_string(bytes));
  }
  auto* begin = const_cast<char*>(data.data());
  const bool aligned =
      reinterpret_cast<uintptr_t>(begin) % c10::elementSize(type) == 0;  // true for files of write_safetensors
  if (source.mapping && aligned && bytes > 0) {
    return at::from_blob(
        begin, source.shape, [mapping = source.mapping](void*) {}, type);
  }
  at::Tensor tensor = at::empty(source.shape, type);
  if (bytes > 0) std::memcpy(tensor.data_ptr(), begin, bytes);
  expect_whole_mapping(begin);
  return tensor;
}

/// Replaces the weights in `model` by their averages from the optimizer's state. Returns false if it has none.
bool use_averages(const std::string& optimizer_file, StateDict& model) {
  constexpr std::string_view kAverage = "ema.";
  bool any = false;
  for (const TensorSource& source : sources_of(std::make_shared<const SafetensorsFile>(optimizer_file))) {
    if (!source.name.starts_with(kAverage)) continue;
    at::Tensor* weight = model.find(source.name.substr(kAverage.size()));
    if (weight == nullptr) continue;
    *weight = tensor_of(source);
    any = true;
  }
  return any;
}

StateDict map_safetensors(const std::string& path, TensorBytes bytes) {
  return read_tensors(sources_of(std::make_shared<const SafetensorsFile>(path)), bytes);
}

Checkpoint without_tensors(const std::string& directory, const Manifest& manifest) {
  Checkpoint checkpoint;
  const std::string state = directory + "/" + kStateFile;
  checkpoint.state = parse_checkpoint_state(read_file(state), state);
  if (manifest.contains(kTokenizerFile))
    checkpoint.state.model.tokenizer_model = read_file(directory + "/" + kTokenizerFile);
  return checkpoint;
}

}  // namespace

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

void write_checkpoint(const std::string& directory, const Checkpoint& checkpoint) {
  const std::vector<TensorSource> model = sources_of(checkpoint.model);
  const std::vector<TensorSource> optimizer = sources_of(checkpoint.optimizer);
  const std::string state = write_checkpoint_state(checkpoint.state);
  int64_t text_bytes = static_cast<int64_t>(state.size() + checkpoint.state.model.tokenizer_model.size());
  for (const auto& [name, text] : checkpoint.files) text_bytes += static_cast<int64_t>(text.size());
  CheckpointWriter writer(directory, {.bytes = safetensors_bytes(model) + safetensors_bytes(optimizer) + text_bytes,
                                      .tensors = static_cast<int64_t>(model.size() + optimizer.size())});
  writer.add_tensors(kModelFile, model);
  writer.add_tensors(kOptimizerFile, optimizer);
  writer.add_text(kStateFile, state);
  if (!checkpoint.state.model.tokenizer_model.empty())
    writer.add_text(kTokenizerFile, checkpoint.state.model.tokenizer_model);
  for (const auto& [name, text] : checkpoint.files) writer.add_text(name, text);
  writer.publish();
}

std::string save_checkpoint(const std::string& run_directory, const Checkpoint& checkpoint, int64_t keep) {
  std::string directory = checkpoint_directory(run_directory, checkpoint.state.step);
  write_checkpoint(directory, checkpoint);
  finish_checkpoint(run_directory, checkpoint.state.step, keep);
  return directory;
}

StateDict read_tensors(const std::vector<TensorSource>& sources, TensorBytes bytes) {
  StateDict tensors;
  for (const TensorSource& source : sources) {
    if (bytes == TensorBytes::kNone) {
      tensors.insert(source.name, meta_tensor(source.dtype, source.shape));
      continue;
    }
    tensors.insert(source.name, tensor_of(source));
  }
  return tensors;
}

void expect_whole(const StateDict& tensors) {
  for (const auto& item : tensors) {
    if (item.value().is_cpu()) expect_whole_mapping(item.value().const_data_ptr());
  }
}

StateDict read_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  StateDict tensors;
  for (const TensorInfo& info : file.tensors()) tensors.insert(info.name, read_tensor(file, info));
  file.expect_whole();
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
  checkpoint.model = map_safetensors(directory + "/" + kModelFile, TensorBytes::kMapped);
  if (weights == WeightsKind::kAveraged && manifest.contains(kOptimizerFile)) {
    checkpoint.averaged = use_averages(directory + "/" + kOptimizerFile, checkpoint.model);
  }
  return checkpoint;
}

}  // namespace bert
