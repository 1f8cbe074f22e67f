#include <ATen/ops/isfinite.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/export/onnx_bert.h"
#include "app/export/onnx_file.h"
#include "app/export/triton.h"
#include "app/inference/export_config.h"
#include "app/inference/marker_model.h"
#include "app/inference/pretrained.h"
#include "app/inference/sentence_model.h"
#include "app/inference/task_model.h"
#include "app/interop/conversion.h"
#include "app/interop/formats.h"
#include "app/interop/hugging_face_files.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/torch_errors.h"
#include "app/verbs/model/weights_options.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"
#include "data/io/atomic_directory.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "data/tokenizer/vocabulary.h"
#include "model/bert.h"
#include "model/state_dict.h"
#include "model/torchscript.h"

namespace bert {
namespace {

struct ExportOptions {
  std::string checkpoint, format = "torchscript", output;
  WeightsKind weights = WeightsKind::kAveraged;
  c10::ScalarType dtype = c10::kFloat;
  int64_t max_batch_size = TritonModel().max_batch_size;
  ExportedAttention attention = ExportedAttention::kFused;
  bool trust = false, has_max_batch_size = false, pooling = true;
};

/// The bar of an export, and the number of bytes of which it shows the share.
struct ExportProgress {
  Percentage& percentage;
  int64_t needed, done = 0;

