#include "app/report/view/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "app/parse/bounded_json.h"

namespace bert {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostPoints = 2000;    // of a curve on the page, which has about 500 pixels for it
constexpr size_t kMostAnswers = 6;      // evaluations whose answers the page shows
constexpr size_t kMostLayerLines = 60;  // evaluations whose norms the page draws
constexpr size_t kMostEvaluations = 2000;

/// The leaves of a configuration by JSON pointer. A list is a leaf.
void flatten(const Json& value, const std::string& pointer, std::map<std::string, std::string>& leaves) {
  if (!value.is_object()) {
    leaves[pointer] = as_text(value);
    return;
  }
  for (const auto& [key, member] : value.items()) flatten(member, pointer + "/" + key, leaves);
}

std::map<std::string, std::string> leaves_of(const RunFiles& files) {
  std::map<std::string, std::string> leaves;
  if (files.config.is_object()) flatten(files.config, "", leaves);
  return leaves;
}

Json picked(const std::vector<double>& column, const std::vector<size_t>& places) {
  Json list = Json::array();
  for (const size_t place : places) list.push_back(column[place]);  // NaN and infinity become null
  return list;
}

Json columns_json(const Columns& columns, const std::vector<size_t>& places) {
  Json steps = Json::array();
  for (const size_t place : places) steps.push_back(columns.step[place]);
  Json values = Json::object();
  for (const auto& [name, column] : columns.values) values[name] = picked(column, places);
  return {{"step", std::move(steps)},
          {"tokens", picked(columns.tokens, places)},
          {"hours", picked(columns.hours, places)},
          {"lines", columns.size()},
          {"values", std::move(values)}};
}

const Json& list_member(const Json& object, const char* key, const std::string& where) {
  return member(object, key, Json::value_t::array, where);
}

/// `value` if it is a number, else null.
Json number_or_null(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? *found : Json(nullptr);
}

/// `value` as text: a string as it is, null and an absent member as "", another value as JSON.
std::string text_or_empty(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : as_text(*found);
}

Json answer_json(const Json& answer, const std::string& where) {
  Json fillers = Json::array();
  for (const Json& filler : list_member(answer, "fillers", where)) {
    fillers.push_back(
        {{"token", string_member(filler, "token_str", where)}, {"score", number_or_null(filler, "score")}});
  }
  return {{"text", string_member(answer, "text", where)},
          {"expected", string_member(answer, "expected", where)},
          {"fillers", std::move(fillers)}};
}

/// The number of answers of a line whose best filler is the expected token.
int64_t right_answers(const JsonLine& line) {
  const Json& answers = list_member(line.value, "answers", line.where);
  return std::ranges::count_if(answers, [&](const Json& answer) {
    const Json& fillers = list_member(answer, "fillers", line.where);
    return !fillers.empty() &&
           string_member(fillers.front(), "token_str", line.where) == string_member(answer, "expected", line.where);
  });
}

/// The answers at each evaluation, `right` for all evaluations and `evaluations` for those to show.
Json answers_json(const std::vector<JsonLine>& lines) {
  if (lines.empty()) return nullptr;
  Json right = Json::array(), evaluations = Json::array();
  for (const JsonLine& line : lines) {
    right.push_back({{"step", integer_member(line.value, "step", line.where)}, {"right", right_answers(line)}});
  }
  for (const size_t place : evenly(lines.size(), kMostAnswers)) {
    const JsonLine& line = lines[place];
    Json answers = Json::array();
    for (const Json& answer : list_member(line.value, "answers", line.where))
      answers.push_back(answer_json(answer, line.where));
    evaluations.push_back({{"step", line.value["step"]}, {"answers", std::move(answers)}});
  }
  return {{"right", std::move(right)}, {"evaluations", std::move(evaluations)}};
}

/// For each parameter, its figures over the evaluations to draw. The names are those of the last line.
Json layers_json(const std::vector<JsonLine>& lines) {
  if (lines.empty()) return nullptr;
  const std::vector<size_t> places = evenly(lines.size(), kMostLayerLines);
  Json steps = Json::array(), rows = Json::array();
  std::map<std::string, size_t> row_of;
  for (const Json& layer : list_member(lines.back().value, "layers", lines.back().where)) {
    const std::string& name = string_member(layer, "name", lines.back().where);
    row_of[name] = rows.size();
    const Json nulls = Json::array_t(places.size());
    rows.push_back({{"name", name}, {"weight_norm", nulls}, {"update_norm", nulls}, {"trust_ratio", nulls}});
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const JsonLine& line = lines[places[i]];
    steps.push_back(integer_member(line.value, "step", line.where));
    for (const Json& layer : list_member(line.value, "layers", line.where)) {
      const auto row = row_of.find(string_member(layer, "name", line.where));
      if (row == row_of.end()) continue;
      for (const char* key : {"weight_norm", "update_norm", "trust_ratio"})
        rows[row->second][key][i] = number_or_null(layer, key);
    }
  }
  return {{"steps", std::move(steps)}, {"rows", std::move(rows)}};
}

Json profile_json(const RunFiles& files) {
  if (files.profile.is_null()) return nullptr;
  const std::string where = files.directory + "/profile.json";
  Json parts = Json::array(), operators = Json::array();
  for (const Json& part : list_member(files.profile, "parts", where)) {
    parts.push_back({{"name", string_member(part, "name", where)},
                     {"ms", number_member(part, "ms", where)},
                     {"share", number_or_null(part, "share")}});
  }
  for (const Json& item : list_member(files.profile, "operators", where)) {
    Json row = {{"name", string_member(item, "name", where)}, {"self_ms", number_member(item, "self_ms", where)}};
    for (const char* key : {"calls", "share", "flops", "bytes", "limit_ms"}) row[key] = number_or_null(item, key);
    operators.push_back(std::move(row));
  }
  Json limits = Json::object();
  if (const auto found = files.profile.find("limits"); found != files.profile.end() && found->is_object()) {
    for (const char* key : {"gemm_tflops", "copy_gb_per_second"}) limits[key] = number_or_null(*found, key);
  }
  Json steps = Json::array();
  for (const Json& step : list_member(files.profile, "steps", where)) steps.push_back(as_text(step));
  return {{"step_ms", number_member(files.profile, "step_ms", where)},
          {"steps", std::move(steps)},
          {"parts", std::move(parts)},
          {"operators", std::move(operators)},
          {"limits", std::move(limits)}};
}

/// The arguments of a command line as texts.
Json command_json(const Json& attempt) {
  Json words = Json::array();
  if (const auto found = attempt.find("command"); found != attempt.end() && found->is_array()) {
    for (const Json& word : *found) words.push_back(word.is_string() ? word.get<std::string>() : as_text(word));
  }
  return words;
}

/// One object for each process of the run: its begin, and its end if it has recorded one.
Json attempts_json(const std::vector<JsonLine>& lines) {
  Json attempts = Json::array();
  for (const JsonLine& line : lines) {
    const std::string& event = string_member(line.value, "event", line.where);
    if (event == "begin") {
      Json begin = {{"begin", number_or_null(line.value, "time")},
                    {"first_step", number_or_null(line.value, "step")},
                    {"command", command_json(line.value)}};
      for (const char* key : {"host", "version", "libtorch", "device", "threads", "world_size", "precision", "pid"})
        begin[key] = text_or_empty(line.value, key);
      attempts.push_back(std::move(begin));
    } else if (event == "end" && !attempts.empty()) {
      Json& last = attempts.back();
      last["end"] = number_or_null(line.value, "time");
      last["last_step"] = number_or_null(line.value, "step");
      last["exit_code"] = number_or_null(line.value, "exit_code");
      last["reason"] = text_or_empty(line.value, "reason");
    }
  }
  return attempts;
}

Json checkpoints_json(const std::vector<ReportedCheckpoint>& checkpoints) {
  Json list = Json::array();
  for (const ReportedCheckpoint& checkpoint : checkpoints) {
    list.push_back({{"step", checkpoint.step},
                    {"bytes", checkpoint.bytes},
                    {"files", checkpoint.files},
                    {"problem", checkpoint.problem}});
  }
  return list;
}

Json lengths_json(const ReportedLengths& lengths) {
  if (!lengths.absent.empty()) return {{"absent", lengths.absent}};
  Json bins = Json::array();
  for (const ReportedLengths::Bin& bin : lengths.bins) bins.push_back({bin.shortest, bin.longest, bin.examples});
  return {{"examples", lengths.examples},
          {"counted", lengths.counted},
          {"max_seq_length", lengths.max_seq_length},
          {"mean_length", lengths.mean_length},
          {"padding_saved", 1 - lengths.mean_length / static_cast<double>(lengths.max_seq_length)},
          {"bins", std::move(bins)}};
}

Json run_json(const ReportedRun& run, const std::string& name) {
  const RunFiles& files = run.files;
  const RunSeries& series = run.series;
  Json restarts = Json::array();
  for (const Restart& restart : series.restarts)
    restarts.push_back({{"step", restart.step}, {"tokens", restart.tokens}, {"hours", restart.hours}});
  Json summary = Json::object(), configuration = Json::object();
  if (files.summary.is_object()) summary = files.summary;
  for (const auto& [key, value] : leaves_of(files)) configuration[key] = value;
  return {{"name", name},
          {"directory", files.directory},
          {"task", files.config.is_object() ? text_or_empty(files.config, "task") : ""},
          {"state", state_of(files)},
          {"last_step", last_step_of(files.config)},
          {"training", columns_json(series.training, places_to_draw(series.training, "loss", kMostPoints))},
          {"evaluations", columns_json(series.evaluations, evenly(series.evaluations.size(), kMostEvaluations))},
          {"evaluation_figures", evaluation_figures(series.evaluations)},
          {"restarts", std::move(restarts)},
          {"answers", answers_json(files.answers)},
          {"layers", layers_json(files.layers)},
          {"profile", profile_json(files)},
          {"attempts", attempts_json(files.attempts)},
          {"checkpoints", checkpoints_json(run.checkpoints)},
          {"lengths", lengths_json(run.lengths)},
          {"summary", std::move(summary)},
          {"configuration", std::move(configuration)}};
}

}  // namespace

