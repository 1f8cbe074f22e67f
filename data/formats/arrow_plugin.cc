// libbert_arrow.so: its functions, and the reader. This file and arrow_writer.cc alone use Arrow. See Note [Arrow apart].
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/api.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/reader.h>

#include <array>
#include <deque>

#include "data/formats/arrow_writer.h"
#include "data/io/arrow_library.h"

namespace bert {
namespace {

using arrow::Array;
using ArrayPointer = std::shared_ptr<Array>;

constexpr const char* kTokens = "tokens";

template <class T>
int64_t value_of(const Array& array, int64_t i) {
  return static_cast<int64_t>(static_cast<const typename arrow::TypeTraits<T>::ArrayType&>(array).Value(i));
}

int64_t integer_at(const Array& array, int64_t i, const char* name) {
  if (array.IsNull(i)) throw Failed(std::string(name) + " has no value in a row");
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return value_of<arrow::BooleanType>(array, i);
    case arrow::Type::INT8:
      return value_of<arrow::Int8Type>(array, i);
    case arrow::Type::UINT8:
      return value_of<arrow::UInt8Type>(array, i);
    case arrow::Type::INT16:
      return value_of<arrow::Int16Type>(array, i);
    case arrow::Type::UINT16:
      return value_of<arrow::UInt16Type>(array, i);
    case arrow::Type::INT32:
      return value_of<arrow::Int32Type>(array, i);
    case arrow::Type::UINT32:
      return value_of<arrow::UInt32Type>(array, i);
    case arrow::Type::INT64:
      return value_of<arrow::Int64Type>(array, i);
    case arrow::Type::UINT64:  // above the largest int64_t: negative, which no id is
      return value_of<arrow::UInt64Type>(array, i);
    default:
      throw Failed(std::string(name) + " holds " + array.type()->ToString() + ", expected integers");
  }
}

std::string_view text_at(const Array& array, int64_t i, const char* name) {
  if (array.IsNull(i)) throw Failed(std::string(name) + " has no value in a row");
  switch (array.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return static_cast<const arrow::BinaryArray&>(array).GetView(i);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return static_cast<const arrow::LargeBinaryArray&>(array).GetView(i);
    default:
      throw Failed(std::string(name) + " holds " + array.type()->ToString() + ", expected text");
  }
}

ArrayPointer list_at(const Array& array, int64_t i, const char* name) {
  if (array.IsNull(i)) throw Failed(std::string(name) + " has no value in a row");
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return static_cast<const arrow::ListArray&>(array).value_slice(i);
    case arrow::Type::LARGE_LIST:
      return static_cast<const arrow::LargeListArray&>(array).value_slice(i);
    case arrow::Type::FIXED_SIZE_LIST:
      return static_cast<const arrow::FixedSizeListArray&>(array).value_slice(i);
    default:
      throw Failed(std::string(name) + " holds " + array.type()->ToString() + ", expected lists");
  }
}

/// The rows of a file, batch by batch.
class Batches {
 public:
  virtual ~Batches() = default;
  [[nodiscard]] virtual std::shared_ptr<arrow::Schema> schema() const = 0;
  [[nodiscard]] virtual int64_t rows() const { return -1; }
  /// Null after the last one.
  virtual std::shared_ptr<arrow::RecordBatch> next() = 0;
};

class ParquetBatches : public Batches {
 public:
  explicit ParquetBatches(const std::shared_ptr<arrow::io::RandomAccessFile>& file) {
    parquet::ReaderProperties properties(pool());
    properties.set_page_checksum_verification(true);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file, properties));
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);  // it reads with threads
    check(builder.memory_pool(pool())->properties(arrow_properties)->Build(&reader_));
    batches_ = get(reader_->GetRecordBatchReader());
  }
  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const override { return batches_->schema(); }
  [[nodiscard]] int64_t rows() const override { return reader_->parquet_reader()->metadata()->num_rows(); }
  std::shared_ptr<arrow::RecordBatch> next() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    check(batches_->ReadNext(&batch));
    return batch;
  }

 private:
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;
};

arrow::ipc::IpcReadOptions ipc_options() {
  arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = pool();
  options.use_threads = false;
  return options;
}

