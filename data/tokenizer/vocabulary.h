// The tokens of a model and their ids.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/added_tokens.h"

namespace bert {

/// Tokens in the order of their ids. Includes [PAD] [UNK] [CLS] [SEP] [MASK], under these names unless others are
/// given.
class Vocabulary {
 public:
  /// Names of the five special tokens.
  struct SpecialTokens {
    std::string pad = "[PAD]", unk = "[UNK]", cls = "[CLS]", sep = "[SEP]", mask = "[MASK]";
  };

  /// `name` names the vocabulary in errors. If a token occurs twice, its id is the last place, as in Google's
  /// load_vocab. Throws DataError that names the missing special tokens, the line of a token that is not UTF-8, or an
  /// added token without an id among the tokens.
  explicit Vocabulary(std::vector<std::string> tokens, const std::string& name = "vocabulary",
                      std::vector<AddedToken> added = {});
  Vocabulary(std::vector<std::string> tokens, const SpecialTokens& special, const std::string& name);

  /// Reads one token a line. The id is the line number from 0. White space (str.strip) around a token is removed.
  /// Throws InputMissing, IoError, DataError.
  static Vocabulary load(const std::string& path);

  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }
  /// The tokens that texts are searched for, by id.
  [[nodiscard]] const std::vector<AddedToken>& added() const { return added_; }
  /// The number of tokens before the added ones at the end, which no word is cut into.
  [[nodiscard]] int64_t base_size() const;

  /// The token of `id`. Throws DataError when there is none.
  [[nodiscard]] const std::string& token(int64_t id) const;

  /// The id of `token`, or -1.
  [[nodiscard]] int32_t find(std::string_view token) const;

  [[nodiscard]] int32_t pad_id() const { return special_ids_[0]; }
  [[nodiscard]] int32_t unk_id() const { return special_ids_[1]; }
  [[nodiscard]] int32_t cls_id() const { return special_ids_[2]; }
  [[nodiscard]] int32_t sep_id() const { return special_ids_[3]; }
  [[nodiscard]] int32_t mask_id() const { return special_ids_[4]; }
  /// pad, unk, cls, sep, mask.
  [[nodiscard]] const std::array<int32_t, 5>& special_ids() const { return special_ids_; }
  /// One of these, or an added token that is special.
  [[nodiscard]] bool is_special(int64_t id) const;

  /// XXH3-128 of the tokens, each followed by a line feed. Shards and checkpoints compare it.
  [[nodiscard]] std::string hash() const;

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views into tokens_, whose strings do not move with the object
  std::array<int32_t, 5> special_ids_{};
  std::vector<AddedToken> added_;
};

}  // namespace bert
