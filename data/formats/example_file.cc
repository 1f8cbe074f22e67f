#include "data/formats/example_file.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "data/formats/shard.h"

namespace bert {
namespace {

constexpr const char* kMaxPredictions = "max_predictions_per_seq";  // the name of the parameter in a shard

class ShardReader : public ExampleReader {
 public:
  explicit ShardReader(const std::string& path) : shards_({path}) {
    const ShardManifest& manifest = shards_.shards().front()->manifest();
    info_ = {.max_seq_length = manifest.max_seq_length,
             .max_predictions_per_seq = 0,
             .vocab_size = manifest.vocab_size,
             .vocabulary_checksum = manifest.vocabulary_checksum,
             .parameters = manifest.parameters};
    for (const auto& [key, value] : manifest.parameters) {
      if (key == kMaxPredictions)
        std::from_chars(value.data(), value.data() + value.size(), info_.max_predictions_per_seq);
    }
  }

  [[nodiscard]] const ExampleFileInfo& info() const override { return info_; }
  [[nodiscard]] int64_t size() const override { return shards_.size(); }
  bool next(PretrainingExample& example) override {
    if (row_ == shards_.size()) return false;
    example = shards_.example(row_++);
    return true;
  }

 private:
  PretrainingShards shards_;
  ExampleFileInfo info_;
  int64_t row_ = 0;
};

class ShardFileWriter : public ExampleWriter {
 public:
  ShardFileWriter(const std::string& path, const ExampleFileInfo& info)
      : writer_(path, {.vocab_size = info.vocab_size,
                       .max_seq_length = info.max_seq_length,
                       .vocabulary_checksum = info.vocabulary_checksum,
                       .parameters = info.parameters}) {}
  void add(const PretrainingExample& example) override { writer_.add(example); }
  void commit() override { writer_.commit(); }

 private:
  ShardWriter writer_;
};

}  // namespace

std::vector<std::string_view> example_formats() { return {"shard"}; }

std::unique_ptr<ExampleReader> open_examples(const std::string& path) { return std::make_unique<ShardReader>(path); }

std::unique_ptr<ExampleWriter> create_examples_file(std::string_view format, const std::string& path,
                                                    const ExampleFileInfo& info) {
  if (format == "shard") return std::make_unique<ShardFileWriter>(path, info);
  throw std::invalid_argument("create_examples_file: no format \"" + std::string(format) + "\"");
}

}  // namespace bert
