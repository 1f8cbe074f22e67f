#include "data/examples/pretraining_data.h"

#include <fmt/format.h>

#include <optional>
#include <type_traits>

#include "data/io/error.h"

namespace bert {
namespace {

// Names of fields of TokenizerConfig.
constexpr std::string_view kStripAccents = "strip_accents", kIdeographs = "tokenize_chinese_chars";

}  // namespace

void validate(const PretrainingExample& example, int64_t vocab_size, int64_t max_seq_length) {
  const int64_t length = static_cast<int64_t>(example.input_ids.size());
  if (length < 1 || length > max_seq_length) {
    throw DataError(fmt::format("an example has {} tokens, 1 to {} are allowed", length, max_seq_length));
  }
  if (example.segment_b_start < 0 || example.segment_b_start > length) {
    throw DataError(
        fmt::format("an example of {} tokens has its second segment at {}", length, example.segment_b_start));
  }
  for (const auto* ids : {&example.input_ids, &example.masked_ids}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= vocab_size)
        throw DataError(fmt::format("an example has id {} in a vocabulary of {}", id, vocab_size));
    }
  }
  if (example.masked_positions.size() != example.masked_ids.size()) {
    throw DataError(fmt::format("an example has {} masked positions and {} masked ids", example.masked_positions.size(),
                                example.masked_ids.size()));
  }
  for (size_t i = 0; i < example.masked_positions.size(); ++i) {
    const int32_t position = example.masked_positions[i];
    if (position < 0 || position >= length || (i > 0 && position <= example.masked_positions[i - 1])) {
      throw DataError(
          fmt::format("an example of {} tokens has masked position {}, or positions out of order", length, position));
    }
  }
}

std::string parameter_text(bool value) { return fmt::format("{}", value); }
std::string parameter_text(int64_t value) { return fmt::format("{}", value); }
std::string parameter_text(double value) { return fmt::format("{}", value); }

std::string parameter(const Parameters& parameters, std::string_view name) {
  for (const auto& [key, value] : parameters) {
    if (key == name) return value;
  }
  return {};
}

Parameters parameters_of(const TokenizerConfig& tokenizer) {
  Parameters result;
  TokenizerConfig::visit_fields(tokenizer, [&](const char* name, const auto& value, auto&&...) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::optional<bool>>) {
      if (tokenizer.strips_accents() != tokenizer.do_lower_case)
        result.emplace_back(name, parameter_text(tokenizer.strips_accents()));
    } else if (name != kIdeographs || !tokenizer.tokenize_chinese_chars) {
      result.emplace_back(name, parameter_text(value));
    }
  });
  return result;
}

std::string tokenizer_parameter(const Parameters& parameters, std::string_view name) {
  std::string value = parameter(parameters, name), lower_case = parameter(parameters, "do_lower_case");
  if (!value.empty() || lower_case.empty()) return value;
  if (name == kStripAccents) return lower_case;
  return name == kIdeographs ? parameter_text(true) : "";
}

Objective objective_of(const Parameters& parameters) {
  const std::string value = parameter(parameters, "objective");
  if (value.empty()) return Objective::kNsp;
  if (const auto objective = value_named<Objective>(value)) return *objective;
  throw DataError(fmt::format("the examples were made with objective={}, which this program does not know", value));
}

}  // namespace bert
