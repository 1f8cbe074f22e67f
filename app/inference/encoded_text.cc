#include "app/inference/encoded_text.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace bert {
namespace {

std::string shown(const std::string& text) {
  constexpr size_t kMaxBytes = 60;
  const bool whole = text.size() <= kMaxBytes;
  const nlohmann::json beginning = whole ? text : text.substr(0, kMaxBytes) + "...";
  return beginning.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::ignore);
}

}  // namespace

TextError::TextError(size_t place, const std::string& why, const std::string& text)
    : DataError(why + ": " + shown(text)), index(place), reason(why) {}

EncodedText encode_text(const Tokenizer& tokenizer, std::string text) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  EncodedText encoded{.text = std::move(text), .ids = {vocabulary.cls_id()}, .masks = {}, .options = {}};
  std::vector<int32_t>& ids = encoded.ids;
  const std::string_view whole = encoded.text;
  for (size_t begin = 0;;) {
    const size_t mask = whole.find(kMaskWord, begin);
    tokenizer.encode(whole.substr(begin, mask - begin), ids);
    if (mask == std::string_view::npos) break;
    encoded.masks.push_back(ids.size());
    ids.push_back(vocabulary.mask_id());
    begin = mask + kMaskWord.size();
  }
  ids.push_back(vocabulary.sep_id());
  return encoded;
}

}  // namespace bert
