// A curve as one line of text.
#pragma once

#include <string>
#include <vector>

namespace bert {

/// At most `columns` characters from U+2581 (lowest) to U+2588 (highest): the curve of the finite values, each
/// character the mean of as many neighbours. Equal values give the lowest character; no finite value gives "".
std::string sparkline(const std::vector<double>& values, size_t columns);

}  // namespace bert
