#include "data/examples/tokenized_documents.h"

#include <algorithm>

namespace bert {

void TokenizedDocuments::reserve(size_t tokens, size_t sentences, size_t documents) {
  wide_ ? wide_ids_.reserve(tokens) : narrow_ids_.reserve(tokens);
  sentence_ends_.reserve(sentences);
  document_ends_.reserve(documents);
}

void TokenizedDocuments::add_sentence(std::span<const int32_t> ids) {
  if (wide_) {
    wide_ids_.insert(wide_ids_.end(), ids.begin(), ids.end());
  } else {
    std::ranges::transform(ids, std::back_inserter(narrow_ids_), [](int32_t id) { return static_cast<uint16_t>(id); });
  }
  sentence_ends_.push_back(tokens());
}

void TokenizedDocuments::end_document() {
  if (sentence_ends_.size() > first_sentence(size())) document_ends_.push_back(sentence_ends_.size());
}

void TokenizedDocuments::add(const TokenizedDocument& document) {
  for (size_t i = 0; i < document.size(); ++i) add_sentence(document.sentence(i));
  end_document();
}

void TokenizedDocuments::append(size_t begin, size_t end, std::vector<int32_t>& ids) const {
  const auto copy = [&](const auto& from) {
    ids.insert(ids.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
               from.begin() + static_cast<std::ptrdiff_t>(end));
  };
  wide_ ? copy(wide_ids_) : copy(narrow_ids_);
}

}  // namespace bert
