#include "app/interop/files/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "data/io/error.h"

namespace bert {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kMostValues = size_t{1} << 23;  // a checkpoint of BERT-large with its optimizer has some 20,000
constexpr int kFirstProtocol = 2, kLastProtocol = 5;

// CPython's Lib/pickle.py.
enum Operation : uint8_t {
  kProto = 0x80,
  kFrame = 0x95,
  kStop = '.',
  kMark = '(',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNoneValue = 'N',
  kTrue = 0x88,
  kFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kShortBinString = 'U',
  kBinString = 'T',
  kShortBinUnicode = 0x8c,
  kBinUnicode = 'X',
  kBinUnicode8 = 0x8d,
  kShortBinBytes = 'C',
  kBinBytes = 'B',
  kBinBytes8 = 0x8e,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kListOp = 'l',
  kEmptyTuple = ')',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTupleOp = 't',
  kEmptyDict = '}',
  kDictOp = 'd',
  kSetItem = 's',
  kSetItems = 'u',
  kGlobalOp = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kNewObj = 0x81,
  kBuild = 'b',
  kBinPersId = 'Q',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
};

class Machine {
 public:
  Machine(std::string_view bytes, std::span<const std::string_view> globals, std::vector<PickleValue>& values)
      : bytes_(bytes), globals_(globals), values_(values) {}

  /// Runs to STOP. Returns the index of the result.
  uint32_t run() {
    if (next<uint8_t>() != kProto) fail("it does not begin with a protocol of 2 or more");
    if (const int protocol = next<uint8_t>(); protocol < kFirstProtocol || protocol > kLastProtocol)
      fail(fmt::format("protocol {}; {} to {} are read", protocol, kFirstProtocol, kLastProtocol));
    while (true) {
      start_ = position_;
      const auto operation = next<uint8_t>();
      if (operation == kStop) break;
      if (!scalar(operation) && !container(operation) && !call(operation) && !memo(operation))
        fail(fmt::format("operation {:#04x} is not one of PyTorch's checkpoints", operation));
    }
    if (!marks_.empty() || stack_.size() != 1) fail("it ends with other than one value");
    return stack_.front();
  }

