#include "data/tasks/squad.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/text_parts.h"
#include "data/tasks/task_json.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

using nlohmann::json;

constexpr int64_t kMaxFileBytes = int64_t{1} << 31;
/// Characters that an answer may stand beside its place: annotations of SQuAD are off by so many at most (transformers'
/// documentation, "Fine-tuning with custom datasets").
constexpr int64_t kMaxShift = 2;

/// A value in the file and its place, for errors: "data[0].paragraphs[3].qas[1]".
class Value {
 public:
  Value(const json& value, const std::string& file, std::string place)
      : value_(value), file_(file), place_(std::move(place)) {}

  [[noreturn]] void fail(const std::string& message) const {
    throw DataError(fmt::format("{}: {}{}{}", file_, place_, place_.empty() ? "" : ": ", message));
  }
  [[nodiscard]] bool has(const char* key) const {
    if (!value_.is_object()) fail(fmt::format("want an object, got {}", value_.type_name()));
    const auto found = value_.find(key);
    return found != value_.end() && !found->is_null();
  }
  [[nodiscard]] Value at(const char* key) const {
    if (!has(key)) fail(fmt::format("no field \"{}\"", key));
    return {value_.at(key), file_, place_.empty() ? key : place_ + "." + key};
  }
  /// Calls take(item) for each item of an array.
  template <class Take>
  void each(Take&& take) const {
    if (!value_.is_array()) fail(fmt::format("want an array, got {}", value_.type_name()));
    for (size_t i = 0; i < value_.size(); ++i) take(Value(value_[i], file_, fmt::format("{}[{}]", place_, i)));
  }
  [[nodiscard]] const std::string& text() const {
    if (!value_.is_string()) fail(fmt::format("want a string, got {}", value_.type_name()));
    return value_.get_ref<const std::string&>();
  }
  [[nodiscard]] bool boolean() const {
    if (!value_.is_boolean()) fail(fmt::format("want true or false, got {}", value_.type_name()));
    return value_.get<bool>();
  }
  [[nodiscard]] int64_t position() const {
    if (!value_.is_number_unsigned() || value_.get<uint64_t>() > INT32_MAX)
      fail(fmt::format("want the number of a character, got {}", value_.dump()));
    return value_.get<int64_t>();
  }

 private:
  const json& value_;
  const std::string& file_;
  std::string place_;
};

/// A row of JSON lines as a question of SQuAD's files, whose answers are objects. `place`: of the row.
json question_of_row(json row, const std::string& place, bool no_answers) {
  const auto found = row.find("answers");
  if (found == row.end() || !found->is_object()) return row;
  const Value lists(*found, place, "answers");
  json answers = json::array();
  lists.at("text").each([&](const Value& text) { answers.push_back({{"text", text.text()}}); });
  size_t starts = 0;
  lists.at("answer_start").each([&](const Value& start) {
    if (starts < answers.size()) answers[starts]["answer_start"] = static_cast<uint64_t>(start.position());
    ++starts;
  });
  if (starts != answers.size()) lists.fail(fmt::format("{} in text, and {} in answer_start", answers.size(), starts));
  if (no_answers && answers.empty()) row.emplace("is_impossible", true);
  row["answers"] = std::move(answers);
  return row;
}

/// Reads the questions into a data set.
class SquadReader {
 public:
  SquadReader(const SquadReading& reading, SquadDataset& data) : reading_(reading), data_(data) {}

  void read(const Value& root) {
    root.at("data").each([&](const Value& article) {
      article.at("paragraphs").each([&](const Value& paragraph) {
        read_context(paragraph.at("context").text());
        paragraph.at("qas").each([&](const Value& question) { read_question(question); });
      });
    });
  }

  /// A question with its context, which neighbours may share.
  void read_flat(const Value& question) {
    const std::string& context = question.at("context").text();
    if (data_.paragraphs.empty() || data_.paragraphs.back().context != context) read_context(context);
    read_question(question);
  }

 private:
  void read_context(const std::string& context) {
    starts_.clear();
    for (size_t at = 0; at < context.size();
         at += static_cast<size_t>(decode_utf8(std::string_view(context).substr(at)).bytes))
      starts_.push_back(static_cast<int64_t>(at));
    data_.paragraphs.push_back({context, split_squad_words(context)});
  }

