#include "app/report/view/report_markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "app/report/metrics.h"
#include "app/report/view/sparkline.h"
#include "app/system/console.h"

namespace bert {
namespace {

constexpr size_t kSparklineColumns = 30;

/// `text` as a code span in a cell of a table. GitHub reads "\|" as "|" even there.
std::string code(const std::string& text) {
  if (text.empty()) return "";
  size_t longest = 0, run = 0;
  std::string content;
  for (const char c : printable(text, "")) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
    if (c == '|') content += '\\';
    content += c;
  }
  const std::string fence(longest + 1, '`'), space(longest > 0 ? " " : "");
  return fence + space + content + space + fence;
}

std::string row(const std::string& name, const std::vector<std::string>& cells) {
  std::string line = "| " + name + " |";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

std::string number(double value) { return std::isnan(value) ? "" : fmt::format("{:.5g}", value); }

std::string percent(double value) { return std::isnan(value) ? "" : fmt::format("{:.1f} %", 100 * value); }

using Cell = std::function<std::string(const ReportedRun&)>;

std::string row_of(const std::string& name, const std::vector<ReportedRun>& runs, const Cell& cell) {
  std::vector<std::string> cells;
  cells.reserve(runs.size());
  for (const ReportedRun& run : runs) cells.push_back(cell(run));
  const bool any = std::ranges::any_of(cells, [](const std::string& text) { return !text.empty(); });
  return any ? row(name, cells) : "";
}

std::string head(const std::string& first, const std::vector<ReportedRun>& runs) {
  std::vector<std::string> names = distinct_names(runs);
  std::ranges::transform(names, names.begin(), code);
  return row(first, names) + row("---", std::vector<std::string>(runs.size(), "---:"));
}

std::string steps_of(const ReportedRun& run) {
  const int64_t reached = run.series.training.size() > 0 ? run.series.training.step.back() : 0;
  const int64_t last = last_step_of(run.files.config);
  return last > 0 ? fmt::format("{} of {}", reached, last) : std::to_string(reached);
}

std::string figures(const std::vector<ReportedRun>& runs) {
  const auto last = [](const char* name, std::string (*text)(double)) {
    return [name, text](const ReportedRun& run) { return text(run.series.training.last(name)); };
  };
  std::string table = head("figure", runs);
  table += row_of("state", runs, [](const ReportedRun& run) { return code(state_of(run.files)); });
  table += row_of("steps", runs, steps_of);
  table += row_of("time of training", runs, [](const ReportedRun& run) {
    constexpr double kSecondsAnHour = 3600;
    const Columns& columns = run.series.training;
    return columns.size() > 0 ? format_duration(kSecondsAnHour * columns.hours.back()) : "";
  });
  table += row_of("training loss", runs, last("loss", number));
  table += row_of("its curve", runs, [](const ReportedRun& run) {
    const auto found = run.series.training.values.find("loss");
    return found == run.series.training.values.end() ? "" : sparkline(found->second, kSparklineColumns);
  });
  std::set<std::string> seen;
  for (const ReportedRun& run : runs) {
    for (const std::string& name : evaluation_figures(run.series.evaluations)) {
      if (!seen.insert(name).second) continue;
      table += row_of("evaluation " + code(name), runs,
                      [&](const ReportedRun& each) { return number(each.series.evaluations.last(name)); });
    }
  }
  table += row_of("sequences/s", runs, last("sequences_per_second", number));
  table += row_of("tokens/s", runs, last("tokens_per_second", number));
  table += row_of("MFU", runs, last("mfu", percent));
  table += row_of("waiting for data", runs, last("waiting", percent));
  table += row_of("skipped steps", runs, last("skipped_steps", number));
  table += row_of("restarts", runs, [](const ReportedRun& run) { return std::to_string(run.series.restarts.size()); });
  return table;
}

}  // namespace

std::string report_markdown(const std::vector<ReportedRun>& runs) {
  std::string text = figures(runs);
  const std::vector<SettingDifference> differences = differences_of(runs);
  if (differences.empty()) return text;
  text += "\nThe configurations differ in\n\n" + head("key", runs);
  for (const SettingDifference& difference : differences) {
    std::vector<std::string> values;
    for (const std::string& value : difference.values) values.push_back(code(value));
    text += row(code(difference.key), values);
  }
  return text;
}

}  // namespace bert
