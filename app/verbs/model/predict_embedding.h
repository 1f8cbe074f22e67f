// Vectors of texts, and what compares them, in `bert predict`.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "app/inference/answer_options.h"
#include "app/inference/predictor.h"
#include "app/verbs/model/predict_input.h"

namespace bert {

/// The form of the numbers of a vector, by its name in quantize_embeddings() of sentence-transformers.
enum class VectorForm : uint8_t { kFloat32, kInt8, kUint8, kBinary, kUbinary };
inline std::span<const char* const> names_of(VectorForm /*type*/) {
  static constexpr std::array<const char*, 5> kNames = {"float32", "int8", "uint8", "binary", "ubinary"};
  return kNames;
}

/// Adds --dimensions, --normalize, --prompt, --prompt-name and --quantize.
void add_embedding_options(CLI::App& app, AnswerOptions& answers, VectorForm& form);

/// True if one of these options is given, but for --quantize.
bool has_embedding_options(const AnswerOptions& answers);

/// Throws UsageError if the model lacks the prompt, or has fewer dimensions.
void check_embedding_options(const Predictor& predictor, const AnswerOptions& answers);

/// Vectors [N, D] of fp32 in `form`: bytes [N, D], or bits [N, (D + 7) / 8] that say which numbers are above 0. The range
/// of bytes in a column is that of its numbers.
at::Tensor in_form(const at::Tensor& vectors, VectorForm form);

/// The similarity of two vectors [D], as the model compares them; distances are negative.
double similarity_of(Similarity kind, const at::Tensor& a, const at::Tensor& b);

/// Pairs of --task similarity: each text but the first one with that; or with `pair_field` each text with that field of
/// its JSON line. Objects are {"text", "text_pair", "similarity"}. Throws DataError for a line without the field.
std::vector<nlohmann::ordered_json> similarities(const Predictor& predictor, const std::vector<InputText>& texts,
                                                 std::span<const EncodedText> encoded, const std::string& pair_field);

}  // namespace bert