std::vector<SettingDifference> differences_of(const std::vector<ReportedRun>& runs) {
  std::vector<std::map<std::string, std::string>> settings;
  std::set<std::string> keys;
  for (const ReportedRun& run : runs) {
    settings.push_back(leaves_of(run.files));
    for (const auto& [key, value] : settings.back()) keys.insert(key);
  }
  keys.erase("/run_directory");
  std::vector<SettingDifference> differences;
  for (const std::string& key : keys) {
    SettingDifference difference{.key = key, .values = {}};
    for (const auto& leaves : settings) {
      const auto found = leaves.find(key);
      difference.values.push_back(found == leaves.end() ? "" : found->second);
    }
    const auto& values = difference.values;
    if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end())
      differences.push_back(std::move(difference));
  }
  return differences;
}

std::string state_of(const RunFiles& files) {
  const int64_t last_step = last_step_of(files.config);
  if (files.attempts.empty()) {
    const int64_t reached = setting(files.summary, "/steps");
    return last_step > 0 && reached >= last_step ? "finished" : "not finished, or its files do not say it";
  }
  const JsonLine& last = files.attempts.back();
  if (text_or_empty(last.value, "event") != "end")
    return "running, or killed: its last process has not recorded its end";
  const std::string reason = text_or_empty(last.value, "reason");
  const double code = number_or_nan(last.value, "exit_code");
  if (code == 0) return reason.empty() ? "finished" : reason;
  return fmt::format("ended with exit code {}{}{}", code, reason.empty() ? "" : ": ", reason);
}

