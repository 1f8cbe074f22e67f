#include "app/interop/conversion.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/checkpoint/state.h"
#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "app/interop/hugging_face_files.h"
#include "app/interop/original_files.h"
#include "app/interop/sentence_transformers.h"
#include "app/system/crypto.h"
#include "app/tasks/label_set_scoring.h"
#include "data/io/atomic_directory.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

int64_t bytes_of(const std::map<std::string, std::string>& files) {
  int64_t bytes = 0;
  for (const auto& [name, text] : files) bytes += static_cast<int64_t>(text.size());
  return bytes;
}

/// `tensors`, which call `progress` when they are written.
std::vector<TensorSource> watched(const std::vector<TensorSource>& tensors, const ShareDone& progress) {
  std::vector<TensorSource> result = tensors;
  const auto done = std::make_shared<size_t>(0);
  for (TensorSource& tensor : result) {
    tensor.bytes = [bytes = std::move(tensor.bytes), all = tensors.size(), done, progress] {
      progress(static_cast<double>((*done)++) / static_cast<double>(all));
      return bytes();
    };
  }
  return result;
}

/// The tensors of a checkpoint's model file, or their moving averages where `averages` has them.
std::vector<TensorSource> own_tensors(const std::shared_ptr<const SafetensorsFile>& model,
                                      const std::shared_ptr<const SafetensorsFile>& averages) {
  std::vector<TensorSource> tensors;
  for (const TensorInfo& info : model->tensors()) {
    const TensorInfo* average = averages ? averages->find("ema." + info.name) : nullptr;
    const auto& file = average == nullptr ? model : averages;
    const TensorInfo taken = average == nullptr ? info : *average;
    tensors.push_back({info.name, taken.dtype, taken.shape, [file, taken] { return file->data(taken); }, file});
  }
  return tensors;
}

}  // namespace

ForeignCheckpoint read_own_checkpoint(const std::string& path, bool raw_weights,
                                      const std::function<void(const std::string& message)>& note,
                                      const ShareDone& progress) {
  const auto [directory, manifest] = find_valid_checkpoint(path, note, progress);
  const std::string state_file = directory + "/" + kStateFile;
  CheckpointState state = parse_checkpoint_state(read_file(state_file), state_file);
  ForeignCheckpoint source;
  source.path = directory;
  source.model = std::move(state.model);
  source.states_case = true;
  read_trained_model(state.config, source.model, state_file);
  take_sentence_encoder(source.model);
  take_thresholds(state.metrics, source.model);
  if (manifest.contains(kTokenizerFile)) source.model.tokenizer_model = read_file(directory + "/" + kTokenizerFile);
  if (const std::string file = directory + "/" + kOriginalsFile; manifest.contains(kOriginalsFile))
    source.originals = parse_originals(read_file(file), file);
  std::shared_ptr<const SafetensorsFile> averages;
  if (!raw_weights && manifest.contains(kOptimizerFile))
    averages = std::make_shared<const SafetensorsFile>(directory + "/" + kOptimizerFile);
  std::vector<TensorSource> tensors =
      own_tensors(std::make_shared<const SafetensorsFile>(directory + "/" + kModelFile), averages);
  const Objective objective = source.model.objective;
  const auto behind = std::stable_partition(tensors.begin(), tensors.end(), [](const TensorSource& tensor) {
    return !tensor.name.starts_with(kSentencePrefix);
  });
  const std::vector<TensorSource> of_sentences(behind, tensors.end());
  tensors.erase(behind, tensors.end());
  take_tensors(source, tensors);
  source.model.objective = objective;
  if (!source.model.task.empty()) take_task(source, tensors);
  if (source.model.sentence) source.report.missing.clear();  // heads of pre-training
  source.tensors.insert(source.tensors.end(), of_sentences.begin(), of_sentences.end());
  return source;
}

std::map<std::string, std::string> files_beside(const ForeignCheckpoint& source) {
  std::map<std::string, std::string> files = hugging_face_files(source.model, source.tensors.front().dtype);
  if (!source.model.tokenizer_model.empty()) files[kTokenizerFile] = source.model.tokenizer_model;
  return files;
}

CheckpointState state_of(const ForeignCheckpoint& source) {
  const auto filled = [&](auto config) {
    config.model = source.model.config;
    config.data.tokenizer = source.model.tokenizer;
    return config;
  };
  CheckpointState state;
  state.model = source.model;
  if (source.model.task.empty()) {
    state.config = to_json(filled(PretrainConfig()));
  } else {
    FinetuneConfig config = filled(FinetuneConfig());
    config.task = source.model.task;
    if (source.model.task_data) {  // of a run: its weights go on with its texts
      config.run_directory = source.path;
      config.data.task = *source.model.task_data;
    }
    state.config = to_json(config);
  }
  state.config_sha256 = sha256(state.config);
  return state;
}

void write_own_checkpoint(const std::string& directory, const ForeignCheckpoint& source, const ShareDone& progress) {
  if (source.model.vocabulary.empty()) {
    throw DataError(source.path +
                    ": has no tokenizer: neither vocab.txt nor tokenizer.json; a checkpoint needs its vocabulary");
  }
  std::map<std::string, std::string> files = files_beside(source);
  files[kStateFile] = write_checkpoint_state(state_of(source));
  if (!source.originals.empty()) files[kOriginalsFile] = originals_text(source.originals);
  CheckpointWriter writer(directory, {.bytes = safetensors_bytes(source.tensors) + bytes_of(files),
                                      .tensors = static_cast<int64_t>(source.tensors.size())});
  writer.add_tensors(kModelFile, watched(source.tensors, progress));
  for (const auto& [name, text] : files) writer.add_text(name, text);
  writer.publish();
  progress(1);
}

namespace {

/// The tensors of each file of weights, by the file's name: those behind a sentence encoder lie in folders of their own.
std::map<std::string, std::vector<TensorSource>> tensors_of_files(const ForeignCheckpoint& source) {
  std::map<std::string, std::vector<TensorSource>> files;
  for (const TensorSource& tensor : source.tensors) {
    std::string file = kModelFile;
    TensorSource named = tensor;
    for (size_t i = 0; source.model.sentence && i < source.model.sentence->dense.size(); ++i) {
      const std::string prefix = sentence_dense_prefix(i);
      if (!tensor.name.starts_with(prefix)) continue;
      file = sentence_dense_folder(i) + "/" + kModelFile;
      named.name = "linear." + tensor.name.substr(prefix.size());
    }
    files[file].push_back(std::move(named));
  }
  return files;
}

}  // namespace

void write_hugging_face(const std::string& directory, const ForeignCheckpoint& source, const ShareDone& progress) {
  std::map<std::string, std::string> files = files_beside(source);
  if (source.model.sentence) files.merge(sentence_transformers_files(source.model));
  put_originals(source.originals, files);
  AtomicDirectory output(directory);
  check_free_space(output.final_name(), safetensors_bytes(source.tensors) + bytes_of(files), "the model directory");
  const auto place = [&](const std::string& name) {
    const std::filesystem::path path = std::filesystem::path(output.temporary()) / name;
    std::filesystem::create_directories(path.parent_path());
    return path.string();
  };
  for (const auto& [name, tensors] : tensors_of_files(source)) {
    AtomicFile weights(place(name));
    write_safetensors([&](const void* data, size_t bytes) { weights.write(data, bytes); }, watched(tensors, progress));
    weights.commit();
  }
  for (const auto& [name, text] : files) {
    AtomicFile file(place(name));
    file.write(text);
    file.commit();
  }
  output.publish();
  progress(1);
}

}  // namespace bert
