// Options and summary of the actions of `bert data extract`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/percentage.h"
#include "data/corpus/extracted_text.h"

namespace bert {

/// Adds --output and the options that decide which documents are dropped.
void add_extract_options(CLI::App& app, std::string& output, ExtractOptions& options);

/// Progress of an extraction by the bytes of its stored input, with rate and time that is left. Without a size, as for
/// a pipe, only the end is shown.
class ExtractionProgress {
 public:
  explicit ExtractionProgress(int64_t stored_bytes) : megabytes_(1e-6 * static_cast<double>(stored_bytes)) {}
  /// Shows that so many bytes are read. The first call tells what an earlier process read.
  void read(int64_t bytes);
  /// Shows that all is done. Until then less is shown than all: when all input is read, the last documents may still be
  /// converted, and then every document may have been dropped, or the input have an error at its end.
  void finish();

 private:
  Percentage percentage_;
  double megabytes_;
};

/// Marks the directory as complete with `summary` and the counts of the writer, prints both and `times` as one line,
/// and says on standard error that the work is done, and what was dropped. Throws DataError if every document was
/// dropped.
void finish_extraction(ExtractedText& writer, ExtractionProgress& progress, nlohmann::ordered_json summary,
                       const nlohmann::ordered_json& times);

/// A struct of counts as a JSON object.
template <class Struct>
nlohmann::ordered_json json_of(const Struct& counts) {
  nlohmann::ordered_json json;
  Struct::visit_fields(counts, [&](const char* name, int64_t value) { json[name] = value; });
  return json;
}

/// Throws UsageError if the directory `output` is or lies in one of the directories among `inputs`: the extraction
/// would read its own files.
void check_output_outside(const std::string& output, const std::vector<std::string>& inputs);

/// The name of a place in the input among the figures of an extraction's state.
inline constexpr const char* kPlace = "read.";

}  // namespace bert
