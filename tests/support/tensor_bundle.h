// Makes a checkpoint of TensorFlow without TensorFlow.
#pragma once

#include <snappy.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/io/crc32c.h"
#include "data/io/wire.h"
#include "tests/support/torch_archive.h"

namespace bert::testing {

/// A tensor of floats.
struct BundleSource {
  std::vector<int64_t> shape;
  std::string bytes;
};

struct BundleFiles {
  std::string index, data;  // PREFIX.index, PREFIX.data-00000-of-00001
};

inline std::string wire_number(uint64_t field, uint64_t value) {
  std::string bytes;
  wire::append_varint(bytes, field << 3);
  wire::append_varint(bytes, value);
  return bytes;
}

inline std::string wire_bytes(uint64_t field, const std::string& content) {
  std::string bytes;
  wire::append_head(bytes, field, content.size());
  return bytes + content;
}

inline std::string masked_checksum(const std::string& bytes) {
  return little_endian(masked_crc32c(crc32c(bytes.data(), bytes.size())), 4);
}

/// A table of LevelDB with `per_block` entries in a block, every second one packed with snappy.
inline std::string leveldb_table(const std::map<std::string, std::string>& entries, size_t per_block = 4) {
  std::string table, index;
  uint64_t blocks = 0;
  const auto entry = [](const std::string& last, const std::string& key, const std::string& value) {
    size_t shared = 0;
    while (shared < last.size() && shared < key.size() && last[shared] == key[shared]) ++shared;
    std::string bytes;
    for (const size_t number : {shared, key.size() - shared, value.size()}) wire::append_varint(bytes, number);
    return bytes + key.substr(shared) + value;
  };
  const auto add_block = [&](std::string block) {        // returns its place
    block += little_endian(0, 4) + little_endian(1, 4);  // one restart, at the first entry
    std::string stored = block;
    const bool packed = blocks++ % 2 == 0;
    if (packed) snappy::Compress(block.data(), block.size(), &stored);
    std::string place;
    wire::append_varint(place, table.size());
    wire::append_varint(place, stored.size());
    stored += packed ? '\1' : '\0';
    table += stored + masked_checksum(stored);
    return place;
  };
  std::string block, last, last_key;
  size_t count = 0;
  for (const auto& [key, value] : entries) {
    block += entry(last, key, value);
    last = key;
    if (++count % per_block != 0 && count != entries.size()) continue;
    index += entry(last_key, key, add_block(std::move(block)));
    last_key = key;
    block.clear();
    last.clear();
  }
  std::string footer = add_block("");
  footer += add_block(index);
  footer.resize(40, '\0');
  return table + footer + little_endian(0xdb4775248b80fb57, 8);
}

inline BundleFiles tensor_bundle(const std::map<std::string, BundleSource>& tensors) {
  BundleFiles files;
  std::map<std::string, std::string> entries = {{"", wire_number(1, 1) + wire_bytes(3, wire_number(1, 1))}};
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const int64_t size : tensor.shape) shape += wire_bytes(2, wire_number(1, static_cast<uint64_t>(size)));
    std::string checksum;
    wire::append_varint(checksum, 6 << 3 | wire::kFixed32);
    entries[name] = wire_number(1, 1) + wire_bytes(2, shape) + wire_number(4, files.data.size()) +
                    wire_number(5, tensor.bytes.size()) + checksum + masked_checksum(tensor.bytes);
    files.data += tensor.bytes;
  }
  files.index = leveldb_table(entries);
  return files;
}

/// A checkpoint with names like those of Google's BERT.
inline BundleFiles some_tensor_bundle() {
  std::map<std::string, BundleSource> tensors;
  for (const char* name :
       {"bert/embeddings/LayerNorm/beta", "bert/embeddings/LayerNorm/gamma",
        "bert/encoder/layer_0/attention/self/query/kernel", "bert/pooler/dense/kernel", "global_step"}) {
    tensors[name] = {{2, 3}, std::string(24, name[5])};
    tensors[std::string(name) + "/adam_m"] = {{6}, std::string(24, '\x3e')};
  }
  tensors["empty"] = {{0, 4}, ""};
  return tensor_bundle(tensors);
}

}  // namespace bert::testing
