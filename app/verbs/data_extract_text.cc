#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/system/exit_codes.h"
#include "app/verbs/data_actions.h"
#include "app/verbs/extract_options.h"
#include "app/verbs/text_options.h"
#include "data/corpus/document_reader.h"
#include "data/corpus/extracted_text.h"
#include "data/text/paragraphs.h"

namespace bert {
namespace {

/// Copies all documents, each with one paragraph a line.
void extract(DocumentReader& reader, const ReaderOptions& options, ExtractedText& writer) {
  Percentage percentage;
  const auto all_bytes = static_cast<double>(reader.stored_bytes());
  std::string document, paragraphs;
  while (reader.next(document)) {
    paragraphs.clear();
    if (options.layout == Layout::kSentences) {
      paragraphs = document;  // has one sentence a line, which stays apart
    } else {
      for_each_paragraph(document, [&](std::string_view paragraph) { paragraphs.append(paragraph).append("\n"); });
    }
    writer.add(paragraphs);
    if (all_bytes > 0)
      percentage.update("extracting", static_cast<double>(reader.statistics().stored_bytes) / all_bytes);
  }
  if (reader.statistics().documents == 0) reader.throw_no_text();
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
      "--split-sentences reads these documents. If it is killed, the next run with the same --output starts over.");
  std::vector<std::string> paths;
  std::string output;
  ReaderOptions read;
  ExtractOptions write;
  app.add_option("PATH", paths, "files and directories")->required();
  add_text_options(app, read);
  add_extract_options(app, output, write);
  if (!parse_command_line(app, argc, argv)) return kOk;

  const auto start = std::chrono::steady_clock::now();
  DocumentReader reader(paths, read);
  ExtractedText writer(output, write);
  extract(reader, read, writer);
  const ReadStatistics& statistics = reader.statistics();
  if (statistics.invalid_sequences > 0)
    fmt::print(stderr, "bert data extract: dropped {} invalid byte sequences\n", statistics.invalid_sequences);
  if (statistics.bad_lines > 0) fmt::print(stderr, "bert data extract: skipped {} bad lines\n", statistics.bad_lines);
  if (statistics.skipped_files > 0)
    fmt::print(stderr, "bert data extract: skipped {} hidden or special files\n", statistics.skipped_files);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  finish_extraction(writer,
                    {{"output", output},
                     {"read",
                      {{"files", statistics.files},
                       {"skipped_files", statistics.skipped_files},
                       {"stored_bytes", statistics.stored_bytes},
                       {"text_bytes", statistics.text_bytes},
                       {"documents", statistics.documents},
                       {"invalid_sequences", statistics.invalid_sequences},
                       {"bad_lines", statistics.bad_lines}}}},
                    took.count());
  return kOk;
}

}  // namespace bert
