// One field of a JSON object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bert {

/// Puts the string at `field` of the JSON object `line` into `text`. "a.b" is the field b of the object a. Returns an
/// empty string, or what is wrong with the line: "no field text; it has title, body". Memory is that of the string. Depth
/// and size of the rest do not matter. NaN and Infinity are numbers, and half of a surrogate pair is a character, as in
/// Python's json, which writes both: the character becomes U+FFFD, and `lone_surrogates` grows by one.
std::string read_json_field(std::string_view line, std::string_view field, std::string& text, int64_t& lone_surrogates);

/// Number of halves of surrogate pairs without the other half in the strings of `line`.
int64_t count_lone_surrogates(std::string_view line);

}  // namespace bert
