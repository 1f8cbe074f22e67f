// libbert_sentencepiece.so: the only file that uses sentencepiece. See Note [Sentencepiece apart].
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <unordered_map>

#include "data/tokenizer/sentencepiece_library.h"

namespace bert {
namespace {

class Model : public SentencePieceModel {
 public:
  sentencepiece::SentencePieceProcessor processor;

  [[nodiscard]] int size() const override { return processor.GetPieceSize(); }
  [[nodiscard]] std::string_view piece(int id) const override { return processor.IdToPiece(id); }
  [[nodiscard]] int unk_id() const override { return processor.unk_id(); }
  [[nodiscard]] int pad_id() const override { return processor.pad_id(); }

  void encode(std::string_view text, const std::function<void(const SentencePiece&)>& take) const override {
    const auto pieces = processor.EncodeAsImmutableProto({text.data(), text.size()});
    for (const auto& piece : pieces.pieces()) {
      take({.id = static_cast<int32_t>(piece.id()), .begin = piece.begin(), .end = piece.end()});
    }
  }

  void decode(const std::vector<int>& ids, const TakeText& take) const override { take(processor.DecodeIds(ids)); }
};

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  [[nodiscard]] bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  [[nodiscard]] const std::string& value() const override { return lines_[at_]; }
  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

class Library : public SentencePieceLibrary {
 public:
  [[nodiscard]] std::unique_ptr<SentencePieceModel> load(std::string_view model, const TakeText& error) const override {
    auto loaded = std::make_unique<Model>();
    const auto status = loaded->processor.LoadFromSerializedProto({model.data(), model.size()});
    if (status.ok()) return loaded;
    error(status.ToString());
    return nullptr;
  }

  [[nodiscard]] bool train(const std::vector<std::pair<std::string, std::string>>& options,
                           const std::vector<std::string>& lines, const TakeText& model,
                           const TakeText& error) const override {
    Lines iterator(lines);
    std::string serialized;
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        std::unordered_map<std::string, std::string>(options.begin(), options.end()), &iterator, &serialized);
    (status.ok() ? model : error)(status.ok() ? serialized : status.ToString());
    return status.ok();
  }
};

}  // namespace
}  // namespace bert

extern "C" const bert::SentencePieceLibrary* bert_sentencepiece_library() {
  static const bert::Library library;
  return &library;
}
