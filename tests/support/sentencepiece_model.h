// A small SentencePiece model, built byte by byte after sentencepiece_model.proto.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bert::testing {

namespace detail {

/// Fields of a protocol buffer: bytes or a message, an integer, a float.
inline std::string varint(size_t value) {
  std::string text;
  for (; value > 127; value >>= 7) text.push_back(static_cast<char>(value | 0x80));
  text.push_back(static_cast<char>(value));
  return text;
}
inline std::string field(size_t number, std::string_view bytes) {
  return varint(number << 3 | 2).append(varint(bytes.size())).append(bytes);
}
inline std::string field(size_t number, int value) {
  return varint(number << 3).append(varint(static_cast<size_t>(value)));
}
inline std::string field(size_t number, float value) {
  const auto bits = std::bit_cast<std::array<char, sizeof value>>(value);
  return varint(number << 3 | 5).append(bits.data(), bits.size());
}

}  // namespace detail

/// Rules of normalisation: a trie of Darts-clone with one key, and its replacement. T becomes t.
struct NormalizationRules {
  static constexpr uint32_t kBlock = 256, kKey = 'T', kEnd = 300;  // numbers of units; kEnd: after the key
  static constexpr uint32_t kHasLeaf = 1 << 8, kIsLeaf = uint32_t{1} << 31;
  std::vector<uint32_t> units;
  std::string texts{"t\0", 2};

  NormalizationRules() : units(2 * kBlock) {
    units[0] = kBlock << 10;
    units[kBlock ^ kKey] = (kBlock ^ kKey ^ kEnd) << 10 | kHasLeaf | kKey;
    units[kEnd] = kIsLeaf | 0;  // start of the replacement in `texts`
  }
};

/// A unigram model. Field 3 of the model has the rules for encoding, field 5 those for decoding.
inline std::string sentencepiece_model(const NormalizationRules& rules = {}, size_t rules_field = 3) {
  using detail::field;
  enum Type { kNormal = 1, kUnknown = 2, kControl = 3 };
  std::string model;
  const auto add = [&](std::string_view piece, float score, Type type) {
    model += field(1, field(1, piece) + field(2, score) + field(3, static_cast<int>(type)));
  };
  add("<unk>", 0, kUnknown);
  add("<s>", 0, kControl);
  add("</s>", 0, kControl);
  float score = 0;
  for (const char* piece :
       {"\xe2\x96\x81the", "\xe2\x96\x81", "un", "aff", "able", "cat", "t", "h", "e", "a", "c", "s"})
    add(piece, score -= 1, kNormal);
  const auto trie_bytes = static_cast<uint32_t>(rules.units.size() * sizeof(uint32_t));
  std::string map(reinterpret_cast<const char*>(&trie_bytes), sizeof trie_bytes);
  map.append(reinterpret_cast<const char*>(rules.units.data()), trie_bytes).append(rules.texts);
  model += field(2, field(3, 1) + field(40, 0) + field(41, 1) + field(42, 2));
  model += field(rules_field, field(1, "one") + field(2, map) + field(3, 1) + field(4, 1) + field(5, 1));
  return model;
}

}  // namespace bert::testing
