// TensorFlow's checkpoints, format V2: PREFIX.index names the tensors, PREFIX.data-00000-of-00001 has their bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/safetensors.h"
#include "data/io/files.h"

namespace bert {

/// A tensor of a bundle. TensorInfo::begin is an offset in the file of number `shard`.
struct BundleTensor : TensorInfo {
  int64_t shard = 0;
  uint32_t checksum = 0;  // masked CRC-32C of its bytes
};

/// What an index says.
struct BundleIndex {
  int64_t num_shards = 0;
  std::vector<BundleTensor> tensors;  // in ascending order of the names
};

/// Reads an index. Throws DataError for a damaged one, for numbers that are not little-endian, and for a tensor that is
/// stored in slices, has another dtype than safetensors know, or holds text.
/// Source: tensorflow/core/protobuf/tensor_bundle.proto.
BundleIndex parse_bundle_index(std::string_view bytes);

/// A mapped checkpoint. A child process parses the index (Note [Bounded child]). The tensors cover the data files
/// without overlap, and between them are zeros alone.
class TensorBundle {
 public:
  /// Throws InputMissing, IoError, DataError.
  explicit TensorBundle(const std::string& prefix);

  [[nodiscard]] const std::vector<BundleTensor>& tensors() const { return tensors_; }
  /// The tensor of this name; nullptr if there is none.
  [[nodiscard]] const BundleTensor* find(std::string_view name) const;
  /// The bytes of a tensor: little-endian, row-major. They were compared with their checksum if verify() has run.
  [[nodiscard]] std::string_view data(const BundleTensor& tensor) const {
    return files_[static_cast<size_t>(tensor.shard)]->view().substr(static_cast<size_t>(tensor.begin),
                                                                    static_cast<size_t>(tensor.bytes));
  }
  /// Compares every tensor with its checksum. Throws DataError with the file, the tensor and the place.
  void verify() const;
  /// The bytes of the data files.
  [[nodiscard]] int64_t bytes() const;

 private:
  void check_places() const;

  std::string prefix_;
  std::vector<BundleTensor> tensors_;
  std::vector<std::unique_ptr<MappedFile>> files_;
};

/// The prefix of the checkpoint in `path`, which is a prefix, the name of one of its files, or a directory. Of a
/// directory: the one that its file `checkpoint` names, else the only one. Throws InputMissing, DataError if there is
/// none or more than one.
std::string bundle_prefix(const std::string& path);

}  // namespace bert
