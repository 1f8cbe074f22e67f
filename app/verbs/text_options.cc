#include "app/verbs/text_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "data/corpus/encoding.h"

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
               "skip and count lines that are no JSON object with the field, instead of ending with an error");
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
