// A trie of byte strings in a double array: one step is one addition and one comparison.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace bert {

/// Maps byte strings to values >= 0. Immutable. Source: Aoe, "An efficient digital search algorithm by using a
/// double-array structure", 1989.
class DoubleArray {
 public:
  static constexpr int32_t kRoot = 0;
  static constexpr int32_t kNone = -1;

  /// Keys in any order, not empty. Of equal keys the last one is kept.
  explicit DoubleArray(std::vector<std::pair<std::string_view, int32_t>> keys);

  /// The node reached from `node` by `byte`, or kNone.
  [[nodiscard]] int32_t next(int32_t node, unsigned char byte) const {
    const int32_t child = nodes_[static_cast<size_t>(node)].base + byte;
    return nodes_[static_cast<size_t>(child)].parent == node ? child : kNone;
  }

  /// The value of the key that ends at `node`, or kNone.
  [[nodiscard]] int32_t value(int32_t node) const { return nodes_[static_cast<size_t>(node)].value; }

 private:
  struct Node {
    int32_t base = 0;  // children are at base + byte; a leaf's base is 0, where no node has it as its parent
    int32_t parent = kNone;
    int32_t value = kNone;
  };
  class Builder;
  std::vector<Node> nodes_;
};

}  // namespace bert
