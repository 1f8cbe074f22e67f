#include "app/interop/sentence_transformers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/checkpoint/files.h"
#include "app/config/model_rules_json.h"
#include "app/interop/nvidia.h"
#include "app/parse/bounded_json.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kSentenceConfigFile = "config_sentence_transformers.json";
constexpr const char *kPoolingFolder = "1_Pooling", *kFolderConfig = "config.json";
constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

/// The keys of older files, each true or false, in the order of the pooled vectors.
constexpr std::pair<const char*, SentencePooling> kPoolingKeys[] = {
    {"pooling_mode_cls_token", SentencePooling::kCls},
    {"pooling_mode_max_tokens", SentencePooling::kMax},
    {"pooling_mode_mean_tokens", SentencePooling::kMean},
    {"pooling_mode_mean_sqrt_len_tokens", SentencePooling::kMeanSqrtLen},
    {"pooling_mode_weightedmean_tokens", SentencePooling::kWeightedMean},
    {"pooling_mode_lasttoken", SentencePooling::kLastToken}};

bool is_there(const std::string& path) {
  std::error_code unseen;
  return std::filesystem::exists(path, unseen);
}

json object_of(const std::string& path) {
  json object = parse_bounded_json(read_file(path, kMaxConfigBytes), path);
  if (!object.is_object()) throw DataError(path + ": want an object {...}, got " + object.type_name());
  return object;
}

SentencePooling pooling_named(const json& name, const std::string& path) {
  const auto mode = name.is_string() ? value_named<SentencePooling>(name.get<std::string>()) : std::nullopt;
  if (!mode) {
    throw DataError(fmt::format("{}: \"pooling_mode\" is {}; expected {}", path, as_text(name),
                                fmt::join(names_of(SentencePooling()), ", ")));
  }
  return *mode;
}

void read_pooling(const std::string& path, SentenceEncoder& encoder) {
  const json object = object_of(path);
  encoder.pooling.clear();
  if (const auto modes = object.find("pooling_mode"); modes != object.end()) {
    if (!modes->is_array()) encoder.pooling.push_back(pooling_named(*modes, path));
    for (const json& mode : modes->is_array() ? *modes : json::array())
      encoder.pooling.push_back(pooling_named(mode, path));
  } else {
    for (const auto& [key, mode] : kPoolingKeys)
      if (object.contains(key) && boolean_member(object, key, path)) encoder.pooling.push_back(mode);
  }
  if (encoder.pooling.empty()) throw DataError(path + ": names no pooling; expected one or more");
  if (object.contains("include_prompt")) encoder.include_prompt = boolean_member(object, "include_prompt", path);
}

/// Reads a dense layer with its tensors, whose names in the model begin with `prefix`.
SentenceDense read_dense(const std::string& folder, const std::string& prefix, const ForeignOptions& options,
                         ImportReport& report, std::vector<TensorSource>& tensors) {
  const std::string path = folder + "/" + kFolderConfig, file = folder + "/" + kModelFile,
                    pickle = folder + "/pytorch_model.bin";
  const json object = object_of(path);
  SentenceDense dense{.in_features = integer_member(object, "in_features", path),
                      .out_features = integer_member(object, "out_features", path)};
  if (object.contains("bias")) dense.bias = boolean_member(object, "bias", path);
  if (object.contains("activation_function")) {
    const std::string& name = string_member(object, "activation_function", path);
    const auto activation = value_named<DenseActivation>(name.substr(name.rfind('.') + 1));
    if (!activation || !name.starts_with("torch.")) {
      throw DataError(fmt::format("{}: \"activation_function\" is {}; expected one of torch.nn: {}", path, name,
                                  fmt::join(names_of(DenseActivation()), ", ")));
    }
    dense.activation = *activation;
  }
  for (const char* key : {"module_input_name", "module_output_name"}) {
    if (object.contains(key) && !object[key].is_null() && object[key] != "sentence_embedding")
      throw DataError(fmt::format("{}: \"{}\" is {}; expected sentence_embedding", path, key, as_text(object[key])));
  }
  if (!is_there(file)) require_trust(pickle, options);
  std::vector<TensorSource> found =
      is_there(file) ? sources_of(std::make_shared<const SafetensorsFile>(file)) : torch_tensors(pickle, report);
  std::vector<std::pair<const char*, std::vector<int64_t>>> wanted = {
      {"weight", {dense.out_features, dense.in_features}}};
  if (dense.bias) wanted.push_back({"bias", {dense.out_features}});
  for (const auto& [name, shape] : wanted) {
    const std::string full = std::string("linear.") + name;
    const auto tensor = std::find_if(found.begin(), found.end(), [&](const auto& each) { return each.name == full; });
    if (tensor == found.end() || tensor->shape != shape) {
      throw DataError(
          fmt::format("{}: expected tensor {} of shape [{}], got {}", folder, full, fmt::join(shape, ", "),
                      tensor == found.end() ? "none" : fmt::format("[{}]", fmt::join(tensor->shape, ", "))));
    }
    tensor->name = prefix + name;
    tensors.push_back(std::move(*tensor));
  }
  return dense;
}

