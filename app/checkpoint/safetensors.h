// The safetensors format, without LibTorch: the length of the header in 8 bytes, a JSON header, the bytes of the
// tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/io/files.h"

namespace bert {

/// The most dimensions that a tensor of a file of another program may have.
inline constexpr size_t kMostDimensions = 16;

struct TensorInfo {
  std::string name;
  std::string dtype;  // F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL F8_E4M3 F8_E5M2
  std::vector<int64_t> shape;
  int64_t begin = 0, bytes = 0;  // `begin` is an offset in the file
};

/// Bytes of one element; 0 for an unknown dtype.
int64_t element_bytes(std::string_view dtype);

/// A mapped safetensors file with a checked header: at most 100 MB, no duplicate or unknown keys, sizes that agree with
/// dtype and shape, tensors that cover the file without overlap or gap.
class SafetensorsFile {
 public:
  /// Throws InputMissing, IoError, or DataError with the file, the tensor and the problem.
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int64_t bytes() const { return file_.size(); }
  /// The tensors in the order of their bytes.
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The tensor of this name; nullptr if there is none.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// The bytes of a tensor: little-endian, row-major, not necessarily aligned.
  [[nodiscard]] std::string_view data(const TensorInfo& tensor) const {
    return file_.view().substr(static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.bytes));
  }
  /// Throws DataError if the file has become shorter since it was opened: bytes that were read may be zeros then.
  void expect_whole() const { file_.expect_whole(); }

 private:
  std::string path_;
  MappedFile file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to write. `bytes` is called once, when the tensor is written; its result must stay valid until the next
/// tensor is written.
struct TensorSource {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::function<std::string_view()> bytes;
  std::shared_ptr<const void> mapping = {};  // if there is one, every result of `bytes` is valid as long as it lives
};

/// The tensors of a file, mapped.
std::vector<TensorSource> sources_of(const std::shared_ptr<const SafetensorsFile>& file);

using ByteSink = std::function<void(const void* data, size_t bytes)>;

/// Number of bytes that write_safetensors will write. Throws like write_safetensors.
int64_t safetensors_bytes(std::vector<TensorSource> tensors);

/// Writes the tensors, the widest dtype first and then by name, so that each tensor is aligned and equal tensors give
/// equal bytes. The metadata is {"format": "pt"}, which Hugging Face requires. Throws DataError if two tensors have one
/// name, if sizes disagree, or if a mapped source has become shorter. Returns the XXH3-128 checksum of each tensor's bytes by name.
std::map<std::string, std::string> write_safetensors(const ByteSink& sink, std::vector<TensorSource> tensors);

}  // namespace bert