class ArrowFileBatches : public Batches {
 public:
  explicit ArrowFileBatches(const std::shared_ptr<arrow::io::RandomAccessFile>& file)
      : reader_(get(arrow::ipc::RecordBatchFileReader::Open(file, ipc_options()))) {}
  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  std::shared_ptr<arrow::RecordBatch> next() override {
    return at_ < reader_->num_record_batches() ? get(reader_->ReadRecordBatch(at_++)) : nullptr;
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int at_ = 0;
};

class ArrowStreamBatches : public Batches {
 public:
  explicit ArrowStreamBatches(const std::shared_ptr<arrow::io::RandomAccessFile>& file)
      : reader_(get(arrow::ipc::RecordBatchStreamReader::Open(file, ipc_options()))) {}
  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  std::shared_ptr<arrow::RecordBatch> next() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    check(reader_->ReadNext(&batch));
    return batch;
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
};

std::unique_ptr<Batches> open_batches(const std::shared_ptr<arrow::io::RandomAccessFile>& file) {
  std::array<char, 6> start{};
  const int64_t got = get(file->ReadAt(0, start.size(), start.data()));
  const std::string_view bytes(start.data(), static_cast<size_t>(got));
  check(file->Seek(0));
  if (bytes.starts_with("PAR1")) return std::make_unique<ParquetBatches>(file);
  if (bytes == "ARROW1") return std::make_unique<ArrowFileBatches>(file);
  return std::make_unique<ArrowStreamBatches>(file);
}

/// The columns of one batch that a row is made from. A column that is absent is null.
class Columns {
 public:
  explicit Columns(const arrow::RecordBatch& batch) {
    for (size_t i = 0; i < kTexts.size(); ++i) texts_[i] = batch.GetColumnByName(kTexts[i].name);
    for (size_t i = 0; i < kLists.size(); ++i) lists_[i] = batch.GetColumnByName(kLists[i].name);
    if (lists_.front() == nullptr) tokens_ = batch.GetColumnByName(kTokens);
    for (const char* name : {"is_random_next", "next_sentence_label", "next_sentence_labels"})
      if (label_ == nullptr) label_ = batch.GetColumnByName(name);
  }

  void row(int64_t i, ArrowRow& row) {
    for (size_t each = 0; each < kTexts.size(); ++each) {
      if (texts_[each] != nullptr) row.*kTexts[each].value = text_at(*texts_[each], i, kTexts[each].name);
    }
    for (size_t each = 0; each < kLists.size(); ++each) {
      if (lists_[each] == nullptr) continue;
      const ArrayPointer elements = list_at(*lists_[each], i, kLists[each].name);
      values_[each].clear();
      for (int64_t at = 0; at < elements->length(); ++at)
        values_[each].push_back(integer_at(*elements, at, kLists[each].name));
      row.*kLists[each].value = values_[each];
    }
    if (tokens_ != nullptr) read_tokens(i, row);
    row.label = label_ != nullptr ? integer_at(*label_, i, "the label of the next sentence") : 0;
  }

 private:
  template <class T>
  struct Named {
    const char* name;
    T ArrowRow::*value;
  };
  static constexpr std::array<Named<std::string_view>, 4> kTexts = {
      {{"A", &ArrowRow::a},
       {"B", &ArrowRow::b},
       {"masked_lm_positions", &ArrowRow::masked_lm_positions},
       {"masked_lm_labels", &ArrowRow::masked_lm_labels}}};
  static constexpr std::array<Named<std::span<const int64_t>>, 4> kLists = {
      {{"input_ids", &ArrowRow::input_ids},
       {"attention_mask", &ArrowRow::attention_mask},
       {"token_type_ids", &ArrowRow::token_type_ids},
       {"labels", &ArrowRow::labels}}};

  void read_tokens(int64_t i, ArrowRow& row) {
    token_array_ = list_at(*tokens_, i, kTokens);
    token_values_.clear();
    for (int64_t at = 0; at < token_array_->length(); ++at)
      token_values_.push_back(text_at(*token_array_, at, kTokens));
    row.tokens = token_values_;
  }

  ArrayPointer label_, tokens_;
  ArrayPointer token_array_;  // the memory of token_values_
  std::vector<std::string_view> token_values_;
  std::array<ArrayPointer, kTexts.size()> texts_;
  std::array<ArrayPointer, kLists.size()> lists_;
  std::array<std::vector<int64_t>, kLists.size()> values_;
};

/// The cells of the rows of a table, and the memory behind them.
class TableRow {
 public:
  std::span<const ArrowCell> cells(const arrow::RecordBatch& batch, int64_t row) {
    texts_.clear();
    values_.assign(static_cast<size_t>(batch.num_columns()), {});
    cells_.clear();
    for (int column = 0; column < batch.num_columns(); ++column) {
      const Array& array = *batch.column(column);
      std::vector<ArrowValue>& values = values_[static_cast<size_t>(column)];
      const bool list = is_list(array.type_id()) && array.IsValid(row);
      if (list) {
        const ArrayPointer elements = list_at(array, row, "a column");
        for (int64_t i = 0; i < elements->length(); ++i) values.push_back(value_at(*elements, i));
      } else {
        values.push_back(value_at(array, row));
      }
      cells_.push_back({batch.schema()->field(column)->name(), list, values});
    }
    return cells_;
  }

