#include "data/formats/arrow_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr int64_t kIgnored = -100;  // Hugging Face's label of a token that is not masked

/// The text behind "'key': " in the header of an array, up to the next `end`.
std::string_view entry(std::string_view header, std::string_view key, char end) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) throw DataError(fmt::format("a numpy array without {}", key));
  std::string_view value = header.substr(at + key.size());
  value.remove_prefix(std::min(value.find_first_not_of(" :'"), value.size()));
  return value.substr(0, value.find(end));
}

template <class T>
std::vector<int64_t> values_of(std::string_view data) {
  std::vector<int64_t> values(data.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
    values[i] = static_cast<int64_t>(value);
  }
  return values;
}

/// Passes the tokens between white space to `take`.
template <class Take>
void for_each_token(std::string_view text, const Take& take) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return;
    const std::string_view token = text.substr(0, text.find_first_of(kSpace));
    take(token);
    text.remove_prefix(token.size());
  }
}

int32_t id_of(std::string_view token, const Vocabulary& vocabulary) {
  const int32_t id = vocabulary.find(token);
  if (id < 0)
    throw DataError(fmt::format("the token \"{}\" is not in the vocabulary; was the file made with another?", token));
  return id;
}

void append_ids(std::string_view tokens, const Vocabulary& vocabulary, std::vector<int32_t>& ids) {
  for_each_token(tokens, [&](std::string_view token) { ids.push_back(id_of(token, vocabulary)); });
}

int32_t as_int32(int64_t value, const char* name) {
  if (value < 0 || value > std::numeric_limits<int32_t>::max()) throw DataError(fmt::format("{} has {}", name, value));
  return static_cast<int32_t>(value);
}

void set_label(int64_t label, PretrainingExample& example) {
  if (label != 0 && label != 1)
    throw DataError(fmt::format("the label of the next sentence is {}, expected 0 or 1", label));
  example.is_random_next = label == 1;
}

/// The number of leading elements that are `first`; the others must be `rest`.
size_t leading(std::span<const int64_t> values, int64_t first, int64_t rest, const char* name) {
  const auto end = std::ranges::find_if(values, [&](int64_t value) { return value != first; });
  if (!std::all_of(end, values.end(), [&](int64_t value) { return value == rest; }))
    throw DataError(fmt::format("{} is not {}...{} {}...{}", name, first, first, rest, rest));
  return static_cast<size_t>(end - values.begin());
}

std::string tokens_of(const PretrainingExample& example, size_t begin, size_t end, const Vocabulary& vocabulary) {
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    if (i > begin) text += ' ';
    text += vocabulary.token(example.input_ids[i]);
  }
  return text;
}

}  // namespace

std::vector<int64_t> parse_npy(std::string_view bytes) {
  constexpr size_t kVersion = 6, kShortLength = 8;  // places of the version, and of the header's length
  if (!bytes.starts_with(kNpyMagic) || bytes.size() < 12) throw DataError("it does not begin as a numpy array does");
  const bool is_short = bytes[kVersion] == 1;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kShortLength, is_short ? sizeof(uint16_t) : sizeof(uint32_t));
  const size_t start = kShortLength + (is_short ? sizeof(uint16_t) : sizeof(uint32_t));
  if (length > bytes.size() - start) throw DataError("a numpy array that is cut off");
  const std::string_view header = bytes.substr(start, length), data = bytes.substr(start + length);
  const std::string_view type = entry(header, "'descr'", '\'');
  const std::string_view shape = entry(header, "'shape'", ')');
  std::vector<int64_t> values;
  if (type == "<u2") {
    values = values_of<uint16_t>(data);
  } else if (type == "<i4") {
    values = values_of<int32_t>(data);
  } else if (type == "<u4") {
    values = values_of<uint32_t>(data);
  } else if (type == "<i8") {
    values = values_of<int64_t>(data);
  } else {
    throw DataError(fmt::format("a numpy array of type {}; <u2, <i4, <u4 and <i8 are read", type));
  }
  if (shape != fmt::format("({},", values.size()))
    throw DataError(fmt::format("a numpy array of shape {}), and {} values are there", shape, values.size()));
  return values;
}

std::string write_npy(const std::vector<int32_t>& values) {
  constexpr size_t kAlignment = 64;  // of the data, as numpy.lib.format.ARRAY_ALIGN
  std::string header = fmt::format("{{'descr': '<u2', 'fortran_order': False, 'shape': ({},), }}", values.size());
  const size_t before = kNpyMagic.size() + 2 + sizeof(uint16_t);
  header.append(kAlignment - 1 - (before + header.size()) % kAlignment, ' ').append("\n");
  std::string bytes(kNpyMagic);
  bytes.append("\x01\x00", 2);
  const auto length = static_cast<uint16_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof length).append(header);
  for (const int32_t value : values) {
    const auto element = static_cast<uint16_t>(value);
    bytes.append(reinterpret_cast<const char*>(&element), sizeof element);
  }
  return bytes;
}

