// The sentencepiece library, in a shared library of our own that is opened when it is first needed.
//
// Note [Sentencepiece apart]
// libsentencepiece and libsentencepiece_train export copies of templates of the C++ standard library, such as the hash
// table of strings. If a program has them in its global scope, the dynamic linker binds LibTorch to these copies, which
// another compiler made. torch::jit::Module::forward then waits for ever on a lock that was overwritten. Debian has no
// static sentencepiece. So nothing of ours links sentencepiece but libbert_sentencepiece.so. It is opened with its own
// scope: LibTorch does not find the symbols of sentencepiece, and sentencepiece does not find those of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bert {

/// A piece of an encoded text: its id, and its bytes [begin, end) in the text.
struct SentencePiece {
  int32_t id = 0;
  size_t begin = 0, end = 0;
};

/// Receives text. Results leave the library through functions of this kind, so no memory of one side is freed by the
/// other, which may have another allocator.
using TakeText = std::function<void(std::string_view)>;

/// A trained model. Any number of threads may use one.
class SentencePieceModel {
 public:
  virtual ~SentencePieceModel() = default;
  /// The number of pieces.
  [[nodiscard]] virtual int size() const = 0;
  /// The text of piece `id`, 0 <= id < size(). It belongs to the model.
  [[nodiscard]] virtual std::string_view piece(int id) const = 0;
  /// The ids of the pieces for unknown text and for padding; -1 if the model has none.
  [[nodiscard]] virtual int unk_id() const = 0;
  [[nodiscard]] virtual int pad_id() const = 0;
  /// Calls `take` for each piece of `text` in order.
  virtual void encode(std::string_view text, const std::function<void(const SentencePiece&)>& take) const = 0;
  /// Passes the text of the pieces `ids` to `take`.
  virtual void decode(const std::vector<int>& ids, const TakeText& take) const = 0;
};

/// The functions of the library.
class SentencePieceLibrary {
 public:
  virtual ~SentencePieceLibrary() = default;
  /// Reads the bytes of a model file. If they are no model, returns null and passes the reason to `error`.
  [[nodiscard]] virtual std::unique_ptr<SentencePieceModel> load(std::string_view model,
                                                                 const TakeText& error) const = 0;
  /// Trains a model on `lines` with the options of spm_train, and passes the bytes of its file to `model`. On failure
  /// returns false and passes the reason to `error`.
  [[nodiscard]] virtual bool train(const std::vector<std::pair<std::string, std::string>>& options,
                                   const std::vector<std::string>& lines, const TakeText& model,
                                   const TakeText& error) const = 0;
};

/// Opens libbert_sentencepiece.so at the first call. Throws IoError if it cannot be loaded.
const SentencePieceLibrary& sentencepiece_library();

}  // namespace bert

/// The one symbol of libbert_sentencepiece.so. The result lives as long as the program.
extern "C" const bert::SentencePieceLibrary* bert_sentencepiece_library();
