// Python's pickles without Python: a machine that builds values and executes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

/// A value of a Pickle. `items` are indices of other values, which may form a circle.
struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,        // integer
    kInteger,     // integer
    kLong,        // an integer of more than 64 bits: text has its bytes, little-endian
    kFloat,       // real
    kText,        // text, UTF-8
    kBytes,       // text
    kList,        // items
    kTuple,       // items
    kDict,        // items: key, value, key, value
    kGlobal,      // text: "MODULE NAME"
    kObject,      // text: "MODULE NAME" of the global that was called; items: one tuple of arguments
    kPersistent,  // items: one, the id of something outside of the pickle
  };

  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<uint32_t> items;
};

// Note [Pickles]
// A pickle is a program of a stack machine, whose operations GLOBAL and REDUCE name a function of any Python module and
// call it: who loads a pickle runs the code of its author. This machine calls nothing. It knows the names that its
// caller allows, and notes that one was called with some arguments. Any other name ends the reading with an error
// that has the name. A call of collections.OrderedDict or collections.defaultdict gives a dict. The state that BUILD
// gives to a dict or an object is dropped.
//
// Every operation takes constant time beside the bytes that it reads, and no function here calls itself. So depth costs
// no stack, and a pickle of n bytes has fewer than n values, however often these refer to each other.

/// The values of one pickle.
class Pickle {
 public:
  /// Reads the pickle at the start of `bytes`, of protocol 2 to 5. `globals` are the allowed "MODULE NAME", sorted.
  /// Throws DataError with the byte and the problem, also for operations that PyTorch's checkpoints do not have.
  /// Source: CPython's Lib/pickletools.py.
  Pickle(std::string_view bytes, std::span<const std::string_view> globals);

  [[nodiscard]] const PickleValue& root() const { return values_[root_]; }
  [[nodiscard]] const PickleValue& value(uint32_t index) const { return values_[index]; }
  /// All values, in the order of their making.
  [[nodiscard]] const std::vector<PickleValue>& values() const { return values_; }
  /// The bytes of the pickle.
  [[nodiscard]] size_t size() const { return size_; }

 private:
  std::vector<PickleValue> values_;
  uint32_t root_ = 0;
  size_t size_ = 0;
};

}  // namespace bert
