#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli/command_line.h"
#include "app/cli/standard_input.h"
#include "app/inference/predictor.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/train/device.h"
#include "app/verbs/verbs.h"
#include "app/verbs/weights_options.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

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
  // As in Hugging Face's pipeline: the fillers of the one mask, or a list of fillers for each of several masks.
  return {{"text", filling.text}, {"fillers", filling.masks.size() == 1 ? masks[0] : masks}};
}

nlohmann::ordered_json to_json(const std::string& text, const Features& features) {
  const auto vector_of = [](const torch::Tensor& row) {
    const torch::Tensor values = row.contiguous();
    return std::vector<float>(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
  };
  const torch::Tensor last_hidden_state = features.last_hidden_state.to(torch::kCPU);
  nlohmann::ordered_json hidden = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < last_hidden_state.size(0); ++i) hidden.push_back(vector_of(last_hidden_state[i]));
  nlohmann::ordered_json answer = {{"text", text}, {"tokens", features.tokens}};
  if (features.pooler_output.defined()) answer["pooler_output"] = vector_of(features.pooler_output.to(torch::kCPU));
  answer["last_hidden_state"] = hidden;
  return answer;
}

/// A text to predict on, and its place for messages: "texts.txt: line 3".
struct Text {
  std::string text, place;
};

/// The non-empty lines of the file `input`; "-" is standard input.
std::vector<Text> read_texts(const std::string& input) {
  const std::string name = input == "-" ? "standard input" : input;
  const auto check = [&name](std::string_view start) { check_is_plain_text(name, start); };
  std::istringstream stream(input == "-" ? read_standard_input(check) : read_file(input));
  check(stream.view());
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

/// Prints the answer for each text on a line, a batch at a time. If a text has no answer, prints those of the texts
/// before it, then throws DataError with its place.
void print_answers(
    const std::vector<Text>& texts, int64_t batch_size,
    const std::function<std::vector<nlohmann::ordered_json>(const std::vector<std::string>& batch)>& answer) {
  const auto print = [&](const std::vector<std::string>& batch) {
    for (const nlohmann::ordered_json& line : answer(batch)) std::cout << line.dump() << "\n";
  };
  const auto size = static_cast<size_t>(batch_size);
  for (size_t begin = 0; begin < texts.size(); begin += size) {
    std::vector<std::string> batch;
    for (size_t i = begin; i < std::min(begin + size, texts.size()); ++i) batch.push_back(texts[i].text);
    try {
      print(batch);
    } catch (const TextError& error) {
      batch.resize(error.index);
      print(batch);
      throw DataError(texts[begin + error.index].place + ": " + error.what());
    }
  }
}

}  // namespace

int predict_command(int argc, char** argv) {
  CLI::App app(
      "Predicts with a checkpoint, a run directory or a TorchScript export; one JSON object per text on standard "
      "output.\n"
      "Example: bert predict --checkpoint bert.pt --task fill-mask \"The quick brown [MASK] jumps.\"",
      "bert predict");
  std::string checkpoint, task = "fill-mask", device = "cpu", input;
  PredictorOptions options;
  int64_t top_k = 5;
  WeightsKind weights = WeightsKind::kAveraged;
  std::vector<std::string> arguments;
  app.add_option("--checkpoint", checkpoint, "checkpoint or run directory, or an exported file")->required();
  app.add_option("--task", task, "what to predict")
      ->check(CLI::IsMember({"fill-mask", "features"}))
      ->capture_default_str();
  app.add_option("--top-k", top_k, "words for each [MASK]")->check(number_in<int64_t>(1, 1000))->capture_default_str();
  app.add_option("--device", device, "auto: cuda if there is a GPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  add_precision(app, options.dtype, "precision of the weights and of the computation");
  app.add_option("--batch-size", options.batch_size, "texts that are computed together")
      ->check(number_in<int64_t>(1, 1 << 20))
      ->capture_default_str();
  add_raw_weights(app, weights);
  CLI::Option* file = app.add_option("--input", input, "file with one text a line; - is standard input");
  app.add_option("TEXT", arguments, "texts; [MASK] stands for a word to fill in")->excludes(file);
  app.footer("Invalid UTF-8 is dropped; standard error has its count.");
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
  options.device = select_device(device, /*local_rank=*/0);
  const Predictor predictor(load_pretrained(checkpoint, weights, say_in("bert predict")), options);
  print_answers(texts, options.batch_size, [&](const std::vector<std::string>& batch) {
    std::vector<nlohmann::ordered_json> answers;
    if (task == "features") {
      const std::vector<Features> features = predictor.features(batch);
      for (size_t i = 0; i < batch.size(); ++i) answers.push_back(to_json(batch[i], features[i]));
    } else {
      for (const MaskFilling& filling : predictor.fill_mask(batch, top_k)) answers.push_back(to_json(filling));
    }
    return answers;
  });
  return kOk;
}

}  // namespace bert