  [[nodiscard]] size_t position() const { return position_; }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format("byte {} of the pickle: {}", start_, what));
  }

  // ---- bytes ----

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - position_) fail(fmt::format("{} bytes are wanted, and the pickle ends", count));
    const std::string_view taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }
  template <class T>
  T next() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("a name without an end");
    const std::string_view found = take(end - position_);
    ++position_;
    return found;
  }

  // ---- the stack ----

  uint32_t make(PickleValue value) {
    if (values_.size() >= kMostValues) fail(fmt::format("more than {} values", kMostValues));
    values_.push_back(std::move(value));
    return static_cast<uint32_t>(values_.size() - 1);
  }
  bool push(PickleValue value) {
    stack_.push_back(make(std::move(value)));
    return true;
  }
  bool push_integer(Kind kind, int64_t value) {
    return push({.kind = kind, .integer = value, .text = {}, .items = {}});
  }
  bool push_text(Kind kind, std::string_view text) {
    return push({.kind = kind, .text = std::string(text), .items = {}});
  }
  bool push_items(Kind kind, std::vector<uint32_t> items) {
    return push({.kind = kind, .text = {}, .items = std::move(items)});
  }
  /// The height of the stack that belongs to the last mark.
  [[nodiscard]] size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  uint32_t pop() {
    if (stack_.size() <= floor()) fail("a value is wanted, and the stack is empty");
    const uint32_t index = stack_.back();
    stack_.pop_back();
    return index;
  }
  PickleValue& top() {
    if (stack_.size() <= floor()) fail("a value is wanted, and the stack is empty");
    return values_[stack_.back()];
  }
  std::vector<uint32_t> pop_to_mark() {
    if (marks_.empty()) fail("a mark is wanted, and there is none");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<uint32_t> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<uint32_t> pop_count(size_t count) {
    std::vector<uint32_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  // ---- operations: each function returns false for those that are not its own ----

  bool long_integer(uint64_t size) {
    const std::string_view digits = take(size);
    if (size > sizeof(int64_t)) return push_text(Kind::kLong, digits);
    uint64_t value = size > 0 && (digits.back() & 0x80) != 0 ? ~uint64_t{0} : 0;  // two's complement
    std::memcpy(&value, digits.data(), digits.size());
    return push_integer(Kind::kInteger, static_cast<int64_t>(value));
  }

  bool scalar(uint8_t operation) {
    switch (operation) {
      case kNoneValue:
        return push({});
      case kTrue:
      case kFalse:
        return push_integer(Kind::kBool, operation == kTrue ? 1 : 0);
      case kBinInt:
        return push_integer(Kind::kInteger, next<int32_t>());
      case kBinInt1:
        return push_integer(Kind::kInteger, next<uint8_t>());
      case kBinInt2:
        return push_integer(Kind::kInteger, next<uint16_t>());
      case kLong1:
        return long_integer(next<uint8_t>());
      case kLong4:
        return long_integer(next<uint32_t>());
      case kBinFloat:
        return push({.kind = Kind::kFloat,
                     .real = std::bit_cast<double>(__builtin_bswap64(next<uint64_t>())),
                     .text = {},
                     .items = {}});
      case kShortBinString:
      case kShortBinUnicode:
        return push_text(Kind::kText, take(next<uint8_t>()));
      case kBinString:
      case kBinUnicode:
        return push_text(Kind::kText, take(next<uint32_t>()));
      case kBinUnicode8:
        return push_text(Kind::kText, take(next<uint64_t>()));
      case kShortBinBytes:
        return push_text(Kind::kBytes, take(next<uint8_t>()));
      case kBinBytes:
        return push_text(Kind::kBytes, take(next<uint32_t>()));
      case kBinBytes8:
        return push_text(Kind::kBytes, take(next<uint64_t>()));
      case kFrame:
        next<uint64_t>();  // a hint for readers of streams
        return true;
      default:
        return false;
    }
  }

  /// Appends `items` to the value at the top, a list or a dict.
  bool extend(Kind kind, const std::vector<uint32_t>& items) {
    PickleValue& target = top();
    if (target.kind != kind) fail("items are added to a value that takes none of this kind");
    if (kind == Kind::kDict && items.size() % 2 != 0) fail("a dict has a key without a value");
    target.items.insert(target.items.end(), items.begin(), items.end());
    return true;
  }

  bool container(uint8_t operation) {
    switch (operation) {
      case kMark:
        marks_.push_back(stack_.size());
        return true;
      case kPop:
        pop();
        return true;
      case kPopMark:
        pop_to_mark();
        return true;
      case kDup:
        top();
        stack_.push_back(stack_.back());
        return true;
      case kEmptyList:
      case kEmptyTuple:
      case kEmptyDict:
        return push_items(operation == kEmptyList    ? Kind::kList
                          : operation == kEmptyTuple ? Kind::kTuple
                                                     : Kind::kDict,
                          {});
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return push_items(Kind::kTuple, pop_count(size_t{1} + operation - kTuple1));
      case kTupleOp:
      case kListOp:
        return push_items(operation == kListOp ? Kind::kList : Kind::kTuple, pop_to_mark());
      case kDictOp: {
        std::vector<uint32_t> items = pop_to_mark();
        push_items(Kind::kDict, {});
        return extend(Kind::kDict, items);
      }
      case kAppend:
        return extend(Kind::kList, pop_count(1));
      case kAppends:
        return extend(Kind::kList, pop_to_mark());
      case kSetItem:
        return extend(Kind::kDict, pop_count(2));
      case kSetItems:
        return extend(Kind::kDict, pop_to_mark());
      default:
        return false;
    }
  }

  bool push_global(const std::string& name) {
    if (!std::binary_search(globals_.begin(), globals_.end(), name)) {
      constexpr size_t kShown = 100;
      std::string shown = name.substr(0, kShown);
      std::replace(shown.begin(), shown.end(), ' ', '.');
      fail(fmt::format(
          "it wants Python's {}, which is not one of the names that weights need. Load the checkpoint in Python where "
          "you trust it, and save the tensors of its model alone.",
          shown));
    }
    return push_text(Kind::kGlobal, name);
  }

  /// What a call of `name` gives.
  bool push_result(const std::string& name, uint32_t arguments) {
    if (name != "collections OrderedDict" && name != "collections defaultdict")
      return push({.kind = Kind::kObject, .text = name, .items = {arguments}});
    // Python 2 gives the pairs as an argument: a list of lists.
    std::vector<uint32_t> items;
    if (name == "collections OrderedDict" && !values_[arguments].items.empty()) {
      for (const uint32_t pair : values_[values_[arguments].items.front()].items) {
        if (values_[pair].items.size() != 2) fail("an OrderedDict of other than pairs");
        if (++copied_ > kMostValues) fail(fmt::format("more than {} values", kMostValues));
        items.insert(items.end(), values_[pair].items.begin(), values_[pair].items.end());
      }
    }
    return push_items(Kind::kDict, std::move(items));
  }

  bool call(uint8_t operation) {
    switch (operation) {
      case kGlobalOp: {
        const std::string_view module = line();
        return push_global(fmt::format("{} {}", module, line()));
      }
      case kStackGlobal: {
        const std::vector<uint32_t> names = pop_count(2);
        for (const uint32_t each : names)
          if (values_[each].kind != Kind::kText) fail("a name that is no text");
        return push_global(values_[names[0]].text + ' ' + values_[names[1]].text);
      }
      case kReduce:
      case kNewObj: {
        const uint32_t arguments = pop(), function = pop();
        if (values_[function].kind != Kind::kGlobal) fail("a call of a value that is no name");
        if (values_[arguments].kind != Kind::kTuple) fail("a call without a tuple of arguments");
        return push_result(std::string(values_[function].text), arguments);
      }
      case kBuild: {
        pop();
        if (const Kind kind = top().kind; kind != Kind::kDict && kind != Kind::kObject)
          fail("a state for a value that has none");
        return true;
      }
      case kBinPersId:
        return push_items(Kind::kPersistent, pop_count(1));
      default:
        return false;
    }
  }

  bool get(uint32_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) fail(fmt::format("memo {} is empty", slot));
    stack_.push_back(found->second);
    return true;
  }
  bool put(uint32_t slot) {
    top();
    memo_[slot] = stack_.back();
    return true;
  }
  bool memo(uint8_t operation) {
    switch (operation) {
      case kBinGet:
        return get(next<uint8_t>());
      case kLongBinGet:
        return get(next<uint32_t>());
      case kBinPut:
        return put(next<uint8_t>());
      case kLongBinPut:
        return put(next<uint32_t>());
      case kMemoize:
        return put(static_cast<uint32_t>(memo_.size()));
      default:
        return false;
    }
  }

  std::string_view bytes_;
  std::span<const std::string_view> globals_;
  std::vector<PickleValue>& values_;
  size_t position_ = 0, start_ = 0;  // start_: of the operation that runs
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint32_t, uint32_t> memo_;
  size_t copied_ = 0;  // pairs of dicts; the only copies whose number the bytes do not bound
};

}  // namespace

Pickle::Pickle(std::string_view bytes, std::span<const std::string_view> globals) {
  Machine machine(bytes, globals, values_);
  root_ = machine.run();
  size_ = machine.position();
}

}  // namespace bert
