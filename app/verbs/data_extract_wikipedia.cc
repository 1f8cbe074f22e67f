#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/system/exit_codes.h"
#include "app/system/processors.h"
#include "app/system/threads.h"
#include "app/verbs/data_actions.h"
#include "app/verbs/extract_options.h"
#include "data/corpus/extracted_text.h"
#include "data/wikitext/extract_dump.h"

namespace bert {

int data_extract_wikipedia(int argc, char** argv) {
  CLI::App app(
      "Extracts the prose of the articles of a MediaWiki XML dump, without markup, tables, lists, duplicates and "
      "near-empty articles.\n"
      "Example: bert data extract wikipedia enwiki-latest-pages-articles.xml.bz2 --output wikipedia",
      "bert data extract wikipedia");
  app.footer(
      "Writes 00000.txt and so on: a paragraph a line, an empty line after each article. Redirects and pages outside "
      "of "
      "namespace 0 are left out. A dump packed by bzip2 is unpacked by all threads. If it is killed, the next run with "
      "the same --output starts over.");
  std::string dump, output;
  DumpOptions read{.num_threads = usable_processors(), .progress = {}};
  ExtractOptions write;
  bool with_titles = false;
  app.add_option("DUMP", dump, "*.xml, plain or packed by bzip2, gzip, xz or zstd")->required();
  app.add_option("--num-threads", read.num_threads,
                 "threads that unpack and convert; the result does not depend on their number")
      ->check(number_in<int64_t>(1, kMaxThreads))
      ->capture_default_str();
  app.add_flag("--with-titles", with_titles, "begin each article with a line that has its title");
  add_extract_options(app, output, write);
  if (!parse_command_line(app, argc, argv)) return kOk;

  const auto start = std::chrono::steady_clock::now();
  Percentage percentage;
  std::error_code no_size;
  const auto dump_bytes = std::filesystem::file_size(dump, no_size);
  if (!no_size && dump_bytes > 0) {
    read.progress = [&](int64_t bytes) {
      percentage.update("extracting", static_cast<double>(bytes) / static_cast<double>(dump_bytes));
    };
  }
  // The dump is opened first: if it is not there, no directory is made.
  std::optional<ExtractedText> writer;
  std::string document;
  const DumpCounts counts = extract_dump(dump, read, [&](std::string_view title, std::string_view text) {
    if (!writer) writer.emplace(output, write);
    document.clear();
    if (with_titles && !text.empty()) document.append(title).append("\n");
    writer->add(document.append(text));
  });
  if (!writer) writer.emplace(output, write);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  finish_extraction(*writer,
                    {{"output", output},
                     {"read",
                      {{"pages", counts.pages},
                       {"redirects", counts.redirects},
                       {"other_namespaces", counts.other_namespaces},
                       {"other_content_models", counts.other_models},
                       {"articles", counts.articles},
                       {"xml_bytes", counts.xml_bytes}}},
                     {"megabytes_per_second", static_cast<double>(counts.xml_bytes) / 1e6 / took.count()}},
                    took.count());
  return kOk;
}

}  // namespace bert
