#include "data/creation/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "data/creation/needs.h"
#include "data/creation/work_directory.h"
#include "data/formats/example_file.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/random/permutation.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kManifest = "dataset.json";
constexpr const char* kText = "text";
constexpr const char* kRead = "read";
constexpr const char* kNumShards = "num_shards";
constexpr const char* kCreation = "2";   // number of the way in which a directory is made, chunks and .work included
constexpr int64_t kMostShards = 99'999;  // five digits in the names

std::string absolute(const std::string& path) {
  std::error_code unnamed;  // a pipe of /dev/stdin has no path
  const fs::path canonical = fs::weakly_canonical(fs::absolute(path), unnamed);
  return unnamed ? fs::absolute(path).string() : canonical.string();
}

/// Makes the directory with its parents. Returns its path.
std::string made_directory(const std::string& path) {
  make_directories(path);
  return absolute(path);
}

/// A dataset.json, or an object in it.
class Manifest {
 public:
  /// The one of a directory; empty if there is none. Throws DataError if it is no JSON object.
  static std::optional<Manifest> in(const std::string& directory) {
    const std::string path = directory + "/" + kManifest;
    if (!fs::exists(path)) return std::nullopt;
    Json json = Json::parse(read_file(path), nullptr, false);
    if (!json.is_object()) throw DataError(path + ": is no JSON object" + kAdvice);
    return Manifest(path, "", std::move(json));
  }

  // The member `key`. Throw DataError if it is absent or of another type.
  [[nodiscard]] std::string text(const std::string& key) const { return member(key, &Json::is_string, "a string"); }
  [[nodiscard]] int64_t number(const std::string& key) const {
    return member(key, &Json::is_number_integer, "an integer");
  }
  [[nodiscard]] Manifest object(const std::string& key) const {
    return {path_, key_of(key), member(key, &Json::is_object, "an object")};
  }
  [[nodiscard]] std::vector<Manifest> objects(const std::string& key) const {
    std::vector<Manifest> result;
    for (const Json& each : member(key, &Json::is_array, "a list")) {
      const std::string place = fmt::format("{}/{}", key_of(key), result.size());
      if (!each.is_object()) throw unexpected(place, "an object");
      result.push_back({path_, place, each});
    }
    return result;
  }
  /// Reads the fields that Struct::visit_fields names.
  template <class Struct>
  [[nodiscard]] Struct fields() const {
    Struct result;
    Struct::visit_fields(result, [&](const char* name, int64_t& value) { value = number(name); });
    return result;
  }
  [[nodiscard]] Parameters texts() const {
    Parameters result;
    for (const auto& [name, value] : json_.items()) result.emplace_back(name, text(name));
    return result;
  }

 private:
  static constexpr const char* kAdvice = ": copy it again, or give --overwrite to make the directory again";

  Manifest(std::string path, std::string place, Json json)
      : path_(std::move(path)), place_(std::move(place)), json_(std::move(json)) {}
  [[nodiscard]] std::string key_of(const std::string& key) const { return place_ + "/" + key; }
  [[nodiscard]] DataError unexpected(const std::string& place, const char* expected) const {
    return DataError(fmt::format("{}: {}: expected {}{}", path_, place, expected, kAdvice));
  }
  [[nodiscard]] const Json& member(const std::string& key, bool (Json::*is)() const noexcept,
                                   const char* expected) const {
    const auto found = json_.find(key);
    if (found == json_.end() || !((*found).*is)()) throw unexpected(key_of(key), expected);
    return *found;
  }

  std::string path_, place_;  // place_: a JSON pointer
  Json json_;
};

/// The number of files that an earlier process planned in the directory; 0 without one. Throws DataError.
int64_t planned_shards(const std::string& output) {
  if (WorkDirectory::is_being_removed(output)) return 0;
  std::optional<Note> there = WorkDirectory::parameters_in(output);
  if (const auto manifest = Manifest::in(output))
    there = Note{output + "/" + kManifest, manifest->object("parameters").texts()};
  return there ? there->number(kNumShards, 1, kMostShards) : 0;
}

bool has_examples(const std::string& name) {
  const auto formats = example_formats();
  return name.ends_with(".h5") || std::ranges::any_of(formats, [&](std::string_view format) {
           return name.ends_with(fmt::format(".{}", format));
         });
}

bool is_numbered(const std::string& name) {
  static const std::regex kNumbered(R"(\d{5}-of-\d{5}\..*)");
  return std::regex_match(name, kNumbered);
}

/// Throws DataError if a directory has files of examples that are not of this plan.
void refuse_other_examples(const DatasetPlan& plan, bool overwrite) {
  const bool begun = fs::exists(plan.output + "/.work") || fs::exists(plan.output + "/" + kManifest);
  for (const std::string& directory : plan.directories()) {
    for (const auto& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      if (!has_examples(name) || (is_numbered(name) && (overwrite || begun))) continue;
      throw DataError(fmt::format("{}: has {}, which is not of the {} files to be made. Write elsewhere{}.", directory,
                                  name, plan.deal.shards, is_numbered(name) ? ", or give --overwrite" : ""));
    }
  }
}

