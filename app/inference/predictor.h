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
  /// `path` is a checkpoint directory, a run directory, or a TorchScript file from `bert export`. `weights` does not
  /// apply to a TorchScript file, which has one kind of weights. `note` gets the messages of find_valid_checkpoint().
  /// Throws InputMissing, DataError, IoError.
  explicit Predictor(
      const std::string& path, WeightsKind weights = WeightsKind::kAveraged,
      const std::function<void(const std::string& message)>& note = [](const std::string&) {});

  /// The `top_k` best tokens for every [MASK]. Throws DataError if the text has no [MASK] or is too long.
  MaskFilling fill_mask(const std::string& text, int64_t top_k);

  struct Features {
    std::vector<std::string> tokens;
    torch::Tensor last_hidden_state;  // [S, H]
    torch::Tensor pooler_output;      // [H]
  };
  /// Hidden states of one text, [CLS] and [SEP] included. Throws UsageError for an export, which returns logits only.
  Features features(const std::string& text);

  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  void load_checkpoint_directory(const std::string& path, WeightsKind weights,
                                 const std::function<void(const std::string& message)>& note);
  void load_export(const std::string& file);
  /// Ids of [CLS] text [SEP], int64 [1, S].
  [[nodiscard]] torch::Tensor encode(const std::string& text) const;
  torch::Tensor mlm_logits(const torch::Tensor& input_ids);
  /// The text of a token without the mark of SentencePiece for the space before it.
  [[nodiscard]] std::string word(int64_t token) const;

  BertConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  bool sentencepiece_ = false;
  BertForPreTraining model_{nullptr};
  std::optional<torch::jit::Module> script_;
  std::string export_file_;
};

}  // namespace bert
