#include "app/verbs/text_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "app/system/errors.h"
#include "data/corpus/decompression.h"
#include "data/corpus/encoding.h"
#include "data/text/sentence_classes.h"

namespace bert {

void add_text_options(CLI::App& app, ReaderOptions& options) {
  app.add_option_function<std::string>(
         "--layout",
         [&options](const std::string& name) {
           const auto found = std::find(kLayoutNames.begin(), kLayoutNames.end(), name);
           options.layout = static_cast<Layout>(found - kLayoutNames.begin());
         },
         "the ends of documents: sentences (a sentence a line, blank lines between documents), prose (blank lines, or "
         "two where chapters end), lines (a document a line), json-lines, files (a document a file); files named "
         "*.jsonl, *.ndjson and *.json are json-lines in any case")
      ->check(CLI::IsMember(kLayoutNames))
      ->default_str(kLayoutNames[static_cast<size_t>(options.layout)]);
  app.add_option("--text-field", options.text_field, "field of a JSON object that is the document; a.b is b in a")
      ->capture_default_str();
  app.add_option("--encoding", options.encoding, "encoding of all input, as iconv -l lists it; default: UTF-8")
      ->check([](const std::string& name) {
        return is_known_encoding(name) ? "" : "no encoding of iconv: " + name + "; iconv -l lists them";
      });
  app.add_flag("--skip-bad-lines", options.skip_bad_lines,
               "skip and count lines that are no JSON object with the field, in place of an error");
}

void add_language_option(CLI::App& app, std::string& language) {
  app.add_option("--language", language, "of the prose, as en or de; default: its words tell")
      ->check([](const std::string& code) -> std::string {
        const std::vector<std::string> known = sentence_classes::listed_languages();
        if (std::find(known.begin(), known.end(), code) != known.end()) return "";
        return fmt::format("no rules for sentences of \"{}\"; known: {}", code, fmt::join(known, ", "));
      });
}

Layout layout_of_names(const std::vector<InputFile>& files, bool sentences) {
  const auto is_json = [](const InputFile& file) {
    const std::string_view name = without_packed_suffix(file.path);
    return name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json");
  };
  const auto found = std::find_if(files.begin(), files.end(), is_json);
  if (found == files.end()) return Layout::kSentences;
  if (!sentences && std::all_of(files.begin(), files.end(), is_json)) return Layout::kJsonLines;
  throw UsageError("--input has JSON lines, such as " + found->path +
                   ", and one sentence a line is expected: give --split-sentences for prose, or make them apart");
}

void say_left_out(const std::string& program, const ReaderOptions& options, const ReadStatistics& statistics) {
  if (statistics.invalid_sequences > 0)
    fmt::print(stderr, "{}: dropped {} invalid {} sequences\n", program, statistics.invalid_sequences,
               options.encoding.empty() ? "UTF-8" : options.encoding);
  if (statistics.bad_lines > 0) fmt::print(stderr, "{}: skipped {} bad lines\n", program, statistics.bad_lines);
  if (statistics.skipped_files > 0)
    fmt::print(stderr, "{}: skipped {} hidden or special files\n", program, statistics.skipped_files);
}

}  // namespace bert