void read_prompts(const std::string& path, SentenceEncoder& encoder) {
  if (!is_there(path)) return;
  const json object = object_of(path);
  const auto given = [&](const char* key) { return object.contains(key) && !object[key].is_null(); };
  if (given("prompts")) {
    const json& prompts = member(object, "prompts", json::value_t::object, path);
    for (const auto& item : prompts.items())
      encoder.prompts[item.key()] = string_member(prompts, item.key().c_str(), path);
  }
  if (given("default_prompt_name")) encoder.default_prompt = string_member(object, "default_prompt_name", path);
  if (!encoder.default_prompt.empty() && !encoder.prompts.contains(encoder.default_prompt)) {
    throw DataError(fmt::format("{}: \"default_prompt_name\" is {}, which \"prompts\" does not have", path,
                                encoder.default_prompt));
  }
  if (!given("similarity_fn_name")) return;
  const std::string& name = string_member(object, "similarity_fn_name", path);
  const auto similarity = value_named<Similarity>(name == "dot_score" ? "dot" : name);
  if (!similarity) {
    throw DataError(fmt::format("{}: \"similarity_fn_name\" is {}; expected {}", path, name,
                                fmt::join(names_of(Similarity()), ", ")));
  }
  encoder.similarity = *similarity;
}

/// The settings of a CrossEncoder; empty if `directory` has none.
std::optional<json> cross_encoder(const std::string& directory) {
  const std::string path = directory + "/" + kSentenceConfigFile;
  if (!is_there(path)) return std::nullopt;
  json object = object_of(path);
  if (object.value("model_type", json()) != "CrossEncoder") return std::nullopt;
  if (!object.value("default_prompt_name", json()).is_null())
    throw DataError(path + ": \"default_prompt_name\" is given; a reranker without prompts is expected");
  return object;
}

std::string text_of(const ordered_json& value) { return value.dump(2) + "\n"; }

/// The name with which sentence-transformers imports it.
std::string class_of(DenseActivation activation) {
  const bool identity = activation == DenseActivation::kIdentity;
  return fmt::format("torch.nn.modules.{}.{}", identity ? "linear" : "activation", name_of_value(activation));
}

ordered_json module(size_t index, const std::string& folder, const char* type) {
  return {{"idx", index},
          {"name", std::to_string(index)},
          {"path", folder},
          {"type", std::string("sentence_transformers.models.") + type}};
}

}  // namespace

