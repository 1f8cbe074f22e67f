#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/cli/standard_input.h"
#include "app/config/pretrain_config.h"
#include "app/inference/predictor.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"
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

/// A text to predict on, and where it stands: "texts.txt: line 3".
struct Text {
  std::string text, place;
};

/// The lines of `input` that are not empty; "-" is standard input.
std::vector<Text> read_texts(const std::string& input) {
  const std::string name = input == "-" ? "standard input" : input;
  std::istringstream stream(input == "-" ? read_standard_input() : read_file(input));
  check_is_plain_text(name, stream.view());
  std::vector<Text> texts;
  int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) texts.push_back({line, name + ": line " + std::to_string(number)});
  }
  if (texts.empty()) throw DataError(name + ": has no text; expected one text a line");
  return texts;
}

void drop_invalid_utf8(std::vector<Text>& texts) {
  int64_t invalid = 0;
  for (Text& text : texts) invalid += bert::drop_invalid_utf8(text.text);
  if (invalid > 0)
    std::fprintf(stderr, "bert predict: dropped %ld invalid UTF-8 sequences\n", static_cast<long>(invalid));
}

void add_raw_weights(CLI::App& app, WeightsKind& weights) {
  app.add_flag_callback(
      "--raw-weights", [&weights] { weights = WeightsKind::kRaw; },
      "of a run with optimizer.ema_decay: the weights themselves; the default is their moving average, which the run "
      "evaluated");
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
  WeightsKind weights = WeightsKind::kAveraged;
  std::vector<std::string> arguments;
  app.add_option("--checkpoint", checkpoint, "checkpoint or run directory, or an exported file")->required();
  app.add_option("--task", task, "what to predict")
      ->check(CLI::IsMember({"fill-mask", "features"}))
      ->capture_default_str();
  app.add_option("--top-k", top_k, "fillers of each mask")->check(number_in<int64_t>(1, 1000))->capture_default_str();
  add_raw_weights(app, weights);
  CLI::Option* file = app.add_option("--input", input, "file with one text a line; - is standard input");
  app.add_option("TEXT", arguments, "texts; [MASK] marks what to fill in")->excludes(file);
  app.footer("Invalid UTF-8 is dropped and counted on standard error.");
  if (!parse_command_line(app, argc, argv)) return kOk;
  if (input.empty() && arguments.empty())
    throw UsageError("no text: give TEXT or --input FILE; see bert predict --help");
  std::vector<Text> texts = input.empty() ? std::vector<Text>() : read_texts(input);
  for (size_t i = 0; i < arguments.size(); ++i) texts.push_back({arguments[i], "TEXT " + std::to_string(i + 1)});
  drop_invalid_utf8(texts);
  if (weights == WeightsKind::kRaw && !std::filesystem::is_directory(checkpoint)) {
    throw UsageError("--raw-weights: " + checkpoint +
                     " is an export, which has one kind of weights; export it with --raw-weights");
  }
  Predictor predictor(checkpoint, weights, say_in("bert predict"));
  for (const auto& [text, place] : texts) {
    try {
      std::cout << (task == "features" ? to_json(text, predictor.features(text))
                                       : to_json(predictor.fill_mask(text, top_k)))
                       .dump()
                << "\n";
    } catch (const DataError& error) {
      throw DataError(place + ": " + error.what());
    }
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
  WeightsKind weights = WeightsKind::kAveraged;
  app.add_option("--checkpoint", checkpoint_path, "checkpoint or run directory")->required();
  app.add_option("--format", format, "of the file")
      ->check(CLI::IsMember({"torchscript", "safetensors"}))
      ->capture_default_str();
  app.add_option("--output", output, "file to write")->required();
  app.add_option("--precision", precision, "of the weights")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
      ->capture_default_str();
  add_raw_weights(app, weights);
  if (!parse_command_line(app, argc, argv)) return kOk;
  check_outputs({{"--output", output}}, {});
  std::error_code unseen;
  if (std::filesystem::is_regular_file(checkpoint_path, unseen))
    throw InputMissing(checkpoint_path + ": is a file; name the checkpoint or run directory to export");
  Percentage percentage;
  const VerifiedCheckpoint verified = find_valid_checkpoint(
      checkpoint_path, say_in("bert export"), [&](double share) { percentage.update("verifying", share); });
  const Checkpoint checkpoint = load_model(verified, weights);
  const PretrainConfig config = parse_pretrain_config(checkpoint.state.config, verified.directory + "/state.json");
  BertForPreTraining model(config.model);
  load_state_dict(*model, checkpoint.model);
  model->eval();
  const auto dtype = precision == "fp16" ? torch::kHalf : precision == "bf16" ? torch::kBFloat16 : torch::kFloat;
  int64_t needed = 0;
  for (const torch::Tensor& parameter : model->parameters())
    needed += parameter.numel() * static_cast<int64_t>(c10::elementSize(dtype));
  check_free_space(output, needed, "the export");
  int64_t done = 0;
  const auto written = [&](size_t bytes) {
    constexpr double kUnsynced = 0.99;  // the end is when the disk has it all
    done += static_cast<int64_t>(bytes);
    percentage.update("writing", std::min(kUnsynced, static_cast<double>(done) / static_cast<double>(needed)));
  };
  if (format == "safetensors") {
    model->to(dtype);
    save_safetensors(output, state_dict(*model), written);
  } else {
    std::string vocabulary;
    for (const std::string& token : checkpoint.state.vocabulary) vocabulary += token + "\n";
    nlohmann::ordered_json extra = nlohmann::json::parse(bert::to_json(config))["model"];
    extra["model_type"] = "bert";
    extra["do_lower_case"] = config.data.tokenizer.do_lower_case;
    extra["max_input_chars_per_word"] = config.data.tokenizer.max_input_chars_per_word;
    ExtraFiles files = {{"config.json", extra.dump(2) + "\n"}, {"vocab.txt", vocabulary}};
    if (!checkpoint.tokenizer_model.empty()) files[kTokenizerFile] = checkpoint.tokenizer_model;
    AtomicFile file(output);
    std::exception_ptr failure;
    percentage.update("tracing and comparing", 0);
    const torch::jit::Module script = export_torchscript(*model, dtype);
    percentage.update("tracing and comparing", 1);
    save_torchscript(script, files, [&](const void* data, size_t bytes) {
      try {
        if (!failure) file.write(data, bytes);
        written(bytes);
      } catch (const IoError&) {
        failure = std::current_exception();  // LibTorch calls this in a destructor: nothing may leave it
      }
      return bytes;
    });
    if (failure) std::rethrow_exception(failure);
    file.commit();
  }
  percentage.update("writing", 1);
  std::fprintf(stderr, "wrote %s%s\n", output.c_str(), checkpoint.averaged ? ", moving averages of the weights" : "");
  return kOk;
}

}  // namespace bert
