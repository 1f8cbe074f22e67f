// A trained BERT with its tokenizer, from a checkpoint or from a TorchScript export.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "data/tokenizer/tokenizer.h"
#include "model/bert.h"

namespace bert {

struct Filler {
  double score = 0;  // probability
  int64_t token = 0;
  std::string token_str;
  std::string sequence;  // the text with the filler in place of the mask
};

struct MaskFilling {
  std::string text;
  std::vector<std::vector<Filler>> masks;  // for each [MASK] of the text, best first
};

class Predictor {
 public:
  /// `path` is a checkpoint's directory, a run directory (find_valid_checkpoint(), which `note` is for), or a
  /// TorchScript file that `bert export` wrote, which has one kind of weights inside. Throws InputMissing, DataError,
  /// IoError.
  explicit Predictor(
      const std::string& path, WeightsKind weights = WeightsKind::kAveraged,
      const std::function<void(const std::string& message)>& note = [](const std::string&) {});

  /// The `top_k` best tokens for every [MASK]. Throws DataError when a text has no [MASK] or is too long.
  MaskFilling fill_mask(const std::string& text, int64_t top_k);

  struct Features {
    std::vector<std::string> tokens;
    torch::Tensor last_hidden_state;  // [S, H]
    torch::Tensor pooler_output;      // [H]
  };
  /// Hidden states of one text, [CLS] and [SEP] included. From checkpoints only: an export of the pre-training model
  /// returns logits.
  Features features(const std::string& text);

  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  void load_checkpoint_directory(const std::string& path, WeightsKind weights,
                                 const std::function<void(const std::string& message)>& note);
  void load_export(const std::string& file);
  /// [CLS] text [SEP], [1, S].
  [[nodiscard]] torch::Tensor encode(const std::string& text) const;
  torch::Tensor mlm_logits(const torch::Tensor& input_ids);
  /// A token as a filler: without the mark that SentencePiece sets for the space before it.
  [[nodiscard]] std::string word(int64_t token) const;

  BertConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  bool sentencepiece_ = false;
  BertForPreTraining model_{nullptr};
  std::optional<torch::jit::Module> script_;
  std::string export_file_;
};

}  // namespace bert
