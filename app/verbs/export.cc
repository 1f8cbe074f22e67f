#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/config/pretrain_config.h"
#include "app/inference/export_config.h"
#include "app/system/exit_codes.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"
#include "app/verbs/weights_options.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "model/bert.h"
#include "model/state_dict.h"
#include "model/torchscript.h"

namespace bert {
namespace {

/// The files inside an export beside its code, by name.
ExtraFiles files_inside(const Checkpoint& checkpoint, const PretrainConfig& config) {
  std::string vocabulary;
  for (const std::string& token : checkpoint.state.vocabulary) vocabulary += token + "\n";
  ExtraFiles files = {{kExportConfigFile, write_export_config({.model = config.model,
                                                               .tokenizer = config.data.tokenizer,
                                                               .objective = checkpoint.state.objective})},
                      {kExportVocabularyFile, vocabulary}};
  if (!checkpoint.tokenizer_model.empty()) files[kTokenizerFile] = checkpoint.tokenizer_model;
  return files;
}

/// Traces `model` and writes the archive to `output`. Calls `written` with the size of each part.
void save_as_torchscript(torch::nn::Module& model, torch::Dtype dtype, const ExtraFiles& files,
                         const std::string& output, Percentage& percentage,
                         const std::function<void(size_t bytes)>& written) {
  AtomicFile file(output);
  percentage.update("tracing and comparing", 0);
  const torch::jit::Module script = export_torchscript(model, dtype);
  percentage.update("tracing and comparing", 1);
  std::exception_ptr failure;
  save_torchscript(script, files, [&](const void* data, size_t bytes) {
    try {
      if (!failure) file.write(data, bytes);
      written(bytes);
    } catch (const IoError&) {
      failure =
          std::current_exception();  // LibTorch calls this function in a destructor, which an exception must not leave
    }
    return bytes;
  });
  if (failure) std::rethrow_exception(failure);
  file.commit();
}

}  // namespace

int export_command(int argc, char** argv) {
  CLI::App app(
      "Writes a checkpoint's model as TorchScript (loads in LibTorch and Python without this program) or as "
      "safetensors (Hugging Face's names).\nExample: bert export --checkpoint runs/phase2 --format torchscript "
      "--output bert.pt",
      "bert export");
  std::string checkpoint_path, format = "torchscript", output;
  WeightsKind weights = WeightsKind::kAveraged;
  app.add_option("--checkpoint", checkpoint_path, "checkpoint or run directory")->required();
  app.add_option("--format", format, "format of the file")
      ->check(CLI::IsMember({"torchscript", "safetensors"}))
      ->capture_default_str();
  app.add_option("--output", output, "file to write")->required();
  c10::ScalarType dtype = c10::kFloat;
  add_precision(app, dtype, "precision of the weights");
  add_raw_weights(app, weights);
  if (!parse_command_line(app, argc, argv)) return kOk;
  check_outputs({{"--output", output}}, {});
  std::error_code unseen;
  if (std::filesystem::is_regular_file(checkpoint_path, unseen))
    throw InputMissing(checkpoint_path + ": is a file; name the checkpoint or run directory to export");
  Percentage percentage;
  const Checkpoint checkpoint = load_model(checkpoint_path, weights, say_in("bert export"),
                                           [&](double share) { percentage.update("verifying", share); });
  const PretrainConfig config = parse_pretrain_config(checkpoint.state.config, checkpoint.directory + "/" + kStateFile);
  const NoInitWeights no_init;
  BertForPreTraining model(config.model, has_pairs(checkpoint.state.objective));
  load_state_dict(*model, checkpoint.model);
  model->eval();
  int64_t needed = 0;
  for (const torch::Tensor& parameter : model->parameters())
    needed += parameter.numel() * static_cast<int64_t>(c10::elementSize(dtype));
  check_free_space(output, needed, "the export");
  int64_t done = 0;
  const auto written = [&](size_t bytes) {
    constexpr double kUnsynced = 0.99;  // the remaining percent stands for the final sync
    done += static_cast<int64_t>(bytes);
    percentage.update("writing", std::min(kUnsynced, static_cast<double>(done) / static_cast<double>(needed)));
  };
  if (format == "safetensors") {
    model->to(dtype);
    save_safetensors(output, state_dict(*model), written);
  } else {
    save_as_torchscript(*model, dtype, files_inside(checkpoint, config), output, percentage, written);
  }
  percentage.update("writing", 1);
  std::fprintf(stderr, "wrote %s%s\n", output.c_str(), checkpoint.averaged ? ", moving averages of the weights" : "");
  return kOk;
}

}  // namespace bert