  void read_question(const Value& value) {
    SquadQuestion question{.id = value.at("id").text(),
                           .text = value.at("question").text(),
                           .paragraph = static_cast<int32_t>(data_.paragraphs.size() - 1),
                           .is_impossible = value.has("is_impossible") && value.at("is_impossible").boolean(),
                           .answers = {}};
    const auto fail = [&](const std::string& message) {
      value.fail(fmt::format("question {}: {}", question.id, message));
    };
    if (question.id.empty()) value.fail("the id is empty");
    if (!ids_.insert(question.id).second) fail("another question has this id");
    if (question.is_impossible && !reading_.no_answers)
      fail("it has no answer (is_impossible): this is a file of SQuAD 2.0, and the task SQuAD 1.1");
    const bool scoring = reading_.for_scoring;
    if (value.has("answers") && (!question.is_impossible || scoring)) {
      value.at("answers").each(
          [&](const Value& answer) { question.answers.push_back(read_answer(answer, question.id)); });
    }
    if (scoring && reading_.no_answers) question.is_impossible = value.has("answers") && question.answers.empty();
    if (question.answers.empty() && !question.is_impossible) {
      if (reading_.need_answers) fail("it has no answers");
      data_.has_answers = false;
    }
    data_.questions.push_back(std::move(question));
  }

  /// Finds the answer at its place, or up to kMaxShift characters beside it.
  SquadAnswer read_answer(const Value& value, const std::string& id) {
    SquadAnswer answer{.text = value.at("text").text()};
    if (reading_.for_scoring) return answer;
    const int64_t start = value.at("answer_start").position();
    if (answer.text.empty()) value.fail(fmt::format("question {}: the answer is empty", id));
    const std::string_view context = data_.paragraphs.back().context;
    for (const int64_t shift : std::array<int64_t, 5>{0, -1, 1, -kMaxShift, kMaxShift}) {
      const int64_t place = start + shift;
      if (place < 0 || place >= static_cast<int64_t>(starts_.size())) continue;
      answer.start = starts_[static_cast<size_t>(place)];
      if (context.substr(static_cast<size_t>(answer.start)).starts_with(answer.text)) return answer;
    }
    value.fail(fmt::format("question {}: the context does not have the answer \"{}\" at character {}", id, answer.text,
                           start));
  }

  const SquadReading& reading_;
  SquadDataset& data_;
  std::unordered_set<std::string> ids_;
  std::vector<int64_t> starts_;  // the first byte of each character of the last context
};

}  // namespace

std::vector<SquadWord> split_squad_words(const std::string& context) {
  std::vector<SquadWord> words;
  bool in_word = false;
  for (size_t at = 0; at < context.size();) {
    const DecodedUtf8 next = decode_utf8(std::string_view(context).substr(at));
    const char32_t c = next.value;
    const bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == 0x202F;
    const auto begin = static_cast<int64_t>(at);
    if (!space && !in_word) words.push_back({begin, begin});
    if (!space) words.back().end = begin + next.bytes;
    in_word = !space;
    at += static_cast<size_t>(next.bytes);
  }
  return words;
}

namespace {

/// True if the first line is a question by itself.
bool is_json_lines(std::string_view text) {
  const std::string_view line = take_part(text, '\n');
  if (line.find("\"paragraphs\"") != std::string_view::npos) return false;  // a whole file in one line
  const json first = json::parse(line, nullptr, /*allow_exceptions=*/false);
  return first.is_object() && first.contains("question");
}

}  // namespace

SquadDataset read_squad(const std::string& path, const SquadReading& reading) {
  const std::string text = read_file(path, kMaxFileBytes);
  if (text.empty()) throw DataError(path + ": the file is empty");
  check_is_plain_text(path, text);
  SquadDataset data;
  data.has_answers = true;
  SquadReader reader(reading, data);
  if (is_json_lines(text)) {
    std::string_view rest = text;
    for (int64_t line = 1; !rest.empty(); ++line) {
      const std::string_view row = take_part(rest, '\n');
      if (trimmed(row).empty()) continue;
      const std::string place = fmt::format("{}:{}", path, line);
      const json question = question_of_row(parse_task_json(row, path, line), place, reading.no_answers);
      reader.read_flat(Value(question, place, ""));
    }
  } else {
    const json root = parse_task_json(text, path);
    if (!root.is_object() || !root.contains("data"))
      throw DataError(path + ": want a file of SQuAD: an object with the field \"data\", or a question in each line");
    reader.read(Value(root, path, ""));
  }
  if (data.questions.empty()) throw DataError(path + ": the file has no questions");
  return data;
}

}  // namespace bert
