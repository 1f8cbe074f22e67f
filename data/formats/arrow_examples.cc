#include "data/formats/arrow_examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "data/formats/arrow_rows.h"
#include "data/formats/child_examples.h"
#include "data/io/arrow_library.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

// Names in the metadata of files that are written here; a parameter has kParameter before its name.
constexpr const char *kVocabularyChecksum = "bert_vocabulary_checksum", *kVocabSize = "bert_vocab_size",
                     *kMaxSeqLength = "bert_max_seq_length", *kMaxPredictions = "bert_max_predictions_per_seq";
constexpr std::string_view kParameter = "bert_parameter.";
constexpr int64_t kSecondsPerMegabyte = 20;  // rows that repeat take a hundredth of a byte

ArrowMetadata metadata_of(const ExampleFileInfo& info) {
  ArrowMetadata metadata = {{kVocabularyChecksum, info.vocabulary_checksum},
                            {kVocabSize, std::to_string(info.vocab_size)},
                            {kMaxSeqLength, std::to_string(info.max_seq_length)},
                            {kMaxPredictions, std::to_string(info.max_predictions_per_seq)}};
  for (const auto& [key, value] : info.parameters) metadata.emplace_back(std::string(kParameter) + key, value);
  return metadata;
}

/// The facts in the metadata, 0 or empty where it has none.
ExampleFileInfo info_of(const ArrowMetadata& metadata) {
  ExampleFileInfo info;
  const std::pair<const char*, int64_t*> numbers[] = {{kVocabSize, &info.vocab_size},
                                                      {kMaxSeqLength, &info.max_seq_length},
                                                      {kMaxPredictions, &info.max_predictions_per_seq}};
  for (const auto& [key, value] : metadata) {
    for (const auto& [name, number] : numbers)
      if (key == name) std::from_chars(value.data(), value.data() + value.size(), *number);
    if (key == kVocabularyChecksum) info.vocabulary_checksum = value;
    if (key.starts_with(kParameter)) info.parameters.emplace_back(key.substr(kParameter.size()), value);
  }
  return info;
}

/// The work of the child: it passes all examples of the file to `take`, after `begin`.
void for_each_row(const ArrowLibrary& library, const std::string& path, const Vocabulary* vocabulary,
                  const std::function<void(const ArrowFacts&)>& begin,
                  const std::function<void(const PretrainingExample&, double)>& take) {
  ArrowSchema schema;
  PretrainingExample example;
  std::vector<int64_t> ids;
  int64_t row_number = 0;
  std::string reason;
  const bool read = library.read(
      path,
      [&](const ArrowFacts& facts) {
        schema = facts.schema;
        if ((schema.lddl || schema.tokens) && vocabulary == nullptr)
          throw DataError(fmt::format("it holds tokens{}: name their vocabulary with --vocab",
                                      schema.lddl ? ", as LDDL's files do" : ""));
        begin(facts);
      },
      [&](ArrowRow row, double share) {
        try {
          if (schema.tokens) {
            find_tokens(row, *vocabulary, ids);
            row.input_ids = ids;
          }
          schema.lddl ? from_lddl(row, schema.masked, *vocabulary, example)
                      : from_hugging_face(row, schema.masked, example);
        } catch (const DataError& error) {
          throw DataError(fmt::format("row {}: {}", row_number, error.what()));
        }
        ++row_number;
        take(example, share);
      },
      [&](std::string_view text) { reason = text; });
  if (!read) throw DataError("cannot read it as Arrow or Parquet: " + reason);
}

/// The file is read twice: the formats do not say how long the longest example is.
void parse(const ArrowLibrary& library, const std::string& path, const Vocabulary* vocabulary, ExampleSender& sender) {
  ExampleFileInfo info;
  int64_t rows = 0, longest = 0, most_masked = 0;
  for_each_row(
      library, path, vocabulary, [&](const ArrowFacts& facts) { info = info_of(facts.metadata); },
      [&](const PretrainingExample& example, double) {
        ++rows;
        longest = std::max(longest, static_cast<int64_t>(example.input_ids.size()));
        most_masked = std::max(most_masked, static_cast<int64_t>(example.masked_ids.size()));
      });
  info.max_seq_length = std::max(info.max_seq_length, longest);
  info.max_predictions_per_seq = std::max(info.max_predictions_per_seq, most_masked);
  sender.facts(info, rows);
  for_each_row(
      library, path, vocabulary, [](const ArrowFacts&) {},
      [&](const PretrainingExample& example, double share) { sender.example(example, share); });
}

