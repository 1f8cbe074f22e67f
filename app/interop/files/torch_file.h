// Checkpoints of PyTorch: what torch.save() makes of a state dict, as a zip archive (since 1.6) or in the format before.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/safetensors.h"
#include "app/checkpoint/torch_archive.h"
#include "data/io/files.h"

namespace bert {

/// An array of numbers in a checkpoint. Tensors are views of storages.
struct TorchStorage {
  std::string key, dtype;
  int64_t elements = 0;
  int64_t begin = -1;  // of its bytes in the file; -1: the archive says where the member of this key lies
};

/// A tensor in a checkpoint. TensorInfo::begin and `bytes` are unset before the file is known.
struct TorchTensor : TensorInfo {
  std::vector<int64_t> strides;  // in elements, not negative
  int64_t offset = 0;            // in elements of the storage
  size_t storage = 0;            // index
};

/// What the pickle of a checkpoint says.
struct TorchState {
  std::vector<TorchStorage> storages;
  std::vector<TorchTensor> tensors;   // of the model, in their order, with the names that they have there
  std::vector<std::string> left_out;  // keys of the checkpoint beside the model, such as "optimizer"
};

/// Reads the pickle of an archive. The model is the dict itself if it holds tensors, else that of its key "model",
/// "state_dict" or "model_state_dict". Nothing of the pickle is executed (Note [Pickles]). Throws DataError.
TorchState parse_torch_pickle(std::string_view pickle);

/// Reads a file of the format before PyTorch 1.6: four pickles, the keys of the storages, and their bytes. Sets `begin`
/// of every storage. Throws DataError.
TorchState parse_legacy_torch_file(std::string_view bytes);

/// True if the file at `path` begins as one of torch.save(), and is no TorchScript. Throws IoError.
bool is_torch_file(const std::string& path);

/// A mapped checkpoint. A child process reads its pickle (Note [Bounded child]); this process checks that every tensor
/// lies within its storage, and every storage within the file.
class TorchFile {
 public:
  /// Throws InputMissing, IoError, DataError.
  explicit TorchFile(const std::string& path);

  [[nodiscard]] const std::vector<TorchTensor>& tensors() const { return state_.tensors; }
  [[nodiscard]] const std::vector<std::string>& left_out() const { return state_.left_out; }
  /// The elements of a tensor in row-major order, little-endian. A tensor whose elements are not in that order in the
  /// file is copied into `copy`, where the result points then.
  [[nodiscard]] std::string_view data(const TorchTensor& tensor, std::string& copy) const;
  /// True if data() of this tensor is a part of the mapped file: its elements lie there in row-major order without gaps.
  [[nodiscard]] static bool in_place(const TorchTensor& tensor);
  /// Compares the storages of all tensors with their CRC-32. The format before PyTorch 1.6 has no checksums. Throws
  /// DataError.
  void verify() const;
  [[nodiscard]] int64_t bytes() const { return file_.size(); }

 private:
  void place_in_members();
  void check_places();

  std::string path_;
  MappedFile file_;
  std::vector<TorchMember> members_;  // none in the format before PyTorch 1.6
  TorchState state_;
};

}  // namespace bert
