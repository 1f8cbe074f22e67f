// The rules of normalisation in a SentencePiece model, which the library follows without looking where they lead.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// Throws DataError, with `name`, when the serialized model is no protocol buffer, or when one of its rules leads outside
/// of the rules, where the library would read.
void check_normalization_rules(std::string_view model, const std::string& name);

}  // namespace bert
