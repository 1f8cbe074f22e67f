#include "data/formats/arrow_writer.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/api.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/writer.h>

namespace bert {
namespace {

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

}  // namespace

std::unique_ptr<ArrowWriter> make_arrow_writer(const std::string& path, const ArrowSchema& schema,
                                               const ArrowMetadata& metadata) {
  return std::make_unique<Writer>(path, schema, metadata);
}

}  // namespace bert
