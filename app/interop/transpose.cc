#include "app/interop/transpose.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace bert {
namespace {

template <class T>
void transpose_as(const char* from, size_t rows, size_t columns, char* to) {
  constexpr size_t kTile = 32;  // a tile of each matrix stays in the first cache
  for (size_t row0 = 0; row0 < rows; row0 += kTile) {
    for (size_t column0 = 0; column0 < columns; column0 += kTile) {
      for (size_t column = column0; column < std::min(columns, column0 + kTile); ++column) {
        for (size_t row = row0; row < std::min(rows, row0 + kTile); ++row)
          std::memcpy(to + (column * rows + row) * sizeof(T), from + (row * columns + column) * sizeof(T), sizeof(T));
      }
    }
  }
}

}  // namespace

void transpose(std::string_view from, size_t rows, size_t columns, size_t width, std::string& to) {
  to.resize(from.size());
  const auto run = width == 1   ? transpose_as<uint8_t>
                   : width == 2 ? transpose_as<uint16_t>
                   : width == 4 ? transpose_as<uint32_t>
                                : transpose_as<uint64_t>;
  run(from.data(), rows, columns, to.data());
}

}  // namespace bert