void from_lddl(const ArrowRow& row, bool masked, const Vocabulary& vocabulary, PretrainingExample& example) {
  example.input_ids.assign(1, vocabulary.cls_id());
  append_ids(row.a, vocabulary, example.input_ids);
  example.input_ids.push_back(vocabulary.sep_id());
  example.segment_b_start = static_cast<int32_t>(example.input_ids.size());
  append_ids(row.b, vocabulary, example.input_ids);
  example.input_ids.push_back(vocabulary.sep_id());
  example.masked_positions.clear();
  example.masked_ids.clear();
  set_label(row.label, example);
  if (!masked) return;
  for (const int64_t position : parse_npy(row.masked_lm_positions))
    example.masked_positions.push_back(as_int32(position, "masked_lm_positions"));
  append_ids(row.masked_lm_labels, vocabulary, example.masked_ids);
}

void find_tokens(const ArrowRow& row, const Vocabulary& vocabulary, std::vector<int64_t>& ids) {
  ids.clear();
  for (const std::string_view token : row.tokens) ids.push_back(id_of(token, vocabulary));
}

void from_hugging_face(const ArrowRow& row, bool masked, PretrainingExample& example) {
  const size_t columns = row.input_ids.size();
  for (const auto& [values, name] :
       {std::pair(row.attention_mask, "attention_mask"), std::pair(row.token_type_ids, "token_type_ids"),
        std::pair(row.labels, "labels")}) {
    if (!values.empty() && values.size() != columns)
      throw DataError(fmt::format("{} input_ids and {} {}", columns, values.size(), name));
  }
  const size_t length = row.attention_mask.empty() ? columns : leading(row.attention_mask, 1, 0, "attention_mask");
  example.input_ids.clear();
  for (const int64_t id : row.input_ids.first(length)) example.input_ids.push_back(as_int32(id, "input_ids"));
  example.segment_b_start = static_cast<int32_t>(
      row.token_type_ids.empty() ? length : leading(row.token_type_ids.first(length), 0, 1, "token_type_ids"));
  if (masked && length > 0 &&
      std::ranges::equal(row.labels.first(std::min(length, row.labels.size())), row.input_ids.first(length))) {
    throw DataError(
        "labels equals input_ids, as for causal language models, so every token would be a prediction: remove the "
        "column, "
        "or set it to -100 where nothing is masked");
  }
  example.masked_positions.clear();
  example.masked_ids.clear();
  for (size_t i = 0; masked && i < row.labels.size(); ++i) {
    if (row.labels[i] == kIgnored) continue;
    example.masked_positions.push_back(static_cast<int32_t>(i));
    example.masked_ids.push_back(as_int32(row.labels[i], "labels"));
  }
  set_label(row.label, example);
}

ArrowRow to_lddl(const PretrainingExample& example, const Vocabulary& vocabulary, RowBuffers& buffers) {
  const size_t length = example.input_ids.size(), second = static_cast<size_t>(example.segment_b_start);
  if (second < 2 || second >= length || example.input_ids.front() != vocabulary.cls_id() ||
      example.input_ids[second - 1] != vocabulary.sep_id() || example.input_ids.back() != vocabulary.sep_id()) {
    throw DataError("an example is no pair [CLS] A [SEP] B [SEP], as LDDL's files hold; --format arrow holds others");
  }
  buffers.a = tokens_of(example, 1, second - 1, vocabulary);
  buffers.b = tokens_of(example, second, length - 1, vocabulary);
  buffers.positions = write_npy(example.masked_positions);
  buffers.labels_text.clear();
  for (const int32_t id : example.masked_ids) {
    if (!buffers.labels_text.empty()) buffers.labels_text += ' ';
    buffers.labels_text += vocabulary.token(id);
  }
  ArrowRow row;
  row.a = buffers.a;
  row.b = buffers.b;
  row.num_tokens = static_cast<int64_t>(length);
  row.masked_lm_positions = buffers.positions;
  row.masked_lm_labels = buffers.labels_text;
  row.label = example.is_random_next ? 1 : 0;
  return row;
}

ArrowRow to_hugging_face(const PretrainingExample& example, RowBuffers& buffers) {
  const size_t length = example.input_ids.size();
  buffers.input_ids.assign(example.input_ids.begin(), example.input_ids.end());
  buffers.attention_mask.assign(length, 1);
  buffers.token_type_ids.assign(length, 0);
  std::fill(buffers.token_type_ids.begin() + example.segment_b_start, buffers.token_type_ids.end(), 1);
  buffers.labels.assign(length, kIgnored);
  for (size_t i = 0; i < example.masked_ids.size(); ++i)
    buffers.labels[static_cast<size_t>(example.masked_positions[i])] = example.masked_ids[i];
  ArrowRow row;
  row.input_ids = buffers.input_ids;
  row.attention_mask = buffers.attention_mask;
  row.token_type_ids = buffers.token_type_ids;
  row.labels = buffers.labels;
  row.label = example.is_random_next ? 1 : 0;
  return row;
}

}  // namespace bert
