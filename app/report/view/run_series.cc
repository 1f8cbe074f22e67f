#include "app/report/view/run_series.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "app/parse/bounded_json.h"

namespace bert {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Sets the value of the newest row. Rows without a value of this column get NaN.
void set(Columns& columns, const std::string& name, double value) {
  std::vector<double>& column = columns.values[name];
  column.resize(columns.size() - 1, kNone);
  column.push_back(value);
}

void fill_up(Columns& columns) {
  for (auto& [name, column] : columns.values) column.resize(columns.size(), kNone);
}

class SeriesMaker {
 public:
  explicit SeriesMaker(int64_t global_batch_size) : global_batch_size_(static_cast<double>(global_batch_size)) {}

  void add(const JsonLine& line) {
    const int64_t step = integer_member(line.value, "step", line.where);
    note_time(line.value, step);
    const auto evaluation = line.value.find("evaluation");
    if (evaluation == line.value.end()) {
      add_training(line.value, step);
    } else if (evaluation->is_object()) {
      begin_row(series_.evaluations, step);
      for (const auto& [name, value] : evaluation->items()) {
        if (value.is_number()) set(series_.evaluations, name, value.get<double>());
      }
    }
  }

  RunSeries finish() {
    fill_up(series_.training);
    fill_up(series_.evaluations);
    return std::move(series_);
  }

 private:
  void note_time(const nlohmann::json& line, int64_t step) {
    const LineTime now = time_of(line);
    if (std::isnan(now.time) || std::isnan(now.elapsed_seconds)) return;
    if (is_of_later_process(now, last_)) {
      earlier_seconds_ += last_.elapsed_seconds;
      series_.restarts.push_back({step, tokens_, (earlier_seconds_ + now.elapsed_seconds) / kSecondsAnHour});
    }
    last_ = now;
  }

  void begin_row(Columns& columns, int64_t step) const {
    columns.step.push_back(step);
    columns.tokens.push_back(tokens_);
    columns.hours.push_back((earlier_seconds_ + last_.elapsed_seconds) / kSecondsAnHour);
  }

  void add_training(const nlohmann::json& line, int64_t step) {
    const double own = number_or_nan(line, "sequences_per_step");  // of a run with batch_size_schedule
    const double seconds = number_or_nan(line, "steps") * (std::isnan(own) ? global_batch_size_ : own) /
                           number_or_nan(line, "sequences_per_second");
    if (const double tokens = seconds * number_or_nan(line, "tokens_per_second"); std::isfinite(tokens))
      tokens_ += tokens;
    Columns& columns = series_.training;
    begin_row(columns, step);
    for (const auto& [name, value] : line.items()) {
      if (value.is_number() && name != "step" && name != "steps" && name != "time" && name != "elapsed_seconds")
        set(columns, name, value.get<double>());
    }
    if (const double skipped = number_or_nan(line, "skipped_steps"); !std::isnan(skipped))
      columns.values["skipped_steps"].back() = skipped_ += skipped;
    if (const double waiting = number_or_nan(line, "data_wait_seconds") / seconds; std::isfinite(waiting))
      set(columns, "waiting", waiting);
    if (const auto tokens = line.find("tokens_per_rank"); tokens != line.end() && tokens->is_object()) {
      set(columns, "tokens_least", number_or_nan(*tokens, "least"));
      set(columns, "tokens_most", number_or_nan(*tokens, "most"));
    }
    if (const auto sources = line.find("sources"); sources != line.end() && sources->is_object()) {
      for (const auto& [name, source] : sources->items()) {
        if (source.is_object()) set(columns, "source " + name, number_or_nan(source, "mlm_loss"));
      }
    }
  }

  static constexpr double kSecondsAnHour = 3600;
  const double global_batch_size_;
  RunSeries series_;
  double tokens_ = 0, skipped_ = 0;
  double earlier_seconds_ = 0;                             // of the processes before this one
  LineTime last_ = {.time = kNone, .elapsed_seconds = 0};  // of the line before
};

}  // namespace

double Columns::last(const std::string& name) const {
  const auto found = values.find(name);
  if (found == values.end()) return kNone;
  const auto value =
      std::find_if(found->second.rbegin(), found->second.rend(), [](double v) { return !std::isnan(v); });
  return value == found->second.rend() ? kNone : *value;
}

RunSeries series_of(const std::vector<JsonLine>& metrics, int64_t global_batch_size) {
  SeriesMaker maker(global_batch_size);
  for (const JsonLine& line : metrics) maker.add(line);
  return maker.finish();
}

std::vector<size_t> evenly(size_t count, size_t most) {
  std::vector<size_t> places;
  const size_t taken = std::min(count, most);
  for (size_t i = 0; i < taken; ++i) places.push_back(taken == count ? i : i * (count - 1) / (taken - 1));
  return places;
}

std::vector<size_t> places_to_draw(const Columns& columns, const std::string& by, size_t most) {
  const size_t count = columns.size();
  const auto found = columns.values.find(by);
  if (count <= most || found == columns.values.end()) return evenly(count, most);
  const std::vector<double>& values = found->second;
  const auto beats = [&](size_t a, size_t b, const auto& before) {  // NaN beats nothing, and all beats NaN
    return before(values[a], values[b]) || (std::isnan(values[b]) && !std::isnan(values[a]));
  };
  std::vector<size_t> places;
  const size_t parts = most / 2;
  for (size_t part = 0; part < parts; ++part) {
    size_t least = part * count / parts, largest = least;
    for (size_t i = least; i < (part + 1) * count / parts; ++i) {
      if (beats(i, least, std::less<>())) least = i;
      if (beats(i, largest, std::greater<>())) largest = i;
    }
    places.push_back(std::min(least, largest));
    if (least != largest) places.push_back(std::max(least, largest));
  }
  if (places.back() != count - 1) places.push_back(count - 1);
  return places;
}

}  // namespace bert
