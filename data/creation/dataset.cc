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
#include "data/io/io_errors.h"
#include "data/random/permutation.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kManifest = "dataset.json";
constexpr const char* kNumShards = "num_shards";
constexpr int64_t kMostShards = 99'999;  // five digits in the names

/// The counts of a file, by name.
template <class Self, class Visitor>
void visit_figures(Self& figures, Visitor&& visit) {
  visit("documents", figures.documents);
  visit("text_bytes", figures.text_bytes);
  visit("examples", figures.examples);
  visit("tokens", figures.tokens);
  visit("masked_tokens", figures.masked_tokens);
  visit("without_masks", figures.without_masks);
  visit("lone_tokens", figures.lone_tokens);
  visit("longest", figures.longest);
  visit("bytes", figures.bytes);
}

template <class Self, class Visitor>
void visit_read(Self& read, Visitor&& visit) {
  visit("files", read.files);
  visit("skipped_files", read.skipped_files);
  visit("stored_bytes", read.stored_bytes);
  visit("text_bytes", read.text_bytes);
  visit("read_documents", read.documents);
  visit("invalid_sequences", read.invalid_sequences);
  visit("bad_lines", read.bad_lines);
}

template <class Self, class Visitor>
void visit_statistics(Self& statistics, Visitor&& visit) {
  visit("documents", statistics.documents);
  visit("sentences", statistics.sentences);
  visit("tokens", statistics.tokens);
  visit("unknown_tokens", statistics.unknown_tokens);
  visit("empty_documents", statistics.empty_documents);
}

std::string absolute(const std::string& path) { return fs::weakly_canonical(fs::absolute(path)).string(); }

/// The directory with its parents. Returns its path.
std::string made_directory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw_io_error(path, "create", error.value());
  return absolute(path);
}

std::optional<Json> manifest_in(const std::string& directory) {
  const std::string path = directory + "/" + kManifest;
  if (!fs::exists(path)) return std::nullopt;
  Json json = Json::parse(read_file(path), nullptr, false);
  if (!json.is_object()) throw DataError(path + ": is no JSON object: give --overwrite to make the directory again");
  return json;
}

Parameters parameters_in(const Json& manifest) {
  const Json parameters = manifest.value("parameters", Json::object());
  Parameters result;
  for (const auto& [name, value] : parameters.items())
    result.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  return result;
}

/// The number of files that an earlier process planned in the directory; 0 without one.
int64_t planned_shards(const std::string& output) {
  Parameters there;
  if (const auto manifest = manifest_in(output)) {
    there = parameters_in(*manifest);
  } else if (const std::string path = output + "/.work/parameters"; fs::exists(path)) {
    there = from_lines(read_file(path));
  }
  const auto found =
      std::find_if(there.begin(), there.end(), [](const auto& each) { return each.first == kNumShards; });
  return found == there.end() ? 0 : std::stoll(found->second);
}

