#include "app/interop/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/interop/hugging_face_config.h"
#include "app/interop/hugging_face_tokenizer.h"
#include "app/interop/nvidia.h"
#include "app/interop/original_files.h"
#include "app/interop/sentence_transformers.h"
#include "app/parse/bounded_json.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char *kPickleFile = "pytorch_model.bin", *kPickleIndexFile = "pytorch_model.bin.index.json";
constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

bool exists(const std::string& path) {
  std::error_code unseen;
  return fs::exists(path, unseen);
}

/// A commit's name: a file name, so that refs/main cannot lead out of the cache.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

/// Reads the shards that an index lists. Throws DataError unless every shard has the tensors that the index says.
std::vector<TensorSource> read_shards(const std::string& directory) {
  const std::string path = directory + "/" + kIndexFile;
  const json index = parse_bounded_json(read_file(path, kMaxIndexBytes), path);
  if (!index.is_object()) throw DataError(path + ": want an object {...}, got " + index.type_name());
  std::map<std::string, std::map<std::string, bool>> shards;  // file to its tensors; true: seen in the file
  for (const auto& [tensor, file] : member(index, "weight_map", json::value_t::object, path).items()) {
    if (!file.is_string() || !is_file_name(file.get_ref<const std::string&>()))
      throw DataError(fmt::format("{}: \"weight_map\": {} is in {}; expected a file name", path, as_text(json(tensor)),
                                  as_text(file)));
    shards[file.get<std::string>()][tensor] = false;
  }
  std::vector<TensorSource> all;
  for (auto& [name, listed] : shards) {
    const std::string shard = directory + "/" + name;
    for (TensorSource& tensor : sources_of(std::make_shared<const SafetensorsFile>(shard))) {
      const auto found = listed.find(tensor.name);
      if (found == listed.end())
        throw DataError(fmt::format("{}: has tensor {}, which {} does not list for it", shard, tensor.name, path));
      found->second = true;
      all.push_back(std::move(tensor));
    }
    for (const auto& [tensor, seen] : listed) {
      if (!seen) throw DataError(fmt::format("{}: lacks tensor {}, which {} says it has", shard, tensor, path));
    }
  }
  return all;
}

std::vector<TensorSource> read_weights(const std::string& directory, const ForeignOptions& options,
                                       ImportReport& report) {
  if (const std::string file = directory + "/" + kModelFile; exists(file))
    return sources_of(std::make_shared<const SafetensorsFile>(file));
  if (exists(directory + "/" + kIndexFile)) return read_shards(directory);
  if (const std::string file = directory + "/" + kPickleFile; exists(file)) {
    require_trust(file, options);
    return torch_tensors(file, report);
  }
  if (exists(directory + "/" + kPickleIndexFile)) {
    throw DataError(
        fmt::format("{}: has {}, a list of pickles, which is not read; save_pretrained() of a newer transformers "
                    "writes {}",
                    directory, kPickleIndexFile, kModelFile));
  }
  throw InputMissing(fmt::format("{}: has neither {} nor {}", directory, kModelFile, kIndexFile));
}

}  // namespace

bool is_hugging_face(const std::string& path) {
  if (exists(path + "/" + kManifestFile)) return false;
  const auto has = [&](const char* file) { return exists(path + "/" + file); };
  if (has(kConfigFile) && (has(kModelFile) || has(kIndexFile) || has(kPickleFile) || has(kPickleIndexFile)))
    return true;
  if (has("checkpoints") || has("latest")) return false;  // a run
  return has("snapshots") || has(kModulesFile);
}

std::string hugging_face_directory(const std::string& path) {
  const std::string snapshots = path + "/snapshots", reference = path + "/refs/main";
  if (!exists(snapshots)) return path;
  if (exists(reference)) {
    constexpr int64_t kMaxName = 255;
    std::string commit = read_file(reference, kMaxName);
    while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r')) commit.pop_back();
    if (!is_file_name(commit)) throw DataError(reference + ": want the name of a snapshot");
    if (!exists(snapshots + "/" + commit))
      throw InputMissing(fmt::format("{}: names the snapshot {}, which is not in {}", reference, commit, snapshots));
    return snapshots + "/" + commit;
  }
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(snapshots, error)) found.push_back(entry.path().string());
  if (error) throw IoError(fmt::format("{}: cannot read this directory: {}", snapshots, error.message()));
  if (found.empty()) throw InputMissing(snapshots + ": has no snapshot");
  if (found.size() > 1) {
    throw DataError(fmt::format("{}: has {} snapshots, and {} does not say which; name one of them, such as {}",
                                snapshots, found.size(), reference, *std::min_element(found.begin(), found.end())));
  }
  return found.front();
}

ForeignCheckpoint read_hugging_face(const std::string& path, const ForeignOptions& options) {
  ForeignCheckpoint checkpoint;
  checkpoint.path = hugging_face_directory(path);
  std::optional<SentenceModules> modules = read_sentence_modules(checkpoint.path, options, checkpoint.report);
  const std::string& directory = modules ? modules->transformer : checkpoint.path;
  ModelDescription& model = checkpoint.model;
  model = read_hugging_face_config(directory + "/" + kConfigFile);
  if (!modules && model.labels.size() == 1) model.logit_scores |= cross_encoder_gives_logits(directory);
  read_hugging_face_tokenizer(directory, checkpoint);
  if (static_cast<int64_t>(model.vocabulary.size()) > model.config.vocab_size) {
    throw DataError(fmt::format("{}: its tokenizer has {} tokens; expected at most vocab_size {} of {}", directory,
                                model.vocabulary.size(), model.config.vocab_size, kConfigFile));
  }
  const Objective pairs = model.objective;
  take_all(checkpoint, read_weights(directory, options, checkpoint.report), options);
  if (checkpoint.has(BertPart::kSentencePairHead)) model.objective = pairs;
  if (!modules || !options.task_head) return checkpoint;
  // A sentence encoder has no heads of pre-training.
  checkpoint.report.missing.clear();
  std::erase_if(checkpoint.tensors, [&](const TensorSource& tensor) {
    const bool of_head = tensor.name.starts_with("cls.");
    if (of_head) checkpoint.report.unexpected.push_back(tensor.name);
    return of_head;
  });
  model.masked_token_head = false;
  expect_fitting_sizes(modules->encoder, model.config.hidden_size, checkpoint.path);
  if (options.originals) checkpoint.originals = read_original_files(checkpoint.path, *modules, checkpoint.report);
  model.sentence = std::move(modules->encoder);
  std::move(modules->tensors.begin(), modules->tensors.end(), std::back_inserter(checkpoint.tensors));
  return checkpoint;
}

}  // namespace bert
