#include "app/verbs/model/predict_embedding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include "app/cli/choice.h"
#include "app/cli/command_line.h"
#include "app/inference/sentence_pooling.h"
#include "app/system/errors.h"
#include "app/verbs/model/predict_task.h"

namespace bert {
namespace {

/// [N, D] of true or false to bytes [N, (D + 7) / 8], the first one in the highest bit.
torch::Tensor packed_bits(const torch::Tensor& bits) {
  constexpr int64_t kBits = 8;
  const int64_t missing = (kBits - bits.size(1) % kBits) % kBits;
  const torch::Tensor whole =
      torch::constant_pad_nd(bits.to(torch::kInt), {0, missing}).view({bits.size(0), -1, kBits});
  const torch::Tensor weights = torch::tensor({128, 64, 32, 16, 8, 4, 2, 1}, torch::kInt);
  return (whole * weights).sum(-1, /*keepdim=*/false, torch::kInt);
}

}  // namespace

void add_embedding_options(CLI::App& app, AnswerOptions& answers, VectorForm& form) {
  app.add_option("--dimensions", answers.dimensions, "embedding: the first numbers of the vector, of Matryoshka models")
      ->check(number_in<int64_t>(1, 1 << 20));
  app.add_flag_callback(
      "--normalize", [&answers] { answers.normalize = true; },
      "embedding: vectors of length 1, whatever the model does");
  auto* prompt = app.add_option_function<std::string>(
      "--prompt", [&answers](const std::string& text) { answers.prompt = text; }, "embedding: put before every text");
  app.add_option_function<std::string>(
         "--prompt-name", [&answers](const std::string& name) { answers.prompt_name = name; },
         "embedding: a prompt of the model by its name, such as query")
      ->excludes(prompt);
  add_choice(app, "--quantize", form,
             "embedding: form of the numbers in npy and safetensors; binary and ubinary are bits");
}

bool has_embedding_options(const AnswerOptions& answers) {
  return answers.dimensions > 0 || answers.normalize || answers.prompt || answers.prompt_name;
}

void check_embedding_options(const Predictor& predictor, const AnswerOptions& answers) {
  const SentenceEncoder& encoder = predictor.sentence_encoder();
  const std::string name = answers.prompt_name.value_or("");
  if (!name.empty() && !encoder.prompts.contains(name)) {
    std::vector<std::string> known;
    for (const auto& [each, text] : encoder.prompts) known.push_back(each);
    throw UsageError(fmt::format("--prompt-name {}: the model has the prompts [{}]", name, fmt::join(known, ", ")));
  }
  const int64_t most = vector_size(encoder, predictor.config().hidden_size);
  if (answers.dimensions > most)
    throw UsageError(fmt::format("--dimensions {}: the model's vectors have {}", answers.dimensions, most));
}

torch::Tensor in_form(const torch::Tensor& vectors, VectorForm form) {
  constexpr int64_t kSteps = 255, kMiddle = 128;
  switch (form) {
    case VectorForm::kFloat32:
      break;
    case VectorForm::kInt8:
    case VectorForm::kUint8: {
      const torch::Tensor low = vectors.amin(0), step = (vectors.amax(0) - low) / kSteps;
      const torch::Tensor places =
          ((vectors - low) / torch::where(step == 0, torch::ones_like(step), step)).floor().clamp(0, kSteps);
      return form == VectorForm::kUint8 ? places.to(torch::kByte) : (places - kMiddle).to(torch::kChar);
    }
    case VectorForm::kBinary:
      return (packed_bits(vectors > 0) - kMiddle).to(torch::kChar);
    case VectorForm::kUbinary:
      return packed_bits(vectors > 0).to(torch::kByte);
  }
  return vectors;
}

double similarity_of(Similarity kind, const torch::Tensor& a, const torch::Tensor& b) {
  switch (kind) {
    case Similarity::kCosine:
      return normalized(a).dot(normalized(b)).item<double>();
    case Similarity::kDot:
      return a.dot(b).item<double>();
    case Similarity::kEuclidean:
      return -(a - b).norm().item<double>();
    case Similarity::kManhattan:
      break;
  }
  return -(a - b).abs().sum().item<double>();
}

std::vector<nlohmann::ordered_json> similarities(const Predictor& predictor, const std::vector<InputText>& texts,
                                                 std::span<const EncodedText> encoded, const std::string& pair_field) {
  std::vector<EncodedText> all(encoded.begin(), encoded.end());
  for (size_t i = 0; !pair_field.empty() && i < texts.size(); ++i)
    all.push_back(predictor.encode(Task::kEmbedding, task_input(texts[i], "", pair_field).second, encoded[i].options));
  const std::vector<torch::Tensor> vectors = predictor.sentence_embeddings(all);
  const Similarity kind = predictor.sentence_encoder().similarity;
  std::vector<nlohmann::ordered_json> answers;
  for (size_t i = pair_field.empty() ? 1 : 0; i < encoded.size(); ++i) {
    const size_t other = pair_field.empty() ? 0 : encoded.size() + i;
    answers.push_back({{"text", encoded[i].text},
                       {"text_pair", all[other].text},
                       {"similarity", similarity_of(kind, vectors[i], vectors[other])}});
  }
  return answers;
}

}  // namespace bert
