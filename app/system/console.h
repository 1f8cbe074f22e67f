// Text for a terminal, and the launcher's own lines on stderr.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// The text as a terminal may show it, whoever has written it: names of other machines, messages of ranks. Control
/// characters (also those of U+0080 to U+009F), Unicode's line separators and changes of direction, and bytes that are
/// no UTF-8 become escapes such as \x1b and \u202e. All other UTF-8 stays. So do the control characters in `kept`.
std::string printable(std::string_view text, std::string_view kept = "\t");

/// The beginning of a UTF-8 text: at most `bytes` bytes, and no part of a character.
std::string shortened(std::string_view text, size_t bytes);

/// Prints "bertrun: " and the text, made printable, as one line on stderr. If nobody reads stderr, the line is dropped
/// after 200 ms, because the launcher must answer signals and peers.
void say(const std::string& text);

}  // namespace bert
