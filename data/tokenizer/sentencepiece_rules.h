// A check of the normalisation rules in a SentencePiece model. The library follows these rules without bounds checks.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// Throws DataError, with `name`, if the serialized model is not a protocol buffer, or if one of its rules would make
/// the library read outside of the rules.
void check_normalization_rules(std::string_view model, const std::string& name);

}  // namespace bert
