#include "app/predict.h"

#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/command_line.h"
#include "app/config.h"
#include "app/predictor.h"
#include "data/error.h"
#include "data/files.h"
#include "model/torchscript.h"

namespace bert {
namespace {

nlohmann::ordered_json to_json(const MaskFilling& filling) {
  nlohmann::ordered_json masks = nlohmann::ordered_json::array();
  for (const auto& fillers : filling.masks) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Filler& f : fillers)
      list.push_back({{"score", f.score}, {"token", f.token}, {"token_str", f.token_str}, {"sequence", f.sequence}});
    masks.push_back(std::move(list));
  }
  // As Hugging Face's pipeline: one mask gives its fillers, several give a list of lists.
  return {{"text", filling.text}, {"fillers", filling.masks.size() == 1 ? masks[0] : masks}};
}

nlohmann::ordered_json to_json(const std::string& text, const Predictor::Features& features) {
  const auto vector_of = [](const torch::Tensor& row) {
    const torch::Tensor values = row.contiguous();
    return std::vector<float>(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
  };
  nlohmann::ordered_json hidden = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < features.last_hidden_state.size(0); ++i)
    hidden.push_back(vector_of(features.last_hidden_state[i]));
  return {{"text", text},
          {"tokens", features.tokens},
          {"pooler_output", vector_of(features.pooler_output)},
          {"last_hidden_state", hidden}};
}

std::vector<std::string> read_lines(std::istream& stream) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

}  // namespace

int predict_command(int argc, char** argv) {
  CLI::App app(
      "Predicts with a checkpoint, a run directory or a TorchScript export; one JSON object per text on standard "
      "output.\n"
      "Example: bert predict --checkpoint bert.pt --task fill-mask \"The quick brown [MASK] jumps.\"",
      "bert predict");
  std::string checkpoint, task = "fill-mask", input;
  int64_t top_k = 5;
  bool raw_weights = false;
  std::vector<std::string> texts;
  app.add_option("--checkpoint", checkpoint, "checkpoint or run directory, or an exported file")->required();
  app.add_option("--task", task, "fill-mask or features")->check(CLI::IsMember({"fill-mask", "features"}));
  app.add_option("--top-k", top_k, "fillers of each mask")->check(CLI::Range(1, 1000));
  app.add_flag("--raw-weights", raw_weights, kRawWeightsHelp);
  app.add_option("--input", input, "file with one text a line; - is standard input");
  app.add_option("text", texts, "texts; [MASK] marks what to fill in");
  if (!parse_command_line(app, argc, argv)) return kOk;
  if (input == "-") {
    texts = read_lines(std::cin);
  } else if (!input.empty()) {
    std::istringstream lines(read_file(input));
    texts = read_lines(lines);
  }
  if (texts.empty()) throw UsageError("no text: give TEXT or --input FILE; see bert predict --help");
  if (raw_weights && !std::filesystem::is_directory(checkpoint)) {
    throw UsageError("--raw-weights: " + checkpoint +
                     " is an export, which has one kind of weights; export it with --raw-weights");
  }
  Predictor predictor(checkpoint, raw_weights ? WeightsKind::kRaw : WeightsKind::kAveraged);
  for (const std::string& text : texts) {
    std::cout << (task == "features" ? to_json(text, predictor.features(text))
                                     : to_json(predictor.fill_mask(text, top_k)))
                     .dump()
              << "\n";
  }
  return kOk;
}

int export_command(int argc, char** argv) {
  CLI::App app(
      "Writes a checkpoint's model as TorchScript (loads in LibTorch and Python without this program) or safetensors "
      "(Hugging Face's "
      "names).\nExample: bert export --checkpoint runs/phase2 --format torchscript --output bert.pt",
      "bert export");
  std::string checkpoint_path, format = "torchscript", output, precision = "fp32";
  bool raw_weights = false;
  app.add_option("--checkpoint", checkpoint_path, "checkpoint or run directory")->required();
  app.add_option("--format", format, "torchscript or safetensors")
      ->check(CLI::IsMember({"torchscript", "safetensors"}));
  app.add_option("--output", output, "file to write")->required();
  app.add_option("--precision", precision, "of the weights: fp32, fp16 or bf16")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}));
  app.add_flag("--raw-weights", raw_weights, kRawWeightsHelp);
  if (!parse_command_line(app, argc, argv)) return kOk;
  const Checkpoint checkpoint = load_checkpoint(
      resolve_checkpoint(checkpoint_path), raw_weights ? CheckpointParts::kModel : CheckpointParts::kAveragedModel);
  const PretrainConfig config = parse_pretrain_config(checkpoint.state.config, checkpoint_path + "/state.json");
  BertForPreTraining model(config.model);
  load_state_dict(*model, checkpoint.model);
  model->eval();
  const auto dtype = precision == "fp16" ? torch::kHalf : precision == "bf16" ? torch::kBFloat16 : torch::kFloat;
  if (format == "safetensors") {
    model->to(dtype);
    save_safetensors(output, state_dict(*model));
  } else {
    std::string vocabulary;
    for (const std::string& token : checkpoint.state.vocabulary) vocabulary += token + "\n";
    nlohmann::ordered_json extra = nlohmann::json::parse(bert::to_json(config))["model"];
    extra["model_type"] = "bert";
    extra["do_lower_case"] = checkpoint.state.do_lower_case;
    AtomicFile file(output);
    std::exception_ptr failure;
    save_torchscript(
        export_torchscript(*model, dtype), {{"config.json", extra.dump(2) + "\n"}, {"vocab.txt", vocabulary}},
        [&](const void* data, size_t bytes) {
          try {
            if (!failure) file.write(data, bytes);
          } catch (const IoError&) {
            failure = std::current_exception();  // LibTorch calls this in a destructor: nothing may leave it
          }
          return bytes;
        });
    if (failure) std::rethrow_exception(failure);
    file.commit();
  }
  std::fprintf(stderr, "wrote %s%s\n", output.c_str(), checkpoint.averaged ? ", moving averages of the weights" : "");
  return kOk;
}

}  // namespace bert
