// The requests of c10d's TCPStore, as clients send them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

inline constexpr size_t kLengthBytes = 8;  // of the length of a key, a value or a list

/// Note [Store protocol]
///
/// A request is one byte, the query, and its fields. Numbers have the machine's byte order. A key or a value is its
/// length (8 bytes) and its bytes; a list is the number of its elements (8 bytes) and the elements.
///
///   query         fields                        answer
///   kValidate     kStoreMagic (4 bytes)         none; the first request of every connection
///   kSet          key, value                    none
///   kCompareSet   key, expected, desired        the value then stored, see KeyValueStore
///   kGet          key                           value; empty if there is none
///   kAdd          key, addend (8)               sum (8)
///   kCheck        list of keys                  0 if all exist, else 1 (1)
///   kWait         list of keys                  0 (1), when all exist
///   kCountKeys                                  number of keys (8)
///   kDeleteKey    key                           number of deleted keys (8)
///   kAppend       key, value                    none
///   kMultiGet     list of keys                  the values, without a count
///   kMultiSet     list of (key, value)          none
///   kCancelWait                                 1 (1)
///   kPing         number (4)                    the number (4)
///   kQueuePush    key, value                    none
///   kQueuePop     key                           length of the queue before (8), value if the length is not 0
///   kQueueLength  key                           length of the queue (8)
///   kListKeys                                   list of keys
///
/// Source: PyTorch 2.11, torch/csrc/distributed/c10d/TCPStoreBackend.hpp (the numbers of the queries) and
/// TCPStoreLibUvBackend.cpp (the format and the limits). Clients since 2.2 send kValidate; since 2.4 also kPing.
enum class StoreQuery : uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kCountKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLength,
  kListKeys,
};

constexpr uint32_t kStoreMagic = 0x3C85F7CE;
constexpr uint64_t kLongestStoreKey = 8 << 10, kLongestStoreValue = 8 << 20;  // bytes
constexpr uint64_t kMostStoreKeys = 128 << 10;                                // in one request

/// Appends a number as the protocol writes it.
template <class Number>
void append_store_number(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// Finds the requests in the bytes of one connection. Looks at each byte once, however small the pieces are.
class StoreRequestReader {
 public:
  /// Adds received bytes.
  void append(std::string_view bytes);
  /// Finds the next request. Returns false if bytes of it are missing. Throws DataError if the bytes break the protocol
  /// or its limits.
  bool next();
  /// Lets go of the request that next() has found.
  void done();

  /// The request, until done().
  [[nodiscard]] StoreQuery query() const { return query_; }
  [[nodiscard]] size_t fields() const { return fields_.size(); }
  [[nodiscard]] std::string_view field(size_t i) const {
    return std::string_view(buffer_).substr(begin_ + fields_[i].begin, fields_[i].size);
  }
  template <class Number>
  [[nodiscard]] Number number(size_t i) const {
    Number result{};
    std::memcpy(&result, field(i).data(), sizeof result);
    return result;
  }
  /// Memory that append() of `more` bytes allocates; the old memory is freed after that.
  [[nodiscard]] size_t growth(size_t more) const {
    const size_t size = buffer_.size() + more;
    return size <= buffer_.capacity() ? 0 : std::max(2 * buffer_.capacity(), size);
  }
  /// Memory in use, in bytes.
  [[nodiscard]] size_t bytes() const { return buffer_.capacity() + fields_.capacity() * sizeof(Field); }

 private:
  struct Field {
    size_t begin, size;  // relative to the request
  };
  bool read_query();
  bool read_field();
  [[nodiscard]] bool has(size_t bytes) const { return buffer_.size() - begin_ - at_ >= bytes; }
  [[nodiscard]] uint64_t length() const;

  std::string buffer_;
  size_t begin_ = 0;  // of the request in `buffer_`
  size_t at_ = 0;     // bytes of the request that have been read
  StoreQuery query_ = StoreQuery::kValidate;
  std::string_view element_;  // kinds of the fields of one element
  size_t left_ = 0;           // fields to be read
  std::vector<Field> fields_;
  bool started_ = false;
};

}  // namespace bert
