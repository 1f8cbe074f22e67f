// libbert_arrow.so: the only file that uses Arrow. See Note [Arrow apart].
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/api.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include <array>
#include <stdexcept>

#include "data/formats/arrow_library.h"

namespace bert {
namespace {

using arrow::Array;
using ArrayPointer = std::shared_ptr<Array>;

/// A call of Arrow that failed, with its message.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(const arrow::Status& status) {
  if (!status.ok()) throw Failed(status.ToString());
}

template <class T>
T get(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

/// Memory of the C library: the default pool of Arrow reserves address space, which a child has little of.
arrow::MemoryPool* pool() { return arrow::system_memory_pool(); }

// ---- reading ----

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

// ---- writing ----

class Writer : public ArrowWriter {
 public:
  Writer(const std::string& path, const ArrowSchema& schema, const ArrowMetadata& metadata) : lddl_(schema.lddl) {
    std::vector<std::string> keys, values;
    for (const auto& [key, value] : metadata) {
      keys.push_back(key);
      values.push_back(value);
    }
    file_ = get(arrow::io::FileOutputStream::Open(path));
    schema_ = arrow::schema(schema.lddl ? lddl_fields(schema.masked) : hugging_face_fields(schema.masked),
                            arrow::key_value_metadata(keys, values));
    builder_ = get(arrow::RecordBatchBuilder::Make(schema_, pool(), kBatchRows));
    if (schema.lddl) {
      parquet::WriterProperties::Builder properties;
      properties.compression(parquet::Compression::SNAPPY)->enable_page_checksum();
      const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
      parquet_ = get(parquet::arrow::FileWriter::Open(*schema_, pool(), file_, properties.build(), arrow_properties));
    } else {
      stream_ = get(arrow::ipc::MakeStreamWriter(file_, schema_));
    }
  }

  bool add(const ArrowRow& row, const TakeArrowText& error) override {
    return attempt(error, [&] {
      int column = 0;
      if (lddl_) {
        check(field<arrow::StringBuilder>(column++)->Append(row.a));
        check(field<arrow::StringBuilder>(column++)->Append(row.b));
        check(field<arrow::BooleanBuilder>(column++)->Append(row.label != 0));
        check(field<arrow::UInt16Builder>(column++)->Append(static_cast<uint16_t>(row.num_tokens)));
        if (schema_->num_fields() > column) {
          check(field<arrow::BinaryBuilder>(column++)->Append(row.masked_lm_positions));
          check(field<arrow::StringBuilder>(column++)->Append(row.masked_lm_labels));
        }
      } else {
        append<arrow::Int32Builder>(column++, row.input_ids);
        append<arrow::Int8Builder>(column++, row.token_type_ids);
        append<arrow::Int8Builder>(column++, row.attention_mask);
        check(field<arrow::Int64Builder>(column++)->Append(row.label));
        if (schema_->num_fields() > column) append<arrow::Int32Builder>(column++, row.labels);
      }
      if (++rows_ == kBatchRows) flush();
    });
  }

  bool finish(const TakeArrowText& error) override {
    return attempt(error, [&] {
      if (rows_ > 0) flush();
      check(parquet_ != nullptr ? parquet_->Close() : stream_->Close());
      check(file_->Close());
    });
  }

 private:
  static constexpr int64_t kBatchRows = 4096;

  static arrow::FieldVector lddl_fields(bool masked) {
    arrow::FieldVector fields = {arrow::field("A", arrow::utf8()), arrow::field("B", arrow::utf8()),
                                 arrow::field("is_random_next", arrow::boolean()),
                                 arrow::field("num_tokens", arrow::uint16())};
    if (masked) {
      fields.push_back(arrow::field("masked_lm_positions", arrow::binary()));
      fields.push_back(arrow::field("masked_lm_labels", arrow::utf8()));
    }
    return fields;
  }

  static arrow::FieldVector hugging_face_fields(bool masked) {
    arrow::FieldVector fields = {arrow::field("input_ids", arrow::list(arrow::int32())),
                                 arrow::field("token_type_ids", arrow::list(arrow::int8())),
                                 arrow::field("attention_mask", arrow::list(arrow::int8())),
                                 arrow::field("next_sentence_label", arrow::int64())};
    if (masked) fields.push_back(arrow::field("labels", arrow::list(arrow::int32())));
    return fields;
  }

  template <class Call>
  bool attempt(const TakeArrowText& error, const Call& call) {
    try {
      call();
      return true;
    } catch (const std::exception& failure) {
      error(failure.what());
      return false;
    }
  }

  template <class Builder>
  Builder* field(int column) {
    return builder_->GetFieldAs<Builder>(column);
  }

  template <class Builder>
  void append(int column, std::span<const int64_t> values) {
    auto* const list = field<arrow::ListBuilder>(column);
    check(list->Append());
    auto* const elements = static_cast<Builder*>(list->value_builder());
    for (const int64_t value : values) check(elements->Append(static_cast<typename Builder::value_type>(value)));
  }

  void flush() {
    const std::shared_ptr<arrow::RecordBatch> batch = get(builder_->Flush());
    check(parquet_ != nullptr ? parquet_->WriteRecordBatch(*batch) : stream_->WriteRecordBatch(*batch));
    rows_ = 0;
  }

  bool lddl_;
  std::shared_ptr<arrow::io::FileOutputStream> file_;
  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<arrow::RecordBatchBuilder> builder_;
  std::unique_ptr<parquet::arrow::FileWriter> parquet_;    // LDDL
  std::shared_ptr<arrow::ipc::RecordBatchWriter> stream_;  // Hugging Face
  int64_t rows_ = 0;                                       // in the builder
};

class Library : public ArrowLibrary {
 public:
  [[nodiscard]] bool read(const std::string& path, const std::function<void(const ArrowFacts&)>& begin,
                          const std::function<void(const ArrowRow&, double)>& take,
                          const TakeArrowText& error) const override {
    try {
      const std::shared_ptr<arrow::io::ReadableFile> file = get(arrow::io::ReadableFile::Open(path, pool()));
      const auto size = static_cast<double>(get(file->GetSize()));
      const std::unique_ptr<Batches> batches = open_batches(file);
      begin(facts_of(*batches));
      ArrowRow row;
      while (const std::shared_ptr<arrow::RecordBatch> batch = batches->next()) {
        check(batch->ValidateFull());
        const double share = static_cast<double>(get(file->Tell())) / size;
        Columns columns(*batch);
        for (int64_t i = 0; i < batch->num_rows(); ++i) {
          columns.row(i, row);
          take(row, share);
        }
      }
      return true;
    } catch (const Failed& failure) {
      error(failure.what());
    } catch (const parquet::ParquetException& failure) {
      error(failure.what());
    }
    return false;
  }

  [[nodiscard]] std::unique_ptr<ArrowWriter> create(const std::string& path, const ArrowSchema& schema,
                                                    const ArrowMetadata& metadata,
                                                    const TakeArrowText& error) const override {
    try {
      return std::make_unique<Writer>(path, schema, metadata);
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
