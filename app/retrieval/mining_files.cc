#include "app/retrieval/mining_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/retrieval/retrieval_files.h"
#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/text_parts.h"
#include "data/tasks/table_reader.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

bool has_json_name(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  return extension == ".jsonl" || extension == ".json";
}

bool has_tsv_name(const std::string& path) { return std::filesystem::path(path).extension() == ".tsv"; }

}  // namespace

int64_t DistinctTexts::add(const std::string& text) {
  const auto [found, is_new] = places_.try_emplace(text, size());
  if (is_new) texts_.push_back(&found->first);
  return found->second;
}

MiningPairs read_mining_pairs(const std::string& path, const std::string& anchor_column,
                              const std::string& positive_column) {
  enum { kFirst, kSecond, kPositive };
  const bool named = !anchor_column.empty();
  MiningPairs pairs{.anchor_column = named ? anchor_column : "anchor",
                    .positive_column = positive_column.empty() ? "positive" : positive_column,
                    .anchors = {},
                    .positives = {}};
  TableReader table(path, {{pairs.anchor_column, named}, {named ? "" : "query", false}, {pairs.positive_column}},
                    {.format = table_format(path), .header = {}});
  const size_t anchor = table.has(kFirst) ? kFirst : kSecond;
  if (!table.has(anchor))
    throw DataError(path + ":1: no column \"anchor\" or \"query\"; --anchor-column names the column");
  if (anchor == kSecond) pairs.anchor_column = "query";
  while (table.next()) {
    for (const size_t column : {anchor, size_t{kPositive}}) {
      if (table.cell(column).empty()) table.fail(column, "the text is empty");
    }
    pairs.anchors.push_back(table.cell(anchor));
    pairs.positives.push_back(table.cell(kPositive));
  }
  if (pairs.anchors.empty()) throw DataError(path + ": has no pairs");
  return pairs;
}

void read_mining_corpus(const std::string& path, DistinctTexts& documents) {
  const int64_t before = documents.size();
  if (has_json_name(path)) {
    JsonLines lines(path);
    for (nlohmann::json object; lines.next(object);) documents.add(document_of(object, lines.place()).text);
  } else {
    const MappedFile file(path);
    check_is_plain_text(path, file.view());
    std::string_view rest = file.view();
    for (int64_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = trimmed(take_part(rest, '\n'));
      if (line.empty()) continue;
      if (count_invalid_utf8(line) > 0) throw DataError(fmt::format("{}:{}: the text is not UTF-8", path, number));
      documents.add(std::string(line));
    }
    file.expect_whole();
  }
  if (documents.size() == before) throw DataError(path + ": has no text; expected one a line");
}

TupleWriter::TupleWriter(const std::string& path, const MiningPairs& columns, const Options& options)
    : path_(path),
      columns_({columns.anchor_column, columns.positive_column}),
      options_(options),
      json_(has_json_name(path)),
      file_(path) {
  if (!json_ && !has_tsv_name(path)) throw UsageError("--output " + path + ": want a name that ends in .jsonl or .tsv");
  if (!json_ && options.scores)
    throw UsageError("--scores: a list needs JSON lines; want an --output that ends in .jsonl");
  if (options_.format == TupleFormat::kTriplet) {
    columns_.emplace_back("negative");
  } else {
    for (int64_t i = 1; i <= options_.num_negatives; ++i) columns_.push_back(fmt::format("negative_{}", i));
  }
  if (json_) return;
  for (const std::string& name : columns_) buffer_ += (buffer_.empty() ? "" : "\t") + name;
  buffer_ += '\n';
}

void TupleWriter::write(const std::string& anchor, const ScoredText& positive, std::span<const ScoredText> negatives) {
  if (options_.format == TupleFormat::kNTuple) {
    if (std::ssize(negatives) == options_.num_negatives) write_row(anchor, positive, negatives);
    return;
  }
  for (size_t i = 0; i < negatives.size(); ++i) write_row(anchor, positive, negatives.subspan(i, 1));
}

void TupleWriter::write_row(const std::string& anchor, const ScoredText& positive,
                            std::span<const ScoredText> negatives) {
  constexpr size_t kPartBytes = 1 << 20;
  std::vector<const std::string*> cells = {&anchor, positive.text};
  for (const ScoredText& negative : negatives) cells.push_back(negative.text);
  if (json_) {
    nlohmann::ordered_json row = nlohmann::ordered_json::object();
    for (size_t i = 0; i < cells.size(); ++i) row[columns_[i]] = *cells[i];
    if (options_.scores) {
      row["scores"] = nlohmann::ordered_json::array({positive.score});
      for (const ScoredText& negative : negatives) row["scores"].push_back(negative.score);
    }
    buffer_ += row.dump();
  } else {
    for (const std::string* cell : cells) {
      if (cell->find_first_of("\t\r\n") == std::string::npos) continue;
      throw DataError(fmt::format("{}: TSV cannot hold a text with a tab or a line feed: \"{}\"; write a .jsonl file",
                                  path_, cell->substr(0, 60)));
    }
    for (size_t i = 0; i < cells.size(); ++i) buffer_ += (i == 0 ? "" : "\t") + *cells[i];
  }
  buffer_ += '\n';
  ++rows_;
  if (buffer_.size() < kPartBytes) return;
  file_.write(buffer_);
  buffer_.clear();
}

void TupleWriter::commit() {
  file_.write(buffer_);
  file_.commit();
}

}  // namespace bert