bool has_examples(const std::string& name) {
  const auto formats = example_formats();
  return name.ends_with(".h5") || std::any_of(formats.begin(), formats.end(), [&](std::string_view format) {
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

Parameters input_parameters(const InputFiles& files) {
  Parameters result;
  for (const InputFile& file : files.files) {
    const int64_t modified = file.regular ? fs::last_write_time(file.path).time_since_epoch().count() : 0;
    result.emplace_back(fmt::format("input_{}", result.size() + 1),
                        fmt::format("{} with {} bytes, modified {}", absolute(file.path), file.bytes, modified));
  }
  return result;
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
  plan.parameters.emplace_back("chunk_bytes", std::to_string(options.chunk_bytes));
  if (!plan.validation_output.empty()) {
    plan.parameters.emplace_back("validation_output", plan.validation_output);
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

std::optional<DirectorySummary> finished_dataset(const DirectoryOptions& options, const DatasetPlan& plan) {
  const auto manifest = options.overwrite ? std::nullopt : manifest_in(plan.output);
  if (!manifest) return std::nullopt;
  const std::string what = difference(parameters_in(*manifest), plan.parameters);
  if (!what.empty()) {
    throw DataError(
        fmt::format("{}: has examples of other settings: {}. Write elsewhere, or give --overwrite to make them "
                    "again.",
                    plan.output, what));
  }
  DirectorySummary summary{
      .complete = true, .nothing_to_do = true, .statistics = {}, .read = {}, .files = {}, .validation_files = {}};
  const Json counts = manifest->value("text", Json::object());
  const auto get = [](const Json& from) {
    return [&from](const char* name, int64_t& value) { value = from.value(name, int64_t{0}); };
  };
  visit_statistics(summary.statistics, get(counts));
  visit_read(summary.read, get(counts));
  summary.statistics.bytes = summary.read.text_bytes;
  const auto read_files = [&](const std::string& directory, const Json& list, std::vector<ExampleFileFigures>& files) {
    for (const Json& file : list) {
      ExampleFileFigures figures{.path = directory + "/" + file.value("name", "")};
      visit_figures(figures, get(file));
      figures.checksum = file.value("checksum", "");
      std::error_code error;
      if (const auto bytes = fs::file_size(figures.path, error);
          error || static_cast<int64_t>(bytes) != figures.bytes) {
        throw DataError(fmt::format(
            "{}: {}, but {} says that it has {} bytes: copy it again, or give --overwrite to make "
            "the whole directory again",
            figures.path, error ? "is absent" : fmt::format("has {} bytes", bytes), kManifest, figures.bytes));
      }
      files.push_back(figures);
    }
  };
  read_files(plan.output, manifest->value("files", Json::array()), summary.files);
  if (!plan.validation_output.empty()) {
    const auto validation = manifest_in(plan.validation_output);
    if (!validation) {
      throw DataError(
          fmt::format("{}: {} is absent, although {} is finished: copy the held-out examples there again, or give "
                      "--overwrite to make both directories again",
                      plan.validation_output, kManifest, plan.output));
    }
    read_files(plan.validation_output, validation->value("files", Json::array()), summary.validation_files);
  }
  return summary;
}

void write_dataset(const DirectoryOptions& options, const DatasetPlan& plan, const Tokenizer& tokenizer,
                   const DirectorySummary& summary) {
  Json parameters = Json::object(), text = Json::object();
  for (const auto& [name, value] : plan.parameters) parameters[name] = value;
  const auto put = [](Json& to) { return [&to](const char* name, int64_t value) { to[name] = value; }; };
  visit_statistics(summary.statistics, put(text));
  visit_read(summary.read, put(text));
  const auto write = [&](const std::string& directory, const std::vector<ExampleFileFigures>& files) {
    Json list = Json::array();
    for (const ExampleFileFigures& figures : files) {
      Json file = {{"name", fs::path(figures.path).filename().string()}};
      visit_figures(figures, put(file));
      file["checksum"] = figures.checksum;
      list.push_back(file);
    }
    const Json manifest = {{"format", options.format},
                           {"vocabulary_checksum", tokenizer.vocabulary().hash()},
                           {"parameters", parameters},
                           {"text", text},
                           {"files", list}};
    AtomicFile file(directory + "/" + kManifest);
    file.write(manifest.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    file.commit();
  };
  if (!plan.validation_output.empty()) write(plan.validation_output, summary.validation_files);
  write(plan.output, summary.files);
}

void remove_dataset(const DatasetPlan& plan) {
  for (const std::string& directory : plan.directories()) {
    fs::remove(directory + "/" + kManifest);
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      if (has_examples(name) && is_numbered(name)) files.push_back(entry.path());
    }
    for (const fs::path& file : files) fs::remove(file);
  }
}

Parameters note_of(const ExampleFileFigures& figures) {
  Parameters note = {{"checksum", figures.checksum}};
  visit_figures(figures, [&](const char* name, int64_t value) { note.emplace_back(name, std::to_string(value)); });
  return note;
}

ExampleFileFigures figures_of(const Parameters& note) {
  ExampleFileFigures figures;
  visit_figures(figures, [&](const char* name, int64_t& value) { value = number_in_note(note, name); });
  for (const auto& [name, value] : note) {
    if (name == "checksum") figures.checksum = value;
  }
  return figures;
}

Parameters read_note(size_t chunks, const ReadStatistics& read, const std::vector<int64_t>& text_bytes) {
  Parameters note = {{"chunks", std::to_string(chunks)}};
  visit_read(read, [&](const char* name, int64_t value) { note.emplace_back(name, std::to_string(value)); });
  for (size_t target = 0; target < text_bytes.size(); ++target)
    note.emplace_back(fmt::format("text_bytes_{}", target), std::to_string(text_bytes[target]));
  return note;
}

ReadStatistics read_statistics(const Parameters& note) {
  ReadStatistics read;
  visit_read(read, [&](const char* name, int64_t& value) { value = number_in_note(note, name); });
  return read;
}

}  // namespace bert
