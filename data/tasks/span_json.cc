#include "data/tasks/span_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/io/error.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

/// The number in `value` under one of two keys.
int64_t place_of(const nlohmann::json& value, const char* key, const char* other) {
  const auto found = value.contains(key) ? value.find(key) : value.find(other);
  if (found != value.end() && found->is_number_integer()) return found->get<int64_t>();
  throw DataError(fmt::format("want a number \"{}\" in {}", key, value.dump()));
}

}  // namespace

TextSpan span_of_json(const nlohmann::json& value) {
  if (value.is_object())
    return {.begin = place_of(value, "start", "start_offset"), .end = place_of(value, "end", "end_offset")};
  if (!value.is_array() || value.size() < 2 || !value[0].is_number_integer() || !value[1].is_number_integer())
    throw DataError(fmt::format("want a span [start, end] or {{\"start\", \"end\"}}, got {}", value.dump()));
  return {.begin = value[0].get<int64_t>(), .end = value[1].get<int64_t>()};
}

CharacterPlaces::CharacterPlaces(std::string_view text) {
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(decode_utf8(text.substr(at)).bytes))
    begins_.push_back(static_cast<int64_t>(at));
  begins_.push_back(static_cast<int64_t>(text.size()));
}

TextSpan CharacterPlaces::bytes_of(const TextSpan& characters) const {
  const int64_t all = std::ssize(begins_) - 1;
  if (characters.begin < 0 || characters.begin >= characters.end || characters.end > all)
    throw DataError(fmt::format("the span [{}, {}] is empty or outside of the text, which has {} characters",
                                characters.begin, characters.end, all));
  return {.begin = begins_[static_cast<size_t>(characters.begin)], .end = begins_[static_cast<size_t>(characters.end)]};
}

}  // namespace bert
