#include "data/formats/tfrecord.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "data/formats/padded_example.h"
#include "data/formats/tf_example.h"
#include "data/io/crc32c.h"
#include "data/io/error.h"
#include "data/io/gzip.h"
#include "data/io/record_frame.h"

namespace bert {
namespace {

static_assert(std::endian::native == std::endian::little, "TFRecord is little-endian");

constexpr size_t kHeadBytes = sizeof(uint64_t) + sizeof(uint32_t);
// Far more than the largest example has, so that a made-up length cannot ask for all memory.
constexpr uint64_t kMostRecordBytes = uint64_t{16} << 20;

template <class T>
T number_at(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool head_is_sound(const char* head) {
  return number_at<uint32_t>(head + sizeof(uint64_t)) == masked_crc32c(crc32c(head, sizeof(uint64_t)));
}

class Reader : public ExampleReader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(path) {
    has_first_ = read(first_);
    if (!has_first_) throw DataError(path + ": no examples to read");
    info_.max_seq_length = columns_;
    info_.max_predictions_per_seq = predictions_;
  }

  [[nodiscard]] const ExampleFileInfo& info() const override { return info_; }
  [[nodiscard]] int64_t size() const override { return -1; }
  [[nodiscard]] double share() const override { return file_.share(); }

  bool next(PretrainingExample& example) override {
    if (!has_first_) return read(example);
    has_first_ = false;
    example = std::move(first_);
    return true;
  }

 private:
  [[nodiscard]] DataError bad(const std::string& what) const {
    return {path_, record_start_,
            fmt::format("{}record {}: {}", file_.packed() ? "(of the unpacked content) " : "", records_, what)};
  }

  void read_exactly(char* to, size_t bytes) {
    if (file_.read(to, bytes) != bytes)
      throw bad("the file ends inside of it. The file is cut off: copy or make it again.");
  }

  /// Sets record_. Returns false at the end of the file.
  bool read_record() {
    record_start_ = file_.position();
    char head[kHeadBytes];
    const size_t got = file_.read(head, 1);
    if (got == 0) return false;
    read_exactly(head + 1, kHeadBytes - 1);
    if (!head_is_sound(head)) throw bad("the checksum of its length does not match. The file is damaged.");
    const auto bytes = number_at<uint64_t>(head);
    if (bytes > kMostRecordBytes)
      throw bad(fmt::format("{} bytes; at most {} are read as one example.", bytes, kMostRecordBytes));
    record_.resize(bytes + sizeof(uint32_t));
    read_exactly(record_.data(), record_.size());
    if (number_at<uint32_t>(record_.data() + bytes) != masked_crc32c(crc32c(record_.data(), bytes)))
      throw bad("its checksum does not match. The file is damaged: copy or make it again.");
    record_.resize(bytes);
    return true;
  }

  bool read(PretrainingExample& example) {
    if (!read_record()) return false;
    try {
      parse_tf_example(record_, padded_);
      unpad(padded_, example);
      const auto columns = static_cast<int64_t>(padded_.input_ids.size()),
                 predictions = static_cast<int64_t>(padded_.masked_lm_ids.size());
      if (records_ == 0) {
        columns_ = columns;
        predictions_ = predictions;
      }
      if (columns > kMostColumns)
        throw DataError(fmt::format("{} input_ids; at most {} are read", columns, kMostColumns));
      if (columns != columns_ || predictions != predictions_) {
        throw DataError(fmt::format("{} input_ids and {} masked_lm_ids; the first record has {} and {}", columns,
                                    predictions, columns_, predictions_));
      }
    } catch (const DataError& error) {
      throw bad(error.what());
    }
    ++records_;
    return true;
  }

  std::string path_;
  SequentialFile file_;
  ExampleFileInfo info_;
  std::string record_;
  int64_t record_start_ = 0, records_ = 0, columns_ = 0, predictions_ = 0;
  PaddedExample padded_;
  PretrainingExample first_;  // read by the constructor for the lengths of its columns
  bool has_first_ = false;
};

class TfrecordWriter : public ExampleWriter {
 public:
  TfrecordWriter(const std::string& path, const ExampleFileInfo& info, bool pack)
      : columns_(info.max_seq_length),
        predictions_(std::max<int64_t>(1, info.max_predictions_per_seq)),
        vocab_size_(info.vocab_size),
        file_(path, pack) {}

  void add(const PretrainingExample& example) override {
    validate(example, vocab_size_ > 0 ? vocab_size_ : int64_t{1} << 31, columns_);
    pad(example, columns_, predictions_, padded_);
    record_.clear();
    append_tf_example(padded_, record_);
    append_record(pending_, record_);
    if (pending_.size() >= kWriteBytes) flush();
  }

  void commit() override {
    flush();
    file_.commit();
  }

 private:
  static constexpr size_t kWriteBytes = size_t{1} << 20;

  void flush() {
    file_.write(pending_);
    pending_.clear();
  }

  int64_t columns_, predictions_, vocab_size_;
  SequentialOutput file_;
  PaddedExample padded_;
  std::string record_, pending_;
};

}  // namespace

bool is_tfrecord(std::string_view start) { return start.size() >= kHeadBytes && head_is_sound(start.data()); }

std::unique_ptr<ExampleReader> open_tfrecord(const std::string& path) { return std::make_unique<Reader>(path); }

std::unique_ptr<ExampleWriter> create_tfrecord(const std::string& path, const ExampleFileInfo& info, bool pack) {
  if (info.max_seq_length < 1 || info.max_seq_length > kMostColumns) {
    throw DataError(fmt::format("{}: max_seq_length must be 1 to {}, got {}", path, kMostColumns, info.max_seq_length));
  }
  return std::make_unique<TfrecordWriter>(path, info, pack);
}

}  // namespace bert
