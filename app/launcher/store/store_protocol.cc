#include "app/launcher/store/store_protocol.h"

#include <array>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr size_t kKeptBytes = 4 << 10;  // buffers up to this size are kept for the next request

/// The fields of each query: k a key, v a value, 4 and 8 numbers of that size. `*`: a list of what follows.
constexpr std::array<std::string_view, 18> kFields = {"4",  "kv", "kvv", "k", "k8", "*k", "*k", "",  "k",
                                                      "kv", "*k", "*kv", "",  "4",  "kv", "k",  "k", ""};

}  // namespace

void StoreRequestReader::append(std::string_view bytes) {
  buffer_.erase(0, begin_);
  begin_ = 0;
  buffer_ += bytes;
}

uint64_t StoreRequestReader::length() const {
  uint64_t result = 0;
  std::memcpy(&result, buffer_.data() + begin_ + at_, sizeof result);
  return result;
}

bool StoreRequestReader::next() {
  if (!started_ && !read_query()) return false;
  while (left_ > 0) {
    if (!read_field()) return false;
    --left_;
  }
  return true;
}

void StoreRequestReader::done() {
  begin_ += at_;
  at_ = 0;
  fields_.clear();
  started_ = false;
  if (begin_ < buffer_.size()) return;
  begin_ = 0;
  buffer_.clear();
  if (buffer_.capacity() > kKeptBytes) buffer_.shrink_to_fit();
  if (fields_.capacity() * sizeof(Field) > kKeptBytes) fields_.shrink_to_fit();
}

bool StoreRequestReader::read_query() {
  if (!has(1)) return false;
  const auto number = static_cast<uint8_t>(buffer_[begin_]);
  if (number >= kFields.size()) throw DataError("a request of unknown type " + std::to_string(number));
  query_ = static_cast<StoreQuery>(number);
  at_ = 1;
  element_ = kFields[number];
  left_ = element_.size();
  if (element_.starts_with('*')) {
    if (!has(kLengthBytes)) return false;
    const uint64_t elements = length();
    if (elements > kMostStoreKeys) {
      throw DataError("a request for " + std::to_string(elements) + " keys; at most " + std::to_string(kMostStoreKeys) +
                      " are allowed");
    }
    at_ += kLengthBytes;
    element_.remove_prefix(1);
    left_ = element_.size() * elements;
  }
  return started_ = true;
}

bool StoreRequestReader::read_field() {
  const char kind = element_[fields_.size() % element_.size()];
  size_t head = 0, size = 0;
  if (kind == '4' || kind == '8') {
    size = static_cast<size_t>(kind - '0');
  } else {
    head = kLengthBytes;
    if (!has(head)) return false;
    size = length();
    const uint64_t most = kind == 'k' ? kLongestStoreKey : kLongestStoreValue;
    if (size > most) {
      throw DataError(std::string(kind == 'k' ? "a key" : "a value") + " of " + std::to_string(size) +
                      " bytes; at most " + std::to_string(most) + " are allowed");
    }
  }
  if (!has(head + size)) return false;
  fields_.push_back({at_ + head, size});
  at_ += head + size;
  return true;
}

}  // namespace bert
