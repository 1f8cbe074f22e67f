// Matrices in memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bert {

/// Copies a row-major matrix of rows x columns elements of `width` bytes into `to` as its transpose, which is row-major
/// too.
void transpose(std::string_view from, size_t rows, size_t columns, size_t width, std::string& to);

}  // namespace bert
