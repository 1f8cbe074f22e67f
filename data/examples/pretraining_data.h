// An example of pre-training: its parts, and the settings that it was made with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/config.h"

namespace bert {

/// [CLS] A [SEP] B [SEP], or with Objective::kMlm [CLS] A [SEP], with some tokens replaced.
struct PretrainingExample {
  std::vector<int32_t> input_ids;  // with the replaced tokens
  int32_t segment_b_start = 0;     // index of B's first token: token_type_ids are 1 from here on; length without B
  std::vector<int32_t> masked_positions;  // ascending; empty with StoredMasks::kNone
  std::vector<int32_t> masked_ids;        // the original ids at those positions
  bool is_random_next = false;            // kNsp: B does not follow A in the text; kSop: B stands before A; kMlm: false
  bool operator==(const PretrainingExample&) const = default;
};

/// Throws DataError if the parts of an example contradict each other or exceed these bounds.
void validate(const PretrainingExample& example, int64_t vocab_size, int64_t max_seq_length);

/// Settings of creation as names and values: the manifest of a shard stores them.
using Parameters = std::vector<std::pair<std::string, std::string>>;

/// A value as text: numbers with as few digits as tell them apart, "true" and "false".
std::string parameter_text(bool value);
std::string parameter_text(int64_t value);
std::string parameter_text(double value);

/// The fields of a configuration struct as parameters.
template <class Config>
Parameters parameters_of(const Config& config) {
  Parameters result;
  Config::visit_fields(config, [&](const char* name, const auto& value, auto&&...) {
    if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>) {
      result.emplace_back(name, name_of_value(value));
    } else {
      result.emplace_back(name, parameter_text(value));
    }
  });
  return result;
}

/// The same for a tokenizer. strip_accents and tokenize_chinese_chars, which older files do not have, are there only
/// where they differ from what older versions did: accents go with lower case, and ideographs are words.
Parameters parameters_of(const TokenizerConfig& tokenizer);

/// The value of a parameter; empty if it is not there.
std::string parameter(const Parameters& parameters, std::string_view name);

/// The value of a field of TokenizerConfig, also one that parameters_of() leaves out; empty if it is not known.
std::string tokenizer_parameter(const Parameters& parameters, std::string_view name);

/// The objective that examples with these parameters were made for; without the parameter it is kNsp. Throws DataError
/// for an unknown word.
Objective objective_of(const Parameters& parameters);

}  // namespace bert