/// `text` as dataset.json can hold it: bytes that are no UTF-8 become U+FFFD.
std::string as_utf8(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

Parameters input_parameters(const InputFiles& files) {
  // A stream is another one in each process: what an earlier one has made of it cannot be continued.
  static const int64_t begin = fs::file_time_type::clock::now().time_since_epoch().count();
  Parameters result;
  for (const InputFile& file : files.files) {
    const int64_t modified = file.regular ? fs::last_write_time(file.path).time_since_epoch().count() : begin;
    result.emplace_back(
        fmt::format("input_{}", result.size() + 1),
        fmt::format("{} with {} bytes, modified {}", as_utf8(absolute(file.path)), file.bytes, modified));
  }
  return result;
}

/// The fields of a struct as notes.
template <class Struct>
Parameters notes_of(const Struct& figures) {
  Parameters note;
  Struct::visit_fields(figures,
                       [&](const char* name, int64_t value) { note.emplace_back(name, parameter_text(value)); });
  return note;
}

/// The struct with the fields that a note has. Throws DataError if one is not there.
template <class Struct>
Struct fields_in(const Note& note) {
  Struct figures;
  Struct::visit_fields(figures, [&](const char* name, int64_t& value) { value = note.number(name); });
  return figures;
}

void append(Parameters& list, const Parameters& more) { list.insert(list.end(), more.begin(), more.end()); }

}  // namespace

std::vector<std::string> DatasetPlan::directories() const {
  std::vector<std::string> result = {output};
  if (!validation_output.empty()) result.push_back(validation_output);
  return result;
}

Parameters DatasetPlan::file_parameters(const PretrainingDataConfig& config, size_t number, bool validation,
                                        size_t documents) const {
  Parameters result = parameters_of(config);
  append(result, common);
  result.emplace_back("documents", std::to_string(documents));
  result.emplace_back("shard", fmt::format("{}{} of {}", validation ? "validation " : "", number,
                                           validation ? deal.validation_shards : deal.shards));
  return result;
}

DatasetPlan plan_dataset(const DirectoryOptions& options, const Tokenizer& tokenizer, const InputFiles& files) {
  DatasetPlan plan;
  plan.output = made_directory(options.output);
  if (!options.validation_output.empty()) plan.validation_output = made_directory(options.validation_output);
  int64_t shards = options.num_shards;
  if (shards == 0 && !options.overwrite) shards = planned_shards(plan.output);
  if (shards == 0) {
    plan.text_bytes = count_text_bytes(files.files, options.reader.encoding, options.num_threads);
    shards = std::max<int64_t>(1, (plan.text_bytes + kShardTextBytes - 1) / kShardTextBytes);
  } else {
    plan.text_bytes = guess_text_bytes(files.files);
  }
  if (shards > kMostShards)
    throw DataError(fmt::format("{} files of examples, {} are possible: give --num-shards", shards, kMostShards));
  plan.deal = {.seed = static_cast<uint64_t>(options.examples.random_seed),
               .shards = static_cast<uint32_t>(shards),
               .validation_shards = 0,
               .validation_share = options.validation_share};
  if (!plan.validation_output.empty()) {
    plan.deal.validation_shards =
        static_cast<uint32_t>(std::ceil(static_cast<double>(shards) * options.validation_share));
  }
  const auto add_paths = [&](const std::string& directory, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i)
      plan.paths.push_back(fmt::format("{}/{:05}-of-{:05}.{}", directory, i, count, options.format));
  };
  add_paths(plan.output, plan.deal.shards);
  add_paths(plan.validation_output, plan.deal.validation_shards);

  plan.common = options.parameters;
  plan.common.emplace_back(kNumShards, std::to_string(shards));
  plan.parameters = parameters_of(options.examples);
  append(plan.parameters, plan.common);
  plan.parameters.emplace_back("format", options.format);
  plan.parameters.emplace_back("vocabulary_checksum", tokenizer.vocabulary().hash());
  plan.parameters.emplace_back("creation", kCreation);
  plan.parameters.emplace_back("chunk_bytes", std::to_string(options.chunk_bytes));
  if (!plan.validation_output.empty()) {
    plan.parameters.emplace_back("validation_output", as_utf8(plan.validation_output));
    plan.parameters.emplace_back("validation_share", fmt::format("{}", options.validation_share));
    plan.parameters.emplace_back("validation_masked_lm_prob",
                                 fmt::format("{}", options.validation_examples.masked_lm_prob));
  }
  append(plan.parameters, input_parameters(files));
  refuse_other_examples(plan, options.overwrite);
  return plan;
}

uint64_t seed_of_file(uint64_t seed, bool validation, size_t number) {
  return mix_bits(mix_bits(seed) ^ (static_cast<uint64_t>(validation) << 32 | number));
}