std::vector<std::string> evaluation_figures(const Columns& evaluations) {
  constexpr std::string_view kFirst[] = {"mlm_loss", "mlm_accuracy", "f1", "exact_match", "accuracy"};
  const std::set<std::string_view> sizes = {"examples", "masked_tokens", "unigram_entropy", "mlm_perplexity"};
  std::vector<std::string> names;
  for (const std::string_view name : kFirst) {
    if (evaluations.values.contains(std::string(name))) names.emplace_back(name);
  }
  for (const auto& [name, column] : evaluations.values) {
    if (!sizes.contains(name) && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

std::vector<std::string> distinct_names(const std::vector<ReportedRun>& runs) {
  std::map<std::string, int> times;
  for (const ReportedRun& run : runs) ++times[run.files.name];
  std::vector<std::string> names;
  names.reserve(runs.size());
  for (const ReportedRun& run : runs)
    names.push_back(times[run.files.name] == 1 ? run.files.name : run.files.directory);
  return names;
}

nlohmann::json report_data(const std::vector<ReportedRun>& runs) {
  const std::vector<std::string> names = distinct_names(runs);
  Json list = Json::array(), differences = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) list.push_back(run_json(runs[i], names[i]));
  for (const SettingDifference& difference : differences_of(runs))
    differences.push_back({{"key", difference.key}, {"values", difference.values}});
  return {{"runs", std::move(list)}, {"differences", std::move(differences)}};
}

}  // namespace bert
