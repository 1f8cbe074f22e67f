#include "data/formats/example_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <stdexcept>

#include "data/formats/arrow_examples.h"
#include "data/formats/hdf5.h"
#include "data/formats/numbered_files.h"
#include "data/formats/shard.h"
#include "data/formats/tfrecord.h"
#include "data/io/arrow_library.h"
#include "data/io/error.h"
#include "data/io/gzip.h"

namespace bert {
namespace {

constexpr const char* kMaxPredictions = "max_predictions_per_seq";  // the name of the parameter in a shard

class ShardReader : public ExampleReader {
 public:
  explicit ShardReader(const std::string& path) : shard_(path) {
    const ShardManifest& manifest = shard_.manifest();
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
  [[nodiscard]] int64_t size() const override { return shard_.size(); }
  [[nodiscard]] double share() const override {
    return shard_.size() > 0 ? static_cast<double>(row_) / static_cast<double>(shard_.size()) : 1.0;
  }
  int64_t skip(int64_t count) override {
    const int64_t skipped = std::min(count, shard_.size() - row_);
    row_ += skipped;
    return skipped;
  }
  bool next(PretrainingExample& example) override {
    if (row_ == shard_.size()) return false;
    shard_.row(row_++).copy_to(example);
    return true;
  }

 private:
  Shard shard_;
  ExampleFileInfo info_;
  int64_t row_ = 0;
};

class ShardFileWriter : public ExampleWriter {
 public:
  ShardFileWriter(const std::string& path, const ExampleFileInfo& info) : writer_(path, options(info)) {}
  void add(const PretrainingExample& example) override { writer_.add(example); }
  void commit() override { writer_.commit(); }

 private:
  static ShardOptions options(const ExampleFileInfo& info) {
    ShardOptions result{.vocab_size = info.vocab_size,
                        .max_seq_length = info.max_seq_length,
                        .vocabulary_checksum = info.vocabulary_checksum,
                        .parameters = info.parameters};
    const bool stated =
        std::ranges::any_of(info.parameters, [](const auto& parameter) { return parameter.first == kMaxPredictions; });
    if (!stated && info.max_predictions_per_seq > 0)
      result.parameters.emplace_back(kMaxPredictions, std::to_string(info.max_predictions_per_seq));
    return result;
  }

  ShardWriter writer_;
};

/// A format of this program: its name, the ends of its files' names, and its functions.
struct FileFormat {
  const char* name;
  bool keeps_parameters;
  std::array<std::string_view, 2> extensions;
  std::unique_ptr<ExampleReader> (*open)(const std::string& path, const Vocabulary* vocabulary);
  std::unique_ptr<ExampleWriter> (*create)(const std::string& path, const ExampleFileInfo& info,
                                           const Vocabulary* vocabulary);
};

using Path = const std::string&;
using Info = const ExampleFileInfo&;
using Words = const Vocabulary*;

const FileFormat kFormats[] = {
    {"shard",
     true,
     {".shard", ".shard"},
     [](Path path, Words) -> std::unique_ptr<ExampleReader> { return std::make_unique<ShardReader>(path); },
     [](Path path, Info info, Words) -> std::unique_ptr<ExampleWriter> {
       return std::make_unique<ShardFileWriter>(path, info);
     }},
    {"tfrecord",
     false,
     {".tfrecord", ".tfrecords"},
     [](Path path, Words) { return open_tfrecord(path); },
     [](Path path, Info info, Words) { return create_tfrecord(path, info, false); }},
    {"tfrecord.gz",
     false,
     {".tfrecord.gz", ".tfrecords.gz"},
     [](Path path, Words) { return open_tfrecord(path); },
     [](Path path, Info info, Words) { return create_tfrecord(path, info, true); }},
    {"hdf5",
     true,
     {".hdf5", ".h5"},
     [](Path path, Words) { return open_hdf5(path); },
     [](Path path, Info info, Words) { return create_hdf5(path, info); }},
    {"parquet", true, {".parquet", ".parquet"}, open_arrow, create_parquet},
    {"arrow",
     true,
     {".arrow", ".arrow"},
     open_arrow,
     [](Path path, Info info, Words) { return create_arrow(path, info); }},
};

const FileFormat& find_format(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const FileFormat& each) { return each.name == name; });
  if (found == std::end(kFormats)) throw std::invalid_argument("no format of examples \"" + std::string(name) + "\"");
  return *found;
}

/// The extension of a format that `name` has, empty if it has none. "a.tfrecord.gz" has ".tfrecord.gz".
std::string_view extension_of(std::string_view name) {
  for (const FileFormat& format : kFormats)
    for (const std::string_view extension : format.extensions)
      if (name.ends_with(extension)) return extension;
  // LDDL puts the number of a bin behind: "part.0.parquet_1".
  const size_t bin = name.rfind(".parquet_");
  return bin != std::string_view::npos ? name.substr(bin) : std::string_view();
}

}  // namespace

int64_t ExampleReader::skip(int64_t count) {
  int64_t skipped = 0;
  for (PretrainingExample example; skipped < count && next(example);) ++skipped;
  return skipped;
}

std::vector<std::string> example_formats() {
  std::vector<std::string> names;
  for (const FileFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

std::string name_in_format(const std::string& name, std::string_view format) {
  return name.substr(0, name.size() - extension_of(name).size()).append(find_format(format).extensions.front());
}

void require_format(std::string_view format) {
  if (find_format(format).open == open_arrow) arrow_library();
}

std::string unsaid_objective(std::string_view format, const std::string& path, const Parameters& parameters) {
  const std::string objective = parameter(parameters, "objective");
  if (find_format(format).keeps_parameters || objective.empty() || objective == name_of_value(Objective::kNsp))
    return {};
  return fmt::format(
      "{}: TFRecord has no place for the objective, and Google's programs take every file for next sentence (nsp); "
      "these "
      "examples are for {}. `bert data convert --objective {}` records it when they become shards again",
      path, objective, objective);
}

std::string format_of_file(const std::string& path) {
  SequentialFile file(path);
  std::array<char, 16> start{};
  const std::string_view bytes(start.data(), file.read(start.data(), start.size()));
  if (bytes.empty()) throw DataError(path + ": the file is empty");
  if (is_tfrecord(bytes)) return file.packed() ? "tfrecord.gz" : "tfrecord";
  if (!file.packed() && is_shard(bytes)) return "shard";
  if (!file.packed() && is_hdf5(bytes)) return "hdf5";
  if (!file.packed() && is_parquet(bytes)) return "parquet";
  if (!file.packed() && is_arrow(bytes)) return "arrow";
  throw DataError(
      path, 0,
      "no file of examples: it begins neither as a shard, nor as TFRecord (plain or gzip), HDF5, Parquet or Arrow. "
      "`bert data create` makes examples from text.");
}

std::vector<std::string> example_files(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return {path};
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (!extension_of(entry.path().filename().string()).empty()) result.push_back(entry.path().string());
  }
  if (result.empty()) throw InputMissing(path + ": no files of examples in this directory, such as *.shard.");
  std::ranges::sort(result);
  check_numbered_files(path, result);
  return result;
}

std::unique_ptr<ExampleReader> open_examples(const std::string& path, const Vocabulary* vocabulary) {
  return find_format(format_of_file(path)).open(path, vocabulary);
}

std::unique_ptr<ExampleWriter> create_examples_file(std::string_view format, const std::string& path,
                                                    const ExampleFileInfo& info, const Vocabulary* vocabulary) {
  return find_format(format).create(path, info, vocabulary);
}

}  // namespace bert