namespace {

/// The files that a manifest lists. Throws DataError if one of them has gone or has another size.
std::vector<ExampleFileFigures> listed_files(const Manifest& manifest, const std::string& directory) {
  std::vector<ExampleFileFigures> files;
  for (const Manifest& file : manifest.objects("files")) {
    auto figures = file.fields<ExampleFileFigures>();
    figures.path = directory + "/" + file.text("name");
    figures.checksum = file.text("checksum");
    std::error_code error;
    const auto bytes = fs::file_size(figures.path, error);
    if (error || static_cast<int64_t>(bytes) != figures.bytes) {
      throw DataError(fmt::format(
          "{}: {}, but {} says that it has {} bytes: copy it again, or give --overwrite to make the whole "
          "directory again",
          figures.path, error ? "is absent" : fmt::format("has {} bytes", bytes), kManifest, figures.bytes));
    }
    files.push_back(std::move(figures));
  }
  return files;
}

}  // namespace

std::optional<DirectorySummary> finished_dataset(const DirectoryOptions& options, const DatasetPlan& plan) {
  if (options.overwrite || WorkDirectory::is_being_removed(plan.output)) return std::nullopt;
  const auto manifest = Manifest::in(plan.output);
  if (!manifest) return std::nullopt;
  const std::string what = difference(manifest->object("parameters").texts(), plan.parameters);
  if (!what.empty()) {
    throw DataError(
        fmt::format("{}: has examples of other settings: {}. Write elsewhere, or give --overwrite to make them "
                    "again.",
                    plan.output, what));
  }
  DirectorySummary summary{.complete = true,
                           .nothing_to_do = true,
                           .statistics = manifest->object(kText).fields<CorpusStatistics>(),
                           .read = manifest->object(kRead).fields<ReadStatistics>(),
                           .files = listed_files(*manifest, plan.output),
                           .validation_files = {}};
  if (plan.validation_output.empty()) return summary;
  const auto validation = Manifest::in(plan.validation_output);
  if (!validation) {
    throw DataError(
        fmt::format("{}: {} is absent, although {} is finished: copy the held-out examples there again, or give "
                    "--overwrite to make both directories again",
                    plan.validation_output, kManifest, plan.output));
  }
  summary.validation_files = listed_files(*validation, plan.validation_output);
  return summary;
}

void write_dataset(const DirectoryOptions& options, const DatasetPlan& plan, const Tokenizer& tokenizer,
                   const DirectorySummary& summary) {
  Json parameters = Json::object(), text = Json::object(), read = Json::object();
  for (const auto& [name, value] : plan.parameters) parameters[name] = value;
  const auto put = [](Json& to) { return [&to](const char* name, int64_t value) { to[name] = value; }; };
  CorpusStatistics::visit_fields(summary.statistics, put(text));
  ReadStatistics::visit_fields(summary.read, put(read));
  const auto write = [&](const std::string& directory, const std::vector<ExampleFileFigures>& files) {
    Json list = Json::array();
    for (const ExampleFileFigures& figures : files) {
      Json file = {{"name", fs::path(figures.path).filename().string()}};
      ExampleFileFigures::visit_fields(figures, put(file));
      file["checksum"] = figures.checksum;
      list.push_back(file);
    }
    const Json manifest = {{"format", options.format},
                           {"vocabulary_checksum", tokenizer.vocabulary().hash()},
                           {"parameters", parameters},
                           {kText, text},
                           {kRead, read},
                           {"files", list}};
    write_file(directory + "/" + kManifest, manifest.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  };
  if (!plan.validation_output.empty()) write(plan.validation_output, summary.validation_files);
  write(plan.output, summary.files);
}

void remove_dataset(const DatasetPlan& plan, const std::function<void()>& removed) {
  for (const std::string& directory : plan.directories()) {
    fs::remove(directory + "/" + kManifest);
    removed();
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      if (has_examples(name) && is_numbered(name)) files.push_back(entry.path());
    }
    for (const fs::path& file : files) {
      fs::remove(file);
      removed();
    }
  }
}

Parameters note_of(const ExampleFileFigures& figures) {
  Parameters note = notes_of(figures);
  note.emplace_back("checksum", figures.checksum);
  return note;
}

ExampleFileFigures figures_of(const Note& note) {
  auto figures = fields_in<ExampleFileFigures>(note);
  figures.checksum = parameter(note.values, "checksum");
  return figures;
}

Parameters read_note(size_t chunks, const ReadStatistics& read, const std::vector<int64_t>& text_bytes) {
  Parameters note = notes_of(read);
  note.emplace_back("chunks", std::to_string(chunks));
  for (size_t target = 0; target < text_bytes.size(); ++target)
    note.emplace_back(fmt::format("text_bytes_{}", target), std::to_string(text_bytes[target]));
  return note;
}

ReadStatistics read_statistics(const Note& note) { return fields_in<ReadStatistics>(note); }

}  // namespace bert
