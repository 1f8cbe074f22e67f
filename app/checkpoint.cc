#include "app/checkpoint.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "data/error.h"

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

/// Tensors go to the CPU one at a time, when their turn to be written comes.
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

/// Puts the averages of an optimizer's state in the place of the weights; false when it has none.
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

}  // namespace

void write_checkpoint(const std::string& directory, const Checkpoint& checkpoint) {
  const std::vector<TensorSource> model = sources_of(checkpoint.model);
  const std::vector<TensorSource> optimizer = sources_of(checkpoint.optimizer);
  const std::string state = write_checkpoint_state(checkpoint.state);
  CheckpointWriter writer(directory, safetensors_bytes(model) + safetensors_bytes(optimizer) +
                                         static_cast<int64_t>(state.size() + checkpoint.tokenizer_model.size()));
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

void save_safetensors(const std::string& path, const StateDict& tensors) {
  AtomicFile file(path);
  write_safetensors([&](const void* data, size_t bytes) { file.write(data, bytes); }, sources_of(tensors));
  file.commit();
}

Checkpoint load_checkpoint(const std::string& directory, CheckpointParts parts) {
  const Manifest manifest = verify_checkpoint(directory);
  Checkpoint checkpoint;
  checkpoint.model = read_safetensors(directory + "/" + kModelFile);
  const std::string state = directory + "/" + kStateFile;
  checkpoint.state = parse_checkpoint_state(read_file(state), state);
  if (manifest.contains(kTokenizerFile)) checkpoint.tokenizer_model = read_file(directory + "/" + kTokenizerFile);
  if (manifest.count(kOptimizerFile) == 0) return checkpoint;
  const std::string optimizer = directory + "/" + kOptimizerFile;
  if (parts == CheckpointParts::kModelAndOptimizer) checkpoint.optimizer = read_safetensors(optimizer);
  if (parts == CheckpointParts::kAveragedModel) checkpoint.averaged = use_averages(optimizer, checkpoint.model);
  return checkpoint;
}

}  // namespace bert
