// The launcher's own lines on stderr.
#pragma once

#include <string>

namespace bert {

/// Prints "bertrun: " and the text as a line on stderr. If nobody reads stderr, the line is dropped after 200 ms,
/// because the launcher must answer signals and peers.
void say(const std::string& text);

}  // namespace bert
