// The safetensors format, without LibTorch: 8 bytes header length, a JSON header, the tensors' bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/io/files.h"

namespace bert {

struct TensorInfo {
  std::string name;
  std::string dtype;  // F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL F8_E4M3 F8_E5M2
  std::vector<int64_t> shape;
  int64_t begin = 0, bytes = 0;  // begin counts from the start of the file
};

/// Bytes of one element, 0 for an unknown dtype.
int64_t element_bytes(std::string_view dtype);

/// A mapped file whose header has been checked: at most 100 MB, no duplicate or unknown keys, sizes that agree with
/// dtype and shape, and tensors that cover the file without overlap or hole.
class SafetensorsFile {
 public:
  /// Throws InputMissing, IoError, or DataError that names the file, the tensor and what is wrong.
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int64_t bytes() const { return file_.size(); }
  /// In the order of their bytes.
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// nullptr when there is none.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// Little-endian, row-major; not necessarily aligned.
  [[nodiscard]] std::string_view data(const TensorInfo& tensor) const {
    return file_.view().substr(static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.bytes));
  }

 private:
  std::string path_;
  MappedFile file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to write. `bytes` is called once, when its turn comes; what it returns is used before the next one's turn.
struct TensorSource {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::function<std::string_view()> bytes;
};

using ByteSink = std::function<void(const void* data, size_t bytes)>;

/// Bytes that write_safetensors will write. Throws as it does.
int64_t safetensors_bytes(std::vector<TensorSource> tensors);

/// Writes the tensors, the widest dtype first and then by name, so that each is aligned and equal tensors give equal
/// bytes. The metadata is {"format": "pt"}, which Hugging Face asks for. Throws DataError on two tensors of one name
/// and on sizes that disagree. Returns the XXH3-128 of each tensor's bytes by name.
std::map<std::string, std::string> write_safetensors(const ByteSink& sink, std::vector<TensorSource> tensors);

}  // namespace bert