 private:
  static bool is_list(arrow::Type::type type) {
    return type == arrow::Type::LIST || type == arrow::Type::LARGE_LIST || type == arrow::Type::FIXED_SIZE_LIST;
  }

  ArrowValue value_at(const Array& array, int64_t i) {
    std::shared_ptr<arrow::Scalar> value = get(array.GetScalar(i));
    if (value->is_valid && value->type->id() == arrow::Type::DICTIONARY)
      value = get(static_cast<const arrow::DictionaryScalar&>(*value).GetEncodedValue());
    if (!value->is_valid) return {};
    const arrow::DataType& type = *value->type;
    const bool text = type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING;
    const bool number = arrow::is_numeric(type.id()) || type.id() == arrow::Type::BOOL;
    if (!text && !number) return {.kind = ArrowValue::Kind::kOther};
    texts_.push_back(value->ToString());
    return {text ? ArrowValue::Kind::kText : ArrowValue::Kind::kNumber, texts_.back()};
  }

  std::deque<std::string> texts_;
  std::vector<std::vector<ArrowValue>> values_;
  std::vector<ArrowCell> cells_;
};

ArrowFacts facts_of(const Batches& batches) {
  const std::shared_ptr<arrow::Schema> schema = batches.schema();
  const auto has = [&](const char* name) { return schema->GetFieldIndex(name) >= 0; };
  ArrowFacts facts;
  facts.rows = batches.rows();
  facts.schema.lddl = has("A") && has("B");
  facts.schema.tokens = !facts.schema.lddl && !has("input_ids") && has(kTokens);
  if (!facts.schema.lddl && !facts.schema.tokens && !has("input_ids"))
    throw Failed("it has neither the columns A and B, as LDDL's files, nor input_ids, nor tokens; it has " +
                 schema->ToString().substr(0, 1000));
  facts.schema.masked = facts.schema.lddl ? has("masked_lm_positions") && has("masked_lm_labels") : has("labels");
  if (const auto metadata = schema->metadata()) {
    for (int64_t i = 0; i < metadata->size(); ++i) facts.metadata.emplace_back(metadata->key(i), metadata->value(i));
  }
  return facts;
}

/// Passes the open file to `begin`, and each batch of rows with the share of the file that was read to `take`. Returns
/// false on failure and passes the reason to `error`.
template <class Begin, class Take>
bool for_each_batch(const std::string& path, const TakeArrowText& error, const Begin& begin, const Take& take) {
  try {
    const std::shared_ptr<arrow::io::ReadableFile> file = get(arrow::io::ReadableFile::Open(path, pool()));
    const auto size = static_cast<double>(get(file->GetSize()));
    const std::unique_ptr<Batches> batches = open_batches(file);
    begin(*batches);
    while (const std::shared_ptr<arrow::RecordBatch> batch = batches->next()) {
      check(batch->ValidateFull());
      take(*batch, static_cast<double>(get(file->Tell())) / size);
    }
    return true;
  } catch (const Failed& failure) {
    error(failure.what());
  } catch (const parquet::ParquetException& failure) {
    error(failure.what());
  }
  return false;
}

class Library : public ArrowLibrary {
 public:
  [[nodiscard]] bool read(const std::string& path, const std::function<void(const ArrowFacts&)>& begin,
                          const std::function<void(const ArrowRow&, double)>& take,
                          const TakeArrowText& error) const override {
    return for_each_batch(
        path, error, [&](const Batches& batches) { begin(facts_of(batches)); },
        [&](const arrow::RecordBatch& batch, double share) {
          ArrowRow row;
          Columns columns(batch);
          for (int64_t i = 0; i < batch.num_rows(); ++i) {
            columns.row(i, row);
            take(row, share);
          }
        });
  }

  [[nodiscard]] bool read_table(const std::string& path, const std::function<void(std::span<const ArrowCell>)>& take,
                                const TakeArrowText& error) const override {
    TableRow row;
    return for_each_batch(
        path, error, [](const Batches&) {},
        [&](const arrow::RecordBatch& batch, double) {
          for (int64_t i = 0; i < batch.num_rows(); ++i) take(row.cells(batch, i));
        });
  }

  [[nodiscard]] std::unique_ptr<ArrowWriter> create(const std::string& path, const ArrowSchema& schema,
                                                    const ArrowMetadata& metadata,
                                                    const TakeArrowText& error) const override {
    try {
      return make_arrow_writer(path, schema, metadata);
    } catch (const std::exception& failure) {
      error(failure.what());
      return nullptr;
    }
  }
};

}  // namespace
}  // namespace bert

extern "C" const bert::ArrowLibrary* bert_arrow_library() {
  static const bert::Library library;
  return &library;
}
