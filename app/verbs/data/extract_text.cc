#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/system/exit_codes.h"
#include "app/verbs/data/actions.h"
#include "app/verbs/data/extract_options.h"
#include "app/verbs/text_options.h"
#include "data/corpus/document_reader.h"
#include "data/corpus/extracted_text.h"
#include "data/text/paragraphs.h"

namespace bert {
namespace {

/// Copies all documents, each with one paragraph a line.
void extract(DocumentReader& reader, const ReaderOptions& options, ExtractedText& writer,
             ExtractionProgress& progress) {
  std::string document, paragraphs;
  progress.read(reader.statistics().stored_bytes);
  while (reader.next(document)) {
    paragraphs.clear();
    if (options.layout == Layout::kSentences) {
      paragraphs = document;  // has one sentence a line, which stays apart
    } else {
      for_each_paragraph(document, [&](std::string_view paragraph) { paragraphs.append(paragraph).append("\n"); });
    }
    writer.add(paragraphs);
    progress.read(reader.statistics().stored_bytes);
  }
  if (reader.statistics().documents == 0) reader.throw_no_text();
}

/// Everything that decides which documents are read. --skip-bad-lines may change: up to the place of a killed
/// extraction without it no line was bad.
Settings settings_of(const DocumentReader& reader, const ReaderOptions& options) {
  return {{"input", identity_of(reader.files())},
          {"--layout", kLayoutNames[static_cast<size_t>(options.layout)]},
          {"--text-field", options.text_field},
          {"--encoding", options.encoding.empty() ? "UTF-8" : options.encoding}};
}

}  // namespace

int data_extract_text(int argc, char** argv) {
  CLI::App app(
      "Copies the documents of text files into one directory, without duplicates and near-empty documents. Files may "
      "be "
      "plain, JSON lines, and packed by gzip, bzip2, xz or zstd; directories are searched.\n"
      "Example: bert data extract text books/ news.jsonl.gz --output extracted",
      "bert data extract text");
  app.footer(
      "Writes 00000.txt and so on: a paragraph a line, an empty line after each document. bert data create "
      "--split-sentences reads these documents. If it is killed, the same command goes on after the last "
      "finished file.");
  std::vector<std::string> paths;
  std::string output;
  ReaderOptions read;
  ExtractOptions write;
  app.add_option("PATH", paths, "files and directories")->required();
  add_text_options(app, read);
  add_extract_options(app, output, write);
  if (!parse_command_line(app, argc, argv)) return kOk;

  const auto start = std::chrono::steady_clock::now();
  check_output_outside(output, paths);
  DocumentReader reader(paths, read);
  ExtractInput input{.settings = settings_of(reader, read), .place = {}};
  if (!input.settings.front().second.empty()) {  // no pipe
    input.place = [&reader] {
      Figures figures;
      add_figures(kPlace, reader.place(), figures);
      return figures;
    };
  }
  ExtractedText writer(output, write, std::move(input));
  if (!writer.place().empty()) {
    ReadPlace place;
    read_figures(writer.place(), kPlace, place);
    reader.go_to(place);
  }
  ExtractionProgress progress(reader.stored_bytes());
  extract(reader, read, writer, progress);
  const ReadStatistics& statistics = reader.statistics();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  finish_extraction(writer, progress, {{"output", output}, {"read", json_of(statistics)}}, {{"seconds", took.count()}});
  say_left_out("bert data extract", read, statistics);
  return kOk;
}

}  // namespace bert
