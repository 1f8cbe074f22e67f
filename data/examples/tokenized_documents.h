// Documents as token ids, together in one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bert {

/// One document on its way into TokenizedDocuments. No sentence is empty.
struct TokenizedDocument {
  std::vector<int32_t> ids;           // of all sentences, one after another
  std::vector<size_t> sentence_ends;  // into ids
  [[nodiscard]] size_t size() const { return sentence_ends.size(); }
  [[nodiscard]] std::span<const int32_t> sentence(size_t i) const {
    const size_t begin = i == 0 ? 0 : sentence_ends[i - 1];
    return std::span(ids).subspan(begin, sentence_ends[i] - begin);
  }
};

/// Documents of sentences of ids. An id takes 2 bytes if the vocabulary has at most 65536 entries, otherwise 4; a
/// sentence takes 8 more. Tokens and sentences are numbered over all documents.
class TokenizedDocuments {
 public:
  explicit TokenizedDocuments(int64_t vocab_size) : wide_(vocab_size > kNarrowVocabulary) {}

  /// Reserves memory, which is used only as documents arrive.
  void reserve(size_t tokens, size_t sentences, size_t documents);
  /// Appends a sentence to the document at the end. `ids` must not be empty.
  void add_sentence(std::span<const int32_t> ids);
  /// Ends the document. A document without sentences is not kept.
  void end_document();
  void add(const TokenizedDocument& document);

  /// Number of documents.
  [[nodiscard]] size_t size() const { return document_ends_.size(); }
  [[nodiscard]] size_t tokens() const { return wide_ ? wide_ids_.size() : narrow_ids_.size(); }
  /// The sentences of document `d` are first_sentence(d) .. first_sentence(d + 1) - 1.
  [[nodiscard]] size_t first_sentence(size_t document) const {
    return document == 0 ? 0 : static_cast<size_t>(document_ends_[document - 1]);
  }
  /// The tokens of sentence `s` are first_token(s) .. first_token(s + 1) - 1.
  [[nodiscard]] size_t first_token(size_t sentence) const {
    return sentence == 0 ? 0 : static_cast<size_t>(sentence_ends_[sentence - 1]);
  }
  /// Appends the ids of the tokens [begin, end) to `ids`.
  void append(size_t begin, size_t end, std::vector<int32_t>& ids) const;

  static constexpr int64_t kNarrowVocabulary = 65536;

 private:
  bool wide_;
  std::vector<uint16_t> narrow_ids_;
  std::vector<int32_t> wide_ids_;
  std::vector<uint64_t> sentence_ends_;  // in tokens
  std::vector<uint64_t> document_ends_;  // in sentences
};

}  // namespace bert
