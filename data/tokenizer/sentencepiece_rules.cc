#include "data/tokenizer/sentencepiece_rules.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "data/io/error.h"

namespace bert {
namespace {

static_assert(std::endian::native == std::endian::little, "the rules are little-endian");

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kNormalizerSpec = 3, kDenormalizerSpec = 5;  // in ModelProto
constexpr uint64_t kPrecompiledCharsmap = 2;                    // in NormalizerSpec

/// Reads the fields of a protocol buffer one by one. Groups are refused; models have none.
class FieldReader {
 public:
  /// `name` names the model in errors.
  FieldReader(std::string_view message, const std::string& name) : rest_(message), name_(name) {}

  /// Moves to the next field; false at the end. Throws DataError.
  bool next() {
    enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
    if (rest_.empty()) return false;
    const auto key = static_cast<uint32_t>(varint());  // protobuf drops the higher bits too
    uint64_t size = 0;
    switch (key & 7) {
      case kVarint:
        varint();
        break;
      case kFixed64:
        size = 8;
        break;
      case kBytes:
        size = varint();
        break;
      case kFixed32:
        size = 4;
        break;
      default:
        size = UINT64_MAX;
    }
    if (size > rest_.size()) throw DataError(name_ + ": not a SentencePiece model (it is damaged or cut off).");
    number_ = key >> 3;
    content_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  [[nodiscard]] uint64_t number() const { return number_; }
  /// The bytes or the message; empty for a number.
  [[nodiscard]] std::string_view content() const { return content_; }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }

  std::string_view rest_, content_;
  const std::string& name_;
  uint64_t number_ = 0;
};

/// True if a search in these rules stays inside of them. The rules are the size of a trie, the trie in the units of
/// Darts-clone, and texts that end with a NUL; the values of the trie are positions in the texts.
bool stays_inside(std::string_view rules) {
  constexpr uint32_t kHasLeaf = 1 << 8, kExtended = 1 << 9, kLeaf = uint32_t{1} << 31, kBlock = 256;
  uint32_t trie_bytes = 0;
  if (rules.size() < sizeof trie_bytes) return true;  // the library refuses them, or there are no rules
  std::memcpy(&trie_bytes, rules.data(), sizeof trie_bytes);
  rules.remove_prefix(sizeof trie_bytes);
  if (trie_bytes >= rules.size()) return true;  // as above
  std::vector<uint32_t> units(trie_bytes / sizeof(uint32_t));
  std::memcpy(units.data(), rules.data(), units.size() * sizeof(uint32_t));
  const std::string_view texts = rules.substr(trie_bytes);
  if (units.empty() || texts.back() != '\0') return false;
  for (uint32_t at = 0; at < units.size(); ++at) {
    const uint32_t unit = units[at];
    if ((unit & kLeaf) != 0 && at != 0) continue;  // a value: no byte of the text leads to it
    const uint32_t offset = unit >> 10 << ((unit & kExtended) != 0 ? 8 : 0);
    // The child for byte b is at children ^ b. The value of a key that ends here is at children.
    const uint32_t children = at ^ offset;
    if ((children | (kBlock - 1)) >= units.size()) return false;
    if ((unit & kHasLeaf) != 0 && (units[children] & ~kLeaf) >= texts.size()) return false;
  }
  return true;
}

}  // namespace

void check_normalization_rules(std::string_view model, const std::string& name) {
  for (FieldReader fields(model, name); fields.next();) {
    if (fields.number() != kNormalizerSpec && fields.number() != kDenormalizerSpec) continue;
    for (FieldReader spec(fields.content(), name); spec.next();) {
      if (spec.number() == kPrecompiledCharsmap && !stays_inside(spec.content())) {
        throw DataError(name +
                        ": not a SentencePiece model (its rules of normalisation lead outside of themselves). "
                        "The file is damaged: make or copy it again.");
      }
    }
  }
}

}  // namespace bert