std::optional<SentenceModules> read_sentence_modules(const std::string& directory, const ForeignOptions& options,
                                                     ImportReport& report) {
  const std::string path = directory + "/" + kModulesFile;
  if (!is_there(path)) return std::nullopt;
  const json modules = parse_bounded_json(read_file(path, kMaxConfigBytes), path);
  if (!modules.is_array() || modules.empty()) throw DataError(path + ": want a list of modules");
  SentenceModules result;
  std::vector<std::string> kinds;
  for (const json& each : modules) {
    if (!each.is_object()) throw DataError(path + ": want objects {...}");
    const std::string& type = string_member(each, "type", path);
    const std::string kind = type.substr(type.rfind('.') + 1), inside = string_member(each, "path", path);
    if (inside.find("..") != std::string::npos || inside.starts_with('/'))
      throw DataError(path + ": \"path\" is " + as_text(each["path"]) + "; expected a folder of this directory");
    const std::string folder = inside.empty() ? directory : directory + "/" + inside;
    const std::string before = kinds.empty() ? "" : kinds.back();
    const bool first = kind == "Transformer" && before.empty(), pools = kind == "Pooling" && before == "Transformer",
               behind = (kind == "Dense" || kind == "Normalize") && (before == "Pooling" || before == "Dense");
    if (!first && !pools && !behind) {
      throw DataError(
          fmt::format("{}: module {} after {}; expected Transformer, Pooling, any number of Dense, and Normalize "
                      "or nothing",
                      path, kind, before.empty() ? "nothing" : before));
    }
    kinds.push_back(kind);
    if (first) result.transformer = folder;
    if (pools) result.folders[kPoolingFolder] = folder;
    if (pools) read_pooling(folder + "/" + kFolderConfig, result.encoder);
    if (kind == "Normalize") result.encoder.normalize = true;
    if (kind != "Dense") continue;
    const std::string prefix = sentence_dense_prefix(result.encoder.dense.size());
    result.folders[sentence_dense_folder(result.encoder.dense.size())] = folder;
    result.encoder.dense.push_back(read_dense(folder, prefix, options, report, result.tensors));
  }
  if (kinds.size() < 2 && result.transformer == directory && cross_encoder(directory)) return std::nullopt;
  if (kinds.size() < 2) throw DataError(path + ": has no Pooling; expected Transformer and Pooling");
  read_prompts(directory + "/" + kSentenceConfigFile, result.encoder);
  return result;
}

bool cross_encoder_gives_logits(const std::string& directory) {
  const std::optional<json> settings = cross_encoder(directory);
  return settings && gives_logits(*settings, directory + "/" + kSentenceConfigFile);
}

void expect_fitting_sizes(const SentenceEncoder& encoder, int64_t hidden_size, const std::string& place) {
  int64_t size = hidden_size * std::ssize(encoder.pooling);
  for (const SentenceDense& dense : encoder.dense) {
    if (dense.in_features != size) {
      throw DataError(fmt::format("{}: a dense layer takes {} numbers, and what is before it gives {}", place,
                                  dense.in_features, size));
    }
    size = dense.out_features;
  }
}

std::string sentence_dense_folder(size_t index) { return std::to_string(index + 2) + "_Dense"; }

std::map<std::string, std::string> sentence_transformers_files(const ModelDescription& model) {
  const SentenceEncoder& encoder = *model.sentence;
  std::map<std::string, std::string> files;
  ordered_json modules = {module(0, "", "Transformer"), module(1, kPoolingFolder, "Pooling")};
  ordered_json pooling = {{"word_embedding_dimension", model.config.hidden_size}};
  if (std::is_sorted(encoder.pooling.begin(), encoder.pooling.end())) {  // as all versions read it
    for (const auto& [key, mode] : kPoolingKeys)
      pooling[key] = std::find(encoder.pooling.begin(), encoder.pooling.end(), mode) != encoder.pooling.end();
  } else {
    for (const SentencePooling mode : encoder.pooling) pooling["pooling_mode"].push_back(name_of_value(mode));
  }
  pooling["include_prompt"] = encoder.include_prompt;
  files[fmt::format("{}/{}", kPoolingFolder, kFolderConfig)] = text_of(pooling);
  for (size_t i = 0; i < encoder.dense.size(); ++i) {
    const SentenceDense& dense = encoder.dense[i];
    modules.push_back(module(i + 2, sentence_dense_folder(i), "Dense"));
    files[sentence_dense_folder(i) + "/" + kFolderConfig] =
        text_of({{"in_features", dense.in_features},
                 {"out_features", dense.out_features},
                 {"bias", dense.bias},
                 {"activation_function", class_of(dense.activation)}});
  }
  if (encoder.normalize)
    modules.push_back(module(modules.size(), fmt::format("{}_Normalize", modules.size()), "Normalize"));
  files[kModulesFile] = text_of(modules);
  files["sentence_bert_config.json"] = text_of({{"max_seq_length", most_tokens(model)}, {"do_lower_case", false}});
  ordered_json prompts = ordered_json::object();
  for (const auto& [name, text] : encoder.prompts) prompts[name] = text;
  const ordered_json preferred = encoder.default_prompt.empty() ? ordered_json() : ordered_json(encoder.default_prompt);
  files[kSentenceConfigFile] = text_of({{"__version__", {{"sentence_transformers", "2.0.0"}}},
                                        {"prompts", prompts},
                                        {"default_prompt_name", preferred},
                                        {"similarity_fn_name", name_of_value(encoder.similarity)}});
  return files;
}

}  // namespace bert
