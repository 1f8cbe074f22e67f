#include "data/tokenizer/double_array.h"

#include <algorithm>
#include <deque>

namespace bert {

/// Places the nodes level by level. The keys below a node are a range of the sorted keys.
class DoubleArray::Builder {
 public:
  Builder(std::vector<std::pair<std::string_view, int32_t>> keys, std::vector<Node>& nodes)
      : keys_(std::move(keys)), nodes_(nodes) {
    std::ranges::stable_sort(keys_, [](const auto& a, const auto& b) { return a.first < b.first; });
    nodes_.assign(2 * kBytes, Node{});
    std::deque<Range> open{{kRoot, 0, keys_.size(), 0}};
    while (!open.empty()) {
      place_children(open.front(), open);
      open.pop_front();
    }
    const auto last = std::find_if(nodes_.rbegin(), nodes_.rend(), [](const Node& n) { return n.parent != kNone; });
    nodes_.resize(static_cast<size_t>(nodes_.rend() - last) + kBytes);  // next() may read kBytes past the last node
  }

 private:
  static constexpr size_t kBytes = 256;
  struct Range {
    int32_t node;
    size_t first, last, depth;
  };

  void place_children(Range range, std::deque<Range>& open) {
    auto [node, first, last, depth] = range;
    while (first < last && keys_[first].first.size() == depth) {
      nodes_[static_cast<size_t>(node)].value = keys_[first++].second;
    }
    std::vector<Range> children;
    std::vector<size_t> bytes;
    for (size_t i = first; i < last;) {
      const auto byte = static_cast<unsigned char>(keys_[i].first[depth]);
      const size_t begin = i;
      while (i < last && static_cast<unsigned char>(keys_[i].first[depth]) == byte) ++i;
      children.push_back({0, begin, i, depth + 1});
      bytes.push_back(byte);
    }
    if (children.empty()) return;
    const size_t base = find_base(bytes);
    nodes_[static_cast<size_t>(node)].base = static_cast<int32_t>(base);
    for (size_t i = 0; i < children.size(); ++i) {
      const size_t at = base + bytes[i];
      nodes_[at].parent = node;
      children[i].node = static_cast<int32_t>(at);
      open.push_back(children[i]);
    }
  }

  [[nodiscard]] bool free_at(size_t at) const { return at != kRoot && nodes_[at].parent == kNone; }

  /// The first base for which the places of all children are free.
  size_t find_base(const std::vector<size_t>& bytes) {
    while (!free_at(first_free_)) ++first_free_;
    size_t at = std::max(first_free_, bytes.front() + 1);  // place of the first child; bases start at 1
    size_t taken = 0;
    for (size_t tried = 0;; ++at, ++tried) {
      const size_t base = at - bytes.front();
      if (base + 2 * kBytes > nodes_.size()) nodes_.resize(nodes_.size() * 2);
      if (!free_at(at)) {
        ++taken;
        continue;
      }
      if (std::ranges::all_of(bytes, [&](size_t byte) { return free_at(base + byte); })) {
        if (tried > kBytes && taken * 20 > tried * 19)
          first_free_ = at;  // 95 % full up to here: later searches begin here
        return base;
      }
    }
  }

  std::vector<std::pair<std::string_view, int32_t>> keys_;
  std::vector<Node>& nodes_;
  size_t first_free_ = 1;
};

DoubleArray::DoubleArray(std::vector<std::pair<std::string_view, int32_t>> keys) { Builder(std::move(keys), nodes_); }

}  // namespace bert