  void written(size_t bytes) {
    constexpr double kUnsynced = 0.99;  // the remaining percent stands for the final sync
    done += static_cast<int64_t>(bytes);
    percentage.update("writing", std::min(kUnsynced, static_cast<double>(done) / static_cast<double>(needed)));
  }
};

/// The config.json of an export.
std::string config_text(const Pretrained& pretrained) {
  return write_export_config(pretrained.model, pretrained.tokenizer->vocabulary().hash());
}

/// The files inside a TorchScript export beside its code, by name.
ExtraFiles files_inside(const Pretrained& pretrained) {
  std::string vocabulary;
  for (const std::string& token : pretrained.tokenizer->vocabulary().tokens()) vocabulary += token + "\n";
  ExtraFiles files = {{kExportVocabularyFile, vocabulary}, {kExportConfigFile, config_text(pretrained)}};
  if (!pretrained.model.tokenizer_model.empty()) files[kTokenizerFile] = pretrained.model.tokenizer_model;
  return files;
}

/// metadata_props of an ONNX export: config.json, and members of it under their own names. A list or object is JSON.
std::map<std::string, std::string> onnx_metadata(const Pretrained& pretrained) {
  const std::string text = config_text(pretrained);
  std::map<std::string, std::string> metadata = {{kExportConfigFile, text}};
  const auto config = nlohmann::ordered_json::parse(text);
  for (const char* key : {"model_max_length", "vocabulary_hash", "id2label"}) {
    if (!config.contains(key)) continue;
    metadata[key] = config[key].is_string() ? config[key].get<std::string>() : config[key].dump();
  }
  return metadata;
}

bool has_pooler(const Pretrained& pretrained) { return pretrained.weights.contains("bert.pooler.dense.weight"); }

/// The encoder of `pretrained`, which has no head.
BertModel encoder_of(const Pretrained& pretrained) {
  BertModel model(pretrained.model.config, has_pooler(pretrained));
  StateDict weights;
  for (const auto& item : pretrained.weights) {
    if (item.key().starts_with(kEncoderPrefix))  // not the head of next sentences
      weights.insert(item.key().substr(std::string_view(kEncoderPrefix).size()), item.value());
  }
  load_state_dict(*model, weights);
  return model;
}

/// Those of the tokens whose states the model reads; of other models zeros.
std::array<int64_t, 2> marker_ids_of(const Pretrained& pretrained) {
  if (!pretrained.model.start_markers) return {};
  return start_marker_ids(pretrained.tokenizer->vocabulary(), pretrained.name);
}

/// The model with the head of pre-training, or of the task that it was fine-tuned on, or with what is behind a sentence
/// encoder, or the encoder alone, in evaluation mode. Throws DataError for weights of another model.
std::shared_ptr<torch::nn::Module> module_of(const Pretrained& pretrained) {
  if (pretrained.model.start_markers)
    return std::make_shared<MarkerModel>(load_task_model(pretrained).marker_model(), marker_ids_of(pretrained));
  if (!pretrained.model.task.empty()) return load_task_model(pretrained).module();
  const NoInitWeights no_init;
  std::shared_ptr<torch::nn::Module> module;
  with_data_errors(fmt::format("{}: the weights are not those of a {} of this configuration", pretrained.name,
                               architecture_of(pretrained.model)),
                   [&] {
                     if (pretrained.model.sentence) {
                       module = std::make_shared<SentenceModel>(encoder_of(pretrained), *pretrained.model.sentence,
                                                                pretrained.sentence_weights);
                     } else if (!pretrained.model.masked_token_head) {
                       module = encoder_of(pretrained).ptr();
                     } else {
                       BertForPreTraining model(pretrained.model.config, has_pairs(pretrained.model.objective));
                       load_state_dict(*model, pretrained.weights);
                       module = model.ptr();
                     }
                   });
  expect_whole(pretrained.weights);
  module->eval();
  return module;
}

/// Traces the model and writes the archive to `output`.
void export_as_torchscript(const Pretrained& pretrained, const ExportOptions& options, const std::string& output,
                           ExportProgress& progress) {
  const std::shared_ptr<torch::nn::Module> model = module_of(pretrained);
  AtomicFile file(output);
  progress.percentage.update("tracing and comparing", 0);
  const torch::jit::Module script = export_torchscript(*model, options.dtype, options.attention);
  progress.percentage.update("tracing and comparing", 1);
  std::exception_ptr failure;
  save_torchscript(script, files_inside(pretrained), [&](const void* data, size_t bytes) {
    try {
      if (!failure) file.write(data, bytes);
      progress.written(bytes);
    } catch (const IoError&) {
      failure =
          std::current_exception();  // LibTorch calls this function in a destructor, which an exception must not leave
    }
    return bytes;
  });
  if (failure) std::rethrow_exception(failure);
  file.commit();
}

/// A model directory of Triton's repository.
void export_as_triton(const Pretrained& pretrained, const ExportOptions& options, ExportProgress& progress) {
  AtomicDirectory output(options.output);
  const std::filesystem::path version = std::filesystem::path(output.temporary()) / kTritonVersion;
  std::error_code error;
  if (!std::filesystem::create_directory(version, error)) throw_io_error(version.string(), "create", error.value());
  export_as_torchscript(pretrained, options, (version / kTritonModelFile).string(), progress);
  const torch::Tensor* classifier = pretrained.weights.find("classifier.weight");
  const auto& sentence = pretrained.model.sentence;
  AtomicFile config(output.temporary() + "/" + kTritonConfigFile);
  config.write(triton_config({.config = pretrained.model.config,
                              .architecture = architecture_of(pretrained.model),
                              .pooler = has_pooler(pretrained),
                              .num_labels = classifier != nullptr ? classifier->size(0) : 0,
                              .vector_size = sentence ? vector_size(*sentence, pretrained.model.config.hidden_size) : 0,
                              .max_batch_size = options.max_batch_size}));
  config.commit();
  output.publish();
}

/// The weights in `dtype`, those of a sentence encoder too. Throws DataError for a number that fp16 does not have, and if
/// the file has become shorter.
StateDict converted(const Pretrained& pretrained, torch::Dtype dtype) {
  StateDict result;
  std::vector<StateDict::Item> all = pretrained.weights.items();
  for (const auto& item : pretrained.sentence_weights) all.push_back(item);
  for (const auto& item : all) {
    const torch::Tensor tensor = item.value().to(dtype);
    if (dtype == torch::kHalf && !at::isfinite(tensor).all().item<bool>()) {
      throw DataError(fmt::format(
          "{}: tensor {} has numbers beyond 65504, the largest of fp16; expected smaller ones; export in fp32",
          pretrained.name, item.key()));
    }
    result.insert(item.key(), tensor);
  }
  expect_whole(pretrained.weights);
  return result;
}

void export_as_safetensors(const Pretrained& pretrained, torch::Dtype dtype, const std::string& output,
                           ExportProgress& progress) {
  save_safetensors(output, converted(pretrained, dtype), [&](size_t bytes) { progress.written(bytes); });
}

void export_as_onnx(const Pretrained& pretrained, const ExportOptions& options, ExportProgress& progress) {
  const NamedModel model{.name = pretrained.name,
                         .config = pretrained.model.config,
                         .architecture = architecture_of(pretrained.model),
                         .tensors = sources_of(converted(pretrained, options.dtype)),
                         .sentence = pretrained.model.sentence,
                         .marker_ids = marker_ids_of(pretrained)};
  write_onnx(options.output, bert_onnx_graph(model), onnx_metadata(pretrained),
             [&](size_t bytes) { progress.written(bytes); });
}

/// The versions of PyTorch and LibTorch that load and run a TorchScript export.
std::string torchscript_needs(const ExportOptions& options) {
  const bool plain = options.attention == ExportedAttention::kPlain;
  std::string text = plain ? "; needs PyTorch or LibTorch >= 1.13"
                           : "; needs PyTorch or LibTorch >= 2.0 (1.13 with --plain-attention)";
  if (options.dtype == c10::kHalf) text += ", on a CPU a recent one, which computes in fp16; 1.13 does not";
  return text;
}

/// Throws UsageError or IoError for options that do not go together and for outputs that cannot be written.
void check_usage(const ExportOptions& options) {
  const bool triton = options.format == "triton";
  if (options.format == "onnx" && options.dtype == c10::kBFloat16) {
    throw UsageError(
        "--precision bf16: ONNX Runtime has few operators in bf16; expected fp32 or fp16 with --format onnx");
  }
  if (options.has_max_batch_size && !triton) throw UsageError("--max-batch-size: belongs to --format triton");
  const bool torchscript = triton || options.format == "torchscript";
  if (!options.pooling && options.format == "safetensors")
    throw UsageError("--no-pooling: belongs to --format torchscript, onnx and triton; safetensors has tensors alone");
  if (options.attention == ExportedAttention::kPlain && !torchscript)
    throw UsageError("--plain-attention: belongs to --format torchscript and triton; " + options.format +
                     " has no other attention");
  if (!triton) {
    check_outputs({{"--output", options.output}}, {});
  } else {
    std::error_code unseen;
    if (std::filesystem::is_directory(options.output, unseen) && !std::filesystem::is_empty(options.output, unseen))
      throw UsageError("--output " + options.output + ": is there and has files; remove it, or write elsewhere");
    check_output_directory({"--output", options.output}, {"--checkpoint", options.checkpoint}, /*overwrite=*/false);
  }
  std::error_code unseen;
  if (std::filesystem::is_regular_file(options.checkpoint, unseen) && foreign_format_of(options.checkpoint) == nullptr)
    throw InputMissing(options.checkpoint + ": is a file; name the checkpoint or run directory to export");
  check_raw_weights(options.checkpoint, options.weights);
}

/// Parses the command line. Returns false after --help. Throws UsageError.
bool parse(int argc, char** argv, ExportOptions& options) {
  CLI::App app(
      "Writes a checkpoint's model as TorchScript (loads in LibTorch and Python without this program), safetensors "
      "(Hugging Face's names), ONNX (opset 17), or a model directory of NVIDIA's Triton Inference Server.\n"
      "Example: bert export --checkpoint runs/phase2 --format torchscript --output bert.pt\n"
      "         bert export --checkpoint runs/phase2 --format onnx --output bert.onnx\n"
      "         bert export --checkpoint runs/phase2 --format triton --output models/bert",
      "bert export");
  app.footer(
      "onnx: the inputs are input_ids, attention_mask and token_type_ids, int64 [batch_size, sequence_length]; more "
      "than 2 GB go into OUTPUT.data beside it. triton: OUTPUT gets config.pbtxt and 1/model.pt; the directory above "
      "is the "
      "--model-repository.");
  app.add_option("--checkpoint", options.checkpoint,
                 "checkpoint or run directory, or a model of transformers, Google or NVIDIA")
      ->required();
  app.add_option("--format", options.format, "format of the output")
      ->check(CLI::IsMember({"torchscript", "safetensors", "onnx", "triton"}))
      ->capture_default_str();
  app.add_option("--output", options.output, "file to write; with --format triton, a directory")->required();
  add_precision(app, options.dtype, "precision of the weights; onnx has fp32 and fp16");
  app.add_flag_callback(
      "--no-pooling", [&options] { options.pooling = false; },
      "of a sentence encoder the encoder alone; else the first output is the vector of each text");
  const CLI::Option* batch =
      app.add_option("--max-batch-size", options.max_batch_size, "triton: texts that are computed together at most")
          ->check(number_in<int64_t>(1, 1 << 20))
          ->capture_default_str();
  app.add_flag_callback(
      "--plain-attention", [&options] { options.attention = ExportedAttention::kPlain; },
      "torchscript, triton: attention without scaled_dot_product_attention, for PyTorch 1.13; slower");
  add_raw_weights(app, options.weights);
  add_trust(app, options.trust);
  if (!parse_command_line(app, argc, argv)) return false;
  options.has_max_batch_size = batch->count() > 0;
  check_usage(options);
  return true;
}

}  // namespace

int export_command(int argc, char** argv) {
  ExportOptions options;
  if (!parse(argc, argv, options)) return kOk;
  Percentage percentage;
  Pretrained pretrained = load_pretrained({options.checkpoint, options.trust}, options.weights, say_in("bert export"),
                                          [&](double share) { percentage.update("verifying", share); });
  if (!options.pooling) {
    pretrained.model.sentence.reset();
    pretrained.sentence_weights = StateDict();
  }
  if (pretrained.model.window_attention && options.format != "safetensors") {
    fmt::print(
        stderr,
        "bert export: the model weighs the windows of long texts; the export answers for a text of one window\n");
  }
  ExportProgress progress{.percentage = percentage, .needed = 0};
  for (const auto& weight : pretrained.weights)
    progress.needed += weight.value().numel() * static_cast<int64_t>(c10::elementSize(options.dtype));
  check_free_space(options.output, progress.needed, "the export");
  if (options.format == "safetensors") {
    export_as_safetensors(pretrained, options.dtype, options.output, progress);
  } else if (options.format == "onnx") {
    export_as_onnx(pretrained, options, progress);
  } else if (options.format == "triton") {
    export_as_triton(pretrained, options, progress);
  } else {
    export_as_torchscript(pretrained, options, options.output, progress);
  }
  percentage.update("writing", 1);
  const bool torchscript = options.format == "torchscript" || options.format == "triton";
  fmt::print(stderr, "wrote {}{}{}\n", options.output, pretrained.averaged ? ", moving averages of the weights" : "",
             torchscript ? torchscript_needs(options) : "");
  return kOk;
}

}  // namespace bert
