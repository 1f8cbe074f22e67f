// Options that earlier releases had.
#pragma once

#include <string>

namespace bert {

/// If the command line `program`, such as "bert serve", once had `argument` (--NAME, with or without =VALUE): the sentence
/// that names what replaced it. Otherwise "".
std::string removed_option(const std::string& program, const std::string& argument);

}  // namespace bert
