#include "app/verbs/data/extract_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "app/cli/command_line.h"
#include "app/system/errors.h"
#include "app/verbs/data/actions.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr const char* kPhase = "extracting";
constexpr int64_t kMegabyte = 1'000'000, kMostMegabytes = 1'000'000;

/// An option in megabytes for a number of bytes.
void add_megabytes(CLI::App& app, const std::string& name, int64_t& bytes, const std::string& help) {
  app.add_option_function<int64_t>(
         name, [&bytes](int64_t megabytes) { bytes = megabytes * kMegabyte; }, help + ", in MB")
      ->check(number_in<int64_t>(1, kMostMegabytes))
      ->default_str(std::to_string(bytes / kMegabyte));
}

}  // namespace

void add_extract_options(CLI::App& app, std::string& output, ExtractOptions& options) {
  app.add_option("--output", output, "directory to write: new, empty, or left by a killed extraction, which goes on")
      ->required();
  app.add_option("--min-characters", options.min_characters, "drop documents with fewer, white space not counted")
      ->check(number_in<int64_t>(0, kManyTimes))
      ->capture_default_str();
  app.add_option("--min-words", options.min_words, "drop documents with fewer; an ideograph is a word")
      ->check(number_in<int64_t>(0, kManyTimes))
      ->capture_default_str();
  app.add_flag("--keep-duplicates", options.keep_duplicates, "keep documents with the same words as an earlier one");
  app.add_flag("--near-duplicates", options.near_duplicates,
               "drop documents that share four fifths of their word 5-grams with an earlier one, by MinHash");
  add_megabytes(
      app, "--duplicates-memory", options.most_duplicate_bytes,
      "memory for the search for duplicates: 2000 suffice for 80 million documents, with --near-duplicates for "
      "11 million, and English Wikipedia has 7 million");
  add_megabytes(app, "--file-size", options.file_bytes, "size at which a file of text is ended");
}

void ExtractionProgress::read(int64_t bytes) {
  constexpr double kMostUnfinished = 0.99;
  if (megabytes_ > 0)
    percentage_.update(kPhase, std::min(1e-6 * static_cast<double>(bytes), kMostUnfinished * megabytes_), megabytes_,
                       "MB");
}

void ExtractionProgress::finish() {
  if (megabytes_ > 0) {
    percentage_.update(kPhase, megabytes_, megabytes_, "MB");
  } else {
    percentage_.update(kPhase, 1);
  }
}

void check_output_outside(const std::string& output, const std::vector<std::string>& inputs) {
  namespace fs = std::filesystem;
  const fs::path place = fs::weakly_canonical(fs::absolute(output));
  for (const std::string& input : inputs) {
    std::error_code none;  // what is not there is reported by the reader
    const fs::path directory = fs::canonical(input, none);
    if (none || !fs::is_directory(directory)) continue;
    const auto [rest, end] = std::mismatch(directory.begin(), directory.end(), place.begin(), place.end());
    if (rest == directory.end())
      throw UsageError(
          fmt::format("--output {}: lies in the directory {}, which is read; name one outside of it", output, input));
  }
}

void finish_extraction(ExtractedText& writer, ExtractionProgress& progress, nlohmann::ordered_json summary,
                       const nlohmann::ordered_json& times) {
  const ExtractStatistics& statistics = writer.statistics();
  const std::string dropped = fmt::format("{} near-empty documents, {} duplicates and {} near-duplicates",
                                          statistics.near_empty, statistics.duplicates, statistics.near_duplicates);
  if (statistics.documents == 0)
    throw DataError("no document is left: dropped " + dropped + "; lower --min-characters and --min-words");
  progress.finish();
  if (statistics.near_empty + statistics.duplicates + statistics.near_duplicates > 0)
    fmt::print(stderr, "bert data extract: dropped {}\n", dropped);
  if (statistics.zero_bytes > 0)
    fmt::print(stderr, "bert data extract: dropped {} zero bytes\n", statistics.zero_bytes);
  summary.update(json_of(statistics));
  writer.finish(summary.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  summary.update(times);
  print_line(summary);
}

}  // namespace bert
