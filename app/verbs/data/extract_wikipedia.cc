#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/cli/command_line.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/processors.h"
#include "app/system/machine/threads.h"
#include "app/verbs/data/actions.h"
#include "app/verbs/data/extract_options.h"
#include "data/corpus/extracted_text.h"
#include "data/corpus/input_files.h"
#include "data/io/error.h"
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
      "namespace 0 are left out. A dump packed by bzip2 is unpacked by all threads. If it is killed, the same command "
      "goes on after the last finished file.");
  std::string dump, output;
  DumpOptions read{.num_threads = usable_processors()};
  ExtractOptions write;
  app.add_option("DUMP", dump, "*.xml, plain or packed by bzip2, gzip, xz or zstd")->required();
  app.add_option("--num-threads", read.num_threads,
                 "threads that unpack and convert; the result does not depend on their number")
      ->check(number_in<int64_t>(1, kMaxThreads))
      ->capture_default_str();
  app.add_flag("--with-titles", write.with_titles, "begin each article with a line that has its title");
  add_extract_options(app, output, write);
  if (!parse_command_line(app, argc, argv)) return kOk;

  const auto start = std::chrono::steady_clock::now();
  std::error_code no_size;
  const auto dump_bytes = std::filesystem::file_size(dump, no_size);
  ExtractionProgress progress(no_size ? 0 : static_cast<int64_t>(dump_bytes));
  read.progress = [&progress](int64_t bytes) { progress.read(bytes); };
  Settings settings = {{"input", identity_of(find_input_files({dump}).files)}};
  DumpPlace place;
  constexpr int64_t kBits = 8;  // of a byte
  int64_t first_byte = 0;       // of the unpacked dump, that this process reads
  ExtractInput input{.settings = std::move(settings), .place = {}};
  if (!input.settings.front().second.empty()) {  // no pipe
    input.place = [&place] {
      Figures figures;
      add_figures(kPlace, place, figures);
      return figures;
    };
  }
  // The dump is opened first: if it is not there, or no dump, no directory is made.
  std::optional<ExtractedText> writer;
  read.begin = [&] {
    writer.emplace(output, write, input);
    if (!writer->place().empty()) read_figures(writer->place(), kPlace, place);
    first_byte = place.counts.xml_bytes;
    progress.read(place.stored_bit / kBits);
    return place;
  };
  const DumpCounts counts = extract_dump(dump, read, [&](const Article& article) {
    place = article.end;
    writer->add(article.text, article.title);
  });
  if (!writer) throw DataError(dump + ": has no page");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  finish_extraction(*writer, progress, {{"output", output}, {"read", json_of(counts)}},
                    {{"megabytes_per_second", static_cast<double>(counts.xml_bytes - first_byte) / 1e6 / took.count()},
                     {"seconds", took.count()}});
  return kOk;
}

}  // namespace bert
