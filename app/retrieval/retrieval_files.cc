#include "app/retrieval/retrieval_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <utility>

#include "app/parse/bounded_json.h"
#include "data/io/error.h"
#include "data/io/text_parts.h"
#include "data/tasks/table_reader.h"
#include "data/tasks/task_json.h"
#include "data/text/text_input.h"

namespace bert {
namespace {

using nlohmann::json;

constexpr const char* kId = "_id";

/// The id of an object: a string, or an integer, as some data sets have it.
std::string id_of(const json& object, const std::string& place) {
  const auto found = object.find(kId);
  if (found != object.end() && found->is_number_integer()) return found->dump();
  return string_member(object, kId, place);
}

/// Throws DataError if `id` is in `ids` already.
void add_id(std::unordered_set<std::string>& ids, const std::string& id, const std::string& place) {
  if (!ids.insert(id).second) throw DataError(fmt::format("{}: the id \"{}\" is there twice", place, id));
}

using TextKeys = std::initializer_list<const char*>;
constexpr TextKeys kPositiveKeys = {"positive", "pos"}, kNegativeKeys = {"negative", "negatives", "neg"};

/// The first of `keys` that the object has, else the first one.
const char* key_in(const json& object, TextKeys keys) {
  const auto* const found = std::ranges::find_if(keys, [&](const char* key) { return object.contains(key); });
  return found == keys.end() ? *keys.begin() : *found;
}

std::vector<std::string> texts_member(const json& object, TextKeys keys, const std::string& place) {
  const char* const key = key_in(object, keys);
  if (const auto text = object.find(key); text != object.end() && text->is_string()) return {text->get<std::string>()};
  const json& list = member(object, key, json::value_t::array, place);
  std::vector<std::string> texts;
  for (const json& item : list) {
    if (!item.is_string())
      throw DataError(fmt::format("{}: \"{}\": want a list of strings, got {} in it", place, key, item.type_name()));
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

TableFormat format_of_pairs(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  return extension == ".csv" || extension == ".jsonl" || extension == ".json" ? table_format(path) : TableFormat::kTsv;
}

}  // namespace

JsonLines::JsonLines(const std::string& path) : path_(path), file_(path) {
  check_is_plain_text(path, file_.view());
  if (file_.view().starts_with("\xEF\xBB\xBF")) at_ = 3;
}

bool JsonLines::next(json& object) {
  const std::string_view text = file_.view();
  if (text.find_first_not_of("\r\n", at_) == std::string_view::npos) {
    file_.expect_whole();
    return false;
  }
  ++line_;
  std::string_view rest = text.substr(at_);
  const std::string_view line = trimmed(take_part(rest, '\n'));
  at_ = text.size() - rest.size();
  if (line.empty()) throw DataError(place() + ": the line is blank; want a JSON object in each line");
  object = parse_task_json(line, path_, line_);
  if (!object.is_object())
    throw DataError(fmt::format("{}: want a JSON object in each line, got {}", place(), object.type_name()));
  return true;
}

std::string JsonLines::place() const { return fmt::format("{}:{}", path_, line_); }

double JsonLines::share() const {
  return file_.size() == 0 ? 1 : static_cast<double>(at_) / static_cast<double>(file_.size());
}

NamedText document_of(const json& object, const std::string& place) {
  const auto title = object.find("title");
  std::string text;
  if (title != object.end() && !title->is_null()) text = string_member(object, "title", place) + " ";
  text += string_member(object, "text", place);
  return {.id = object.contains(kId) ? id_of(object, place) : "", .text = std::string(trimmed(text))};
}

bool CorpusReader::next(NamedText& document) {
  json object;
  if (!lines_.next(object)) return false;
  const std::string place = lines_.place();
  document = document_of(object, place);
  document.id = id_of(object, place);
  add_id(ids_, document.id, place);
  return true;
}

std::vector<NamedText> read_queries(const std::string& path) {
  JsonLines lines(path);
  std::vector<NamedText> queries;
  std::unordered_set<std::string> ids;
  for (json object; lines.next(object);) {
    const std::string place = lines.place();
    queries.push_back({.id = id_of(object, place), .text = string_member(object, "text", place)});
    add_id(ids, queries.back().id, place);
  }
  if (queries.empty()) throw DataError(path + ": has no query; expected one JSON object a line");
  return queries;
}

const std::unordered_set<std::string>* Judgments::of(const std::string& query) const {
  const auto found = relevant.find(query);
  return found == relevant.end() ? nullptr : &found->second;
}

Judgments read_judgments(const std::string& path) {
  enum { kQuery, kDocument, kScore };
  TableReader table(path, {{"query-id"}, {"corpus-id"}, {"score"}}, {.format = TableFormat::kTsv, .header = {}});
  Judgments judgments;
  std::unordered_set<std::string> pairs;
  while (table.next()) {
    const std::string &query = table.cell(kQuery), &document = table.cell(kDocument);
    const auto score = number_of<int64_t>(table.cell(kScore));
    if (!score) table.fail(kScore, fmt::format("want an integer, got \"{}\"", table.cell(kScore)));
    if (!pairs.insert(query + '\t' + document).second)
      table.fail(kDocument, fmt::format("query {} and document {} are there twice", query, document));
    if (*score <= 0) continue;
    std::unordered_set<std::string>& documents = judgments.relevant[query];
    if (documents.empty()) judgments.queries.push_back(query);
    documents.insert(document);
  }
  if (judgments.queries.empty()) throw DataError(path + ": no document is relevant; expected a score above 0");
  return judgments;
}

std::string judgments_path(const std::string& directory, const std::string& split) {
  const std::string folder = directory + "/qrels";
  std::string path = folder + "/" + split + ".tsv";
  std::error_code absent;
  if (std::filesystem::exists(path, absent)) return path;
  std::vector<std::string> splits;
  if (std::filesystem::is_directory(folder, absent)) {
    for (const std::string& name : names_in(folder)) {
      if (name.ends_with(".tsv")) splits.push_back(name.substr(0, name.size() - std::string_view(".tsv").size()));
    }
  }
  throw InputMissing(fmt::format("{}: no such file; {} has the splits [{}]; --split names one", path, folder,
                                 fmt::join(splits, ", ")));
}

std::vector<RerankingSample> read_reranking_samples(const std::string& path, bool keep_incomplete) {
  JsonLines lines(path);
  std::vector<RerankingSample> samples;
  for (json object; lines.next(object);) {
    const std::string place = lines.place();
    RerankingSample sample{.query = string_member(object, "query", place),
                           .positive = texts_member(object, kPositiveKeys, place),
                           .negative = texts_member(object, kNegativeKeys, place)};
    const bool complete = !sample.positive.empty() && !sample.negative.empty();
    if (complete || keep_incomplete) samples.push_back(std::move(sample));
  }
  if (samples.empty()) throw DataError(path + ": no sample has a positive and a negative text");
  return samples;
}

bool has_reranking_samples(const std::string& path) {
  if (format_of_pairs(path) != TableFormat::kJsonLines) return false;
  JsonLines lines(path);
  json object;
  return lines.next(object) && object.contains("query") && object.contains(key_in(object, kPositiveKeys)) &&
         object.contains(key_in(object, kNegativeKeys));
}

std::vector<ScoredPair> read_scored_pairs(const std::string& path, const PairColumns& columns) {
  enum { kFirst, kSecond, kValue };
  TableReader table(path, {{columns.first}, {columns.second}, {columns.value}},
                    {.format = format_of_pairs(path), .header = {}, .same_width = false});
  std::vector<ScoredPair> pairs;
  while (table.next()) {
    const std::string& text = table.cell(kValue);
    const auto value = number_of<double>(text);
    if (!value || !std::isfinite(*value)) table.fail(kValue, fmt::format("want a number, got \"{}\"", text));
    if (columns.classes && *value != 0 && *value != 1)
      table.fail(kValue, fmt::format("want the class 0 or 1, got \"{}\"", text));
    pairs.push_back({table.cell(kFirst), table.cell(kSecond), *value});
  }
  if (pairs.empty()) throw DataError(path + ": has no pairs");
  return pairs;
}

PairKind kind_of_pairs(const std::string& path) {
  if (has_reranking_samples(path)) return PairKind::kReranking;
  const TableReader table(path, {{"label", /*required=*/false}, {"score", /*required=*/false}},
                          {.format = format_of_pairs(path), .header = {}, .same_width = false});
  return table.has(0) && !table.has(1) ? PairKind::kClassification : PairKind::kSimilarity;
}

}  // namespace bert
