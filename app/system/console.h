// Lines of the launcher itself on stderr.
#pragma once

#include <string>

namespace bert {

/// "bertrun: " and the text on a line of stderr. Where nobody reads stderr the line is dropped after a moment: the
/// launcher has signals and peers to answer.
void say(const std::string& text);

}  // namespace bert