/// LDDL's loader draws masks itself if a file has no column of them.
bool stores_masks(const ExampleFileInfo& info) {
  return info.max_predictions_per_seq > 0 && parameter(info.parameters, "masking") != name_of_value(StoredMasks::kNone);
}

class ArrowExampleWriter : public ExampleWriter {
 public:
  /// `vocabulary` is null for Hugging Face's schema.
  ArrowExampleWriter(const std::string& path, const ExampleFileInfo& info, const Vocabulary* vocabulary)
      : path_(path), info_(info), vocabulary_(vocabulary), file_(path) {
    writer_ =
        arrow_library().create(file_.temporary_name(), {.lddl = vocabulary != nullptr, .masked = stores_masks(info)},
                               metadata_of(info), [&](std::string_view text) { reason_ = text; });
    if (writer_ == nullptr) fail();
  }

  void add(const PretrainingExample& example) override {
    validate(example, info_.vocab_size > 0 ? info_.vocab_size : int64_t{1} << 31, info_.max_seq_length);
    if (static_cast<int64_t>(example.masked_ids.size()) > info_.max_predictions_per_seq)
      throw DataError(fmt::format("{}: an example has {} masks, the file has room for {}", path_,
                                  example.masked_ids.size(), info_.max_predictions_per_seq));
    if (!writer_->add(row_of(example), [&](std::string_view text) { reason_ = text; })) fail();
  }

  void commit() override {
    if (!writer_->finish([&](std::string_view text) { reason_ = text; })) fail();
    file_.commit();
  }

 private:
  ArrowRow row_of(const PretrainingExample& example) {
    if (vocabulary_ == nullptr) return to_hugging_face(example, buffers_);
    try {
      return to_lddl(example, *vocabulary_, buffers_);
    } catch (const DataError& error) {
      throw DataError(fmt::format("{}: {}", path_, error.what()));
    }
  }
  [[noreturn]] void fail() const { throw IoError(fmt::format("{}: cannot write: {}", path_, reason_)); }

  std::string path_;
  ExampleFileInfo info_;
  const Vocabulary* vocabulary_;
  AtomicFile file_;
  std::string reason_;
  std::unique_ptr<ArrowWriter> writer_;
  RowBuffers buffers_;
};

}  // namespace

bool is_parquet(std::string_view start) { return start.starts_with("PAR1"); }

bool is_arrow(std::string_view start) {
  // An Arrow stream begins with a continuation marker and the length of a message ("Encapsulated message format").
  return start.starts_with("ARROW1") || (start.starts_with("\xff\xff\xff\xff") && start.size() >= 8);
}

std::unique_ptr<ExampleReader> open_arrow(const std::string& path, const Vocabulary* vocabulary) {
  const ArrowLibrary& library = arrow_library();  // loaded once, not by every child
  return std::make_unique<ChildReader>(path, kSecondsPerMegabyte,
                                       [&](ExampleSender& sender) { parse(library, path, vocabulary, sender); });
}

std::unique_ptr<ExampleWriter> create_parquet(const std::string& path, const ExampleFileInfo& info,
                                              const Vocabulary* vocabulary) {
  if (vocabulary == nullptr)
    throw DataError(path + ": LDDL's files hold tokens: name the vocabulary of the examples with --vocab");
  return std::make_unique<ArrowExampleWriter>(path, info, vocabulary);
}

std::unique_ptr<ExampleWriter> create_arrow(const std::string& path, const ExampleFileInfo& info) {
  return std::make_unique<ArrowExampleWriter>(path, info, nullptr);
}

}  // namespace bert
