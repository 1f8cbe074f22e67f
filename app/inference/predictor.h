// A trained BERT that is asked for answers. Names as in Hugging Face's pipelines fill-mask and feature-extraction.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/inference/answer_options.h"
#include "app/inference/encoded_text.h"
#include "app/inference/pretrained.h"
#include "data/config.h"

namespace bert {

struct PredictorOptions {
  c10::Device device = c10::kCPU;
  c10::ScalarType dtype = c10::kFloat;  // of weights and computation: kFloat, kBFloat16 or kHalf
  int64_t batch_size = 256;             // texts that are computed together at most, 1 or more
  int64_t batch_tokens = 4096;          // tokens that are computed together at most, 1 or more; a longer text is alone
  std::optional<LongTexts> long_texts =
      {};                              // empty: refuse for features and masks, for fine-tuned models as in training
  std::optional<int64_t> stride = {};  // tokens between the starts of two windows; empty: TaskDataConfig::doc_stride
  std::optional<WindowPooling> window_pooling = {};  // of classes and numbers; empty: as in training
  bool int8 = false;  // the encoder's products are of bytes; with dtype kFloat, on the CPU: Note [Products of bytes]

  /// True if weights stay as they are loaded. to() would copy those of query, key and value all the same.
  [[nodiscard]] bool is_fp32_on_cpu() const { return device.is_cpu() && dtype == c10::kFloat; }
};

/// A word for a [MASK].
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

/// Hidden states of one text, [CLS] and [SEP] included: fp32, on the predictor's device.
struct Features {
  std::vector<std::string> tokens;
  at::Tensor last_hidden_state;  // [S, H]
  at::Tensor pooler_output;      // [H]; undefined if the model was trained without sentence pairs
};

/// The vector that stands for a text: that of [CLS], the mean over all tokens with [CLS] and [SEP], or the pooler's
/// output. kNone: one vector for each token.
enum class Pooling { kNone, kCls, kMean, kPooler };

struct EmbeddingOptions {
  Pooling pooling = Pooling::kMean;
  /// Numbers of hidden states as in Hugging Face's hidden_states: 0 are the embeddings, num_hidden_layers is the last
  /// layer, -1 the last, -2 the one before. kPooler needs {-1}.
  std::vector<int64_t> layers = {-1};
};

/// A model and its tokenizer. A predictor does not change after construction: any number of threads may call it at once.
/// Texts of any lengths are packed without padding, texts of like lengths together; answers are in the order of the texts.
/// The answer for a text depends on the other texts of a call by rounding only: with fp32, scores by less than 1e-4 of
/// their value, hidden states by less than 1e-4. (Measured on random BERT-bases: 1e-5 and 1e-5.)
/// The functions of a list throw TextError for the first text without an answer before they compute any; the functions
/// of one text throw it with index 0. Wrong settings and arguments throw c10::Error.
class Predictor {
 public:
  /// load_pretrained(path): a checkpoint directory, a run directory or an export, whose moving averages are taken if it
  /// has them. Throws InputMissing, DataError, IoError.
  explicit Predictor(const std::filesystem::path& path, const PredictorOptions& options = {});
  /// Copies the weights. Throws DataError if they are not those of a BertForPreTraining of the configuration.
  explicit Predictor(const Pretrained& pretrained, const PredictorOptions& options = {});
  ~Predictor();
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;

  /// The `top_k` best tokens for every [MASK], or all tokens if there are fewer. Throws DataError if the checkpoint is an
  /// encoder without the head for it.
  [[nodiscard]] MaskFilling fill_mask(const std::string& text, int64_t top_k = 5) const;
  [[nodiscard]] std::vector<MaskFilling> fill_mask(const std::vector<std::string>& texts, int64_t top_k = 5) const;
  [[nodiscard]] std::vector<MaskFilling> fill_mask(std::initializer_list<std::string> texts, int64_t top_k = 5) const {
    return fill_mask(std::vector<std::string>(texts), top_k);
  }

  [[nodiscard]] Features features(const std::string& text) const;
  [[nodiscard]] std::vector<Features> features(const std::vector<std::string>& texts) const;
  [[nodiscard]] std::vector<Features> features(std::initializer_list<std::string> texts) const {
    return features(std::vector<std::string>(texts));
  }

  /// For each text fp32 on the CPU: [H], with Pooling::kNone [S, H]; with L layers, L > 1, [L, H] and [L, S, H]. Throws
  /// c10::Error for a layer that the model lacks, and for kPooler if the model has no pooler.
  [[nodiscard]] std::vector<at::Tensor> embed(const std::vector<std::string>& texts,
                                              const EmbeddingOptions& options = {}) const;

  /// The text for the functions below, which then tokenize nothing. Throws TextError with index 0 for a text that
  /// `task` has no answer for.
  [[nodiscard]] EncodedText encode(Task task, std::string text, const AnswerOptions& options = {}) const;
  /// The same of a text that the caller has tokenized: `ids` of the vocabulary. [CLS] and [SEP] are added unless they
  /// are there; no prompt is. Throws TextError also for no ids, and for one that the vocabulary has not.
  [[nodiscard]] EncodedText encode(Task task, std::vector<int32_t> ids, const AnswerOptions& options = {}) const;
  /// The fillers that the options of each text ask for.
  [[nodiscard]] std::vector<MaskFilling> fill_mask(std::span<const EncodedText> texts) const;
  [[nodiscard]] std::vector<Features> features(std::span<const EncodedText> texts) const;
  [[nodiscard]] std::vector<at::Tensor> embed(std::span<const EncodedText> texts,
                                              const EmbeddingOptions& options = {}) const;
  /// The vector [D] of each text of encode(Task::kEmbedding, ...), as sentence-transformers computes it, fp32 on the CPU:
  /// pooled, through the dense layers and the normalisation of the model; then cut to the dimensions that the text's
  /// options want, and normalised if they say so. A model without a description of its vectors gives the mean of its
  /// tokens. Throws c10::Error for more dimensions than there are.
  [[nodiscard]] std::vector<at::Tensor> sentence_embeddings(std::span<const EncodedText> texts) const;
  /// The same of texts with equal options: [N, D].
  [[nodiscard]] at::Tensor encode(const std::vector<std::string>& texts, const AnswerOptions& options = {}) const;
  /// The modules behind the encoder.
  [[nodiscard]] const SentenceEncoder& sentence_encoder() const;
  [[nodiscard]] std::vector<std::string> tokens(const EncodedText& text) const;

  /// The text's tokens, [CLS] and [SEP] included.
  [[nodiscard]] std::vector<std::string> tokens(const std::string& text) const {
    return tokens(encode_text(tokenizer(), text));
  }

  [[nodiscard]] const BertConfig& config() const;
  [[nodiscard]] const Tokenizer& tokenizer() const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace bert
