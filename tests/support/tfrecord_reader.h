// A minimal reader for Google's pre-training TFRecords: no checksums, no format beyond tf.Example. For tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace bert::testing {

/// A tf.Example: name -> values of an Int64List. Float lists are returned as the bits of their values.
using IntegerFeatures = std::map<std::string, std::vector<int64_t>>;

/// One field of a protocol buffer message: its number, and its varint or bytes.
struct ProtoField {
  uint64_t number = 0, varint = 0;
  std::string_view bytes;
};

inline uint64_t take_varint(std::string_view& data) {
  uint64_t value = 0;
  for (int shift = 0; !data.empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(data.front());
    data.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  throw std::runtime_error("bad varint");
}

inline ProtoField take_field(std::string_view& data) {
  ProtoField field;
  const uint64_t tag = take_varint(data);
  field.number = tag >> 3;
  if ((tag & 7) == 0) {
    field.varint = take_varint(data);
  } else if ((tag & 7) == 2) {
    const uint64_t size = take_varint(data);
    field.bytes = data.substr(0, size);
    data.remove_prefix(size);
  } else {
    throw std::runtime_error("unexpected wire type");
  }
  return field;
}

inline std::vector<IntegerFeatures> read_tfrecord(std::string_view file) {
  std::vector<IntegerFeatures> examples;
  while (!file.empty()) {
    uint64_t size = 0;  // u64 size, u32 checksum, data, u32 checksum
    std::memcpy(&size, file.data(), sizeof size);
    std::string_view record = file.substr(12, size);
    file.remove_prefix(16 + size);
    IntegerFeatures features;
    std::string_view entries = take_field(record).bytes;  // Example.features
    while (!entries.empty()) {
      std::string_view entry = take_field(entries).bytes;  // Features.feature, a map
      const std::string name(take_field(entry).bytes);
      std::string_view feature = take_field(entry).bytes;
      const ProtoField list = take_field(feature);  // 2: FloatList, 3: Int64List
      std::string_view list_bytes = list.bytes;
      std::string_view values = list_bytes.empty() ? list_bytes : take_field(list_bytes).bytes;
      while (!values.empty()) {
        if (list.number == 3) {
          features[name].push_back(static_cast<int64_t>(take_varint(values)));
        } else {
          uint32_t bits = 0;
          std::memcpy(&bits, values.data(), sizeof bits);
          values.remove_prefix(sizeof bits);
          features[name].push_back(bits);
        }
      }
    }
    examples.push_back(std::move(features));
  }
  return examples;
}

}  // namespace bert::testing
