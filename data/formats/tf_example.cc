#include "data/formats/tf_example.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "data/io/error.h"
#include "data/io/wire.h"

namespace bert {
namespace {

using wire::append_head;
using wire::append_varint;
using wire::Field;
using wire::Fields;
using wire::kFixed32;
using wire::kLengthDelimited;
using wire::kVarint;
using wire::varint_bytes;

// tensorflow/core/example/example.proto and feature.proto:
//   Example { Features features = 1 }; Features { map<string, Feature> feature = 1 }
//   Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 } }
//   each list { repeated TYPE value = 1 [packed] }; an entry of a map { key = 1; value = 2 }
constexpr uint64_t kOnly = 1, kKey = 1, kValue = 2;  // numbers of fields
constexpr uint64_t kFloatList = 2, kInt64List = 3;

struct Feature {
  std::string_view name, later_name;
  std::vector<int64_t> PaddedExample::*column;  // null: the weights, or the label
};

// In the order of Google's file.
constexpr std::array<Feature, 7> kFeatures = {{{"input_ids", "input_word_ids", &PaddedExample::input_ids},
                                               {"masked_lm_weights", {}, nullptr},
                                               {"next_sentence_labels", {}, nullptr},
                                               {"masked_lm_positions", {}, &PaddedExample::masked_lm_positions},
                                               {"input_mask", {}, &PaddedExample::input_mask},
                                               {"segment_ids", "input_type_ids", &PaddedExample::segment_ids},
                                               {"masked_lm_ids", {}, &PaddedExample::masked_lm_ids}}};
constexpr size_t kWeights = 1, kLabel = 2;

// ---- writing ----

/// The bytes of a field's tag, length and content. All tags here take one byte.
size_t field_bytes(size_t content) { return 1 + varint_bytes(content) + content; }

size_t packed_bytes(const std::vector<int64_t>& values) {
  size_t bytes = 0;
  for (const int64_t value : values) bytes += varint_bytes(static_cast<uint64_t>(value));
  return bytes;
}

// ---- reading ----

/// The values of the one list that a Feature holds, packed or not.
template <class T, class TakeValues>
void parse_list(std::string_view feature, uint64_t kind, std::string_view name, std::vector<T>& values,
                const TakeValues& take_values) {
  values.clear();
  Fields kinds(feature);
  for (Field list; kinds.next(list);) {
    if (list.number != kind || list.type != kLengthDelimited)
      throw DataError(fmt::format("{} is no list of {}", name, kind == kFloatList ? "floats" : "integers"));
    Fields elements(list.bytes);
    for (Field element; elements.next(element);) {
      if (element.number != kOnly) throw DataError(fmt::format("{} holds a field that no list has", name));
      take_values(element, values);
    }
  }
}

void parse_integers(std::string_view feature, std::string_view name, std::vector<int64_t>& values) {
  parse_list(feature, kInt64List, name, values, [&](const Field& element, std::vector<int64_t>& out) {
    if (element.type == kVarint) return out.push_back(static_cast<int64_t>(element.varint));
    if (element.type != kLengthDelimited) throw DataError(fmt::format("{} has a value that is no integer", name));
    for (Fields packed(element.bytes); !packed.at_end();) out.push_back(static_cast<int64_t>(packed.varint()));
  });
}

void parse_floats(std::string_view feature, std::string_view name, std::vector<float>& values) {
  parse_list(feature, kFloatList, name, values, [&](const Field& element, std::vector<float>& out) {
    if ((element.type != kFixed32 && element.type != kLengthDelimited) || element.bytes.size() % sizeof(float) != 0)
      throw DataError(fmt::format("{} has a value that is no float", name));
    const size_t before = out.size();
    out.resize(before + element.bytes.size() / sizeof(float));
    if (!element.bytes.empty()) std::memcpy(out.data() + before, element.bytes.data(), element.bytes.size());
  });
}

void parse_feature(size_t index, std::string_view bytes, PaddedExample& padded) {
  const Feature& feature = kFeatures[index];
  if (index == kWeights) {
    parse_floats(bytes, feature.name, padded.masked_lm_weights);
    if (padded.masked_lm_weights.empty()) throw DataError("masked_lm_weights is empty");
  } else if (index == kLabel) {
    std::vector<int64_t> label;
    parse_integers(bytes, feature.name, label);
    if (label.size() != 1) throw DataError(fmt::format("next_sentence_labels has {} values, expected 1", label.size()));
    padded.next_sentence_label = label.front();
  } else {
    parse_integers(bytes, feature.name, padded.*feature.column);
  }
}

/// Takes an entry of the map of features. Sets its bit in `seen` if it is one of kFeatures.
void parse_entry(std::string_view entry, PaddedExample& padded, unsigned& seen) {
  std::string_view key, value;
  Fields parts(entry);
  for (Field part; parts.next(part);) {
    if (part.type != kLengthDelimited) continue;
    if (part.number == kKey) key = part.bytes;
    if (part.number == kValue) value = part.bytes;
  }
  for (size_t i = 0; i < kFeatures.size(); ++i) {
    if (key.empty() || (key != kFeatures[i].name && key != kFeatures[i].later_name)) continue;
    if ((seen & 1U << i) != 0) throw DataError(fmt::format("{} is there twice", kFeatures[i].name));
    seen |= 1U << i;
    parse_feature(i, value, padded);
  }
}

}  // namespace

void append_tf_example(const PaddedExample& padded, std::string& bytes) {
  std::array<size_t, kFeatures.size()> values{}, entries{};  // bytes of the values, and of the entries of the map
  size_t features = 0;
  const auto list_bytes = [&](size_t i) { return field_bytes(values[i]); };
  const auto feature_bytes = [&](size_t i) { return field_bytes(list_bytes(i)); };
  for (size_t i = 0; i < kFeatures.size(); ++i) {
    values[i] = i == kWeights ? padded.masked_lm_weights.size() * sizeof(float)
                : i == kLabel ? varint_bytes(static_cast<uint64_t>(padded.next_sentence_label))
                              : packed_bytes(padded.*kFeatures[i].column);
    entries[i] = field_bytes(kFeatures[i].name.size()) + field_bytes(feature_bytes(i));
    features += field_bytes(entries[i]);
  }
  append_head(bytes, kOnly, features);
  for (size_t i = 0; i < kFeatures.size(); ++i) {
    append_head(bytes, kOnly, entries[i]);
    append_head(bytes, kKey, kFeatures[i].name.size());
    bytes.append(kFeatures[i].name);
    append_head(bytes, kValue, feature_bytes(i));
    append_head(bytes, i == kWeights ? kFloatList : kInt64List, list_bytes(i));
    append_head(bytes, kOnly, values[i]);
    if (i == kWeights) {
      bytes.append(reinterpret_cast<const char*>(padded.masked_lm_weights.data()), values[i]);
    } else if (i == kLabel) {
      append_varint(bytes, static_cast<uint64_t>(padded.next_sentence_label));
    } else {
      for (const int64_t value : padded.*kFeatures[i].column) append_varint(bytes, static_cast<uint64_t>(value));
    }
  }
}

void parse_tf_example(std::string_view bytes, PaddedExample& padded) {
  unsigned seen = 0;
  Fields messages(bytes);
  for (Field message; messages.next(message);) {
    if (message.number != kOnly || message.type != kLengthDelimited) throw DataError("the record is no tf.Example");
    Fields map(message.bytes);
    for (Field entry; map.next(entry);) {
      if (entry.number != kOnly || entry.type != kLengthDelimited) throw DataError("the record is no tf.Example");
      parse_entry(entry.bytes, padded, seen);
    }
  }
  for (size_t i = 0; i < kFeatures.size(); ++i) {
    if ((seen & 1U << i) == 0) throw DataError(fmt::format("the tf.Example has no feature {}", kFeatures[i].name));
  }
}

}  // namespace bert
