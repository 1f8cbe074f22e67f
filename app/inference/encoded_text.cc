#include "app/inference/encoded_text.h"

#include <algorithm>
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

EncodedText encode_ids(const Vocabulary& vocabulary, std::vector<int32_t> ids) {
  if (ids.empty()) throw TextError(0, "the text has no ids");
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary.size()) continue;
    throw TextError(0, "id " + std::to_string(id) + ": the vocabulary has those from 0 to " +
                           std::to_string(vocabulary.size() - 1));
  }
  if (ids.front() != vocabulary.cls_id()) ids.insert(ids.begin(), vocabulary.cls_id());
  if (ids.size() < 2 || ids.back() != vocabulary.sep_id()) ids.push_back(vocabulary.sep_id());
  return {.text = {}, .ids = std::move(ids), .masks = {}, .options = {}};
}

bool cut_text(EncodedText& encoded, int64_t most, bool at_begin) {
  const size_t lost = encoded.ids.size() - static_cast<size_t>(most);
  const size_t first = at_begin ? 1 : encoded.ids.size() - 1 - lost;
  const auto is_lost = [&](size_t mask) { return mask >= first && mask < first + lost; };
  if (std::ranges::any_of(encoded.masks, is_lost)) return false;
  for (size_t& mask : encoded.masks) mask -= mask >= first ? lost : 0;
  const auto begin = encoded.ids.begin() + static_cast<std::ptrdiff_t>(first);
  encoded.ids.erase(begin, begin + static_cast<std::ptrdiff_t>(lost));
  encoded.cut = true;
  return true;
}

}  // namespace bert
