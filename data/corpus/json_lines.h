// One field of a JSON object.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// Puts the string at `field` of the JSON object `line` into `text`. "a.b" is the field b of the object a. Returns an
/// empty string, or what is wrong with the line: "no field text; it has title, body". Memory is that of the string. Depth
/// and size of the rest do not matter.
std::string read_json_field(std::string_view line, std::string_view field, std::string& text);

}  // namespace bert
