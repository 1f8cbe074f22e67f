#include "app/report/view/run_watch.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "app/report/metrics.h"
#include "app/report/view/run_files.h"
#include "app/report/view/sparkline.h"
#include "app/system/console.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

using Json = nlohmann::json;

constexpr size_t kLabelColumns = 12;  // of the names at the left of the screen

Json parse_object(const std::string& text) {
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_object() ? value : Json();
}

/// The member `key` as text for a terminal: "" if it is absent.
std::string word(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "";
  return printable(
      found->is_string() ? found->get<std::string>() : found->dump(-1, ' ', false, Json::error_handler_t::replace), "");
}

int64_t integer(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

/// The beginning of a UTF-8 text, at most `columns` characters.
std::string cut(const std::string& text, size_t columns) {
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 && ++characters > columns) return text.substr(0, i);
  }
  return text;
}

std::string labelled(const char* label, const std::string& text) {
  return text.empty() ? "" : fmt::format("{:<{}}{}", label, kLabelColumns, text);
}

/// " NAME VALUE" with `format` such as "{:.1f}" for a number that the line has.
void append(std::string& text, const Json& line, const char* key, const char* format) {
  const double value = number_or_nan(line, key);
  if (std::isnan(value)) return;
  text += (text.empty() ? "" : "  ") + fmt::format(fmt::runtime(format), value);
}

std::string figures_of(const Json& evaluation) {
  std::string text;
  for (const auto& [name, value] : evaluation.items()) {
    if (value.is_number_float()) text += fmt::format("  {} {:.4g}", printable(name, ""), value.get<double>());
  }
  return text;
}

std::string rate_of(const Json& training) {
  std::string text;
  append(text, training, "sequences_per_second", "{:.4g} sequences/s");
  append(text, training, "tokens_per_second", "{:.0f} tokens/s");
  if (const double mfu = number_or_nan(training, "mfu"); mfu > 0) text += fmt::format("  mfu {:.1f} %", 100 * mfu);
  return text;
}

std::string balance_of(const Json& training) {
  const auto tokens = training.find("tokens_per_rank");
  if (tokens == training.end() || !tokens->is_object()) return "";
  const double least = number_or_nan(*tokens, "least"), most = number_or_nan(*tokens, "most");
  if (std::isnan(least) || !(most > 0)) return "";
  return fmt::format("{:.0f} to {:.0f} tokens, the least {:.1f} % of the most", least, most, 100 * least / most);
}

std::string bytes_text(int64_t bytes) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  const auto value = static_cast<double>(bytes);
  return value < kGiB ? fmt::format("{:.0f} MiB", value / kMiB) : fmt::format("{:.1f} GiB", value / kGiB);
}

}  // namespace

bool WatchedMachine::lives(int64_t pid, double begun) {
  if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return false;
  std::ifstream stat_file(fmt::format("/proc/{}/stat", pid)), system("/proc/stat");
  std::string stat((std::istreambuf_iterator<char>(stat_file)), {}), key;
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return true;  // no right to see it
  constexpr int kFieldsBetween = 19;  // from the state, field 3, to the start time, field 22: man proc_pid_stat
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return false;
  for (int i = 1; i < kFieldsBetween; ++i) fields >> field;
  double ticks = 0, boot = 0;
  fields >> ticks;
  for (std::string line; std::getline(system, line);) {
    if (line.starts_with("btime ")) boot = std::stod(line.substr(6));
  }
  constexpr double kSlack = 2;  // seconds; btime is rounded
  return boot == 0 || boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK)) <= begun + kSlack;
}

int64_t WatchedMachine::memory_of(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return file ? resident * sysconf(_SC_PAGESIZE) : 0;
}

RunWatch::RunWatch(std::string run_directory, std::string host)
    : directory_(std::move(run_directory)),
      host_(std::move(host)),
      metrics_(directory_ + "/metrics.jsonl"),
      attempts_(directory_ + "/attempts.jsonl") {}

void RunWatch::read_config() {
  try {
    config_ = parse_object(read_file(directory_ + "/config.json"));
  } catch (const InputMissing&) {  // the run has just begun
  }
}

void RunWatch::forget_metrics() {
  losses_.clear();
  recent_.clear();
  skipped_ = 0;
  training_ = evaluation_ = nullptr;
}

std::vector<std::string> RunWatch::update() {
  if (config_.is_null()) read_config();
  std::vector<TimedLine> lines;
  const auto each = [&](const std::vector<std::string>& texts, bool anew, double& newest, const auto& take) {
    const double newest_before = newest;
    for (const std::string& text : texts) {
      const Json line = parse_object(text);
      if (line.is_null()) {
        ++damaged_;
        continue;
      }
      const double known = number_or_nan(line, "time"), time = std::isnan(known) ? 0 : known;
      std::string words = take(line);
      if (anew && time <= newest_before) continue;  // it was in the file before
      newest = std::max(newest, time);
      lines.push_back({time, std::move(words)});
    }
  };
  // The reverse of the order of writing: a recorded end is after the last line of metrics.jsonl.
  bool attempts_anew = false, metrics_anew = false;
  const std::vector<std::string> attempts = attempts_.read(attempts_anew);
  const std::vector<std::string> metrics = metrics_.read(metrics_anew);
  if (metrics_anew) forget_metrics();
  each(metrics, metrics_anew, newest_metrics_, [this](const Json& line) { return add_metrics(line); });
  each(attempts, attempts_anew, newest_attempts_, [this](const Json& line) { return add_attempt(line); });
  std::ranges::stable_sort(lines, [](const TimedLine& a, const TimedLine& b) { return a.time < b.time; });
  std::vector<std::string> result;
  result.reserve(lines.size());
  for (TimedLine& line : lines) result.push_back(std::move(line.text));
  return result;
}

std::string RunWatch::add_attempt(const Json& line) {
  if (word(line, "event") != "begin") {
    end_ = line;
    return fmt::format("ends at step {} with exit code {}: {}", integer(line, "step"), word(line, "exit_code"),
                       word(line, "reason"));
  }
  begin_ = line;
  end_ = nullptr;
  read_config();
  return fmt::format("begins at step {} on {}: {}, {} ranks", integer(line, "step"), word(line, "host"),
                     word(line, "device"), word(line, "world_size"));
}

std::string RunWatch::add_metrics(const Json& line) {
  constexpr size_t kRecent = 20;  // lines that the time left is estimated from
  const int64_t step = integer(line, "step");
  if (const auto figures = line.find("evaluation"); figures != line.end() && figures->is_object()) {
    evaluation_ = line;
    return fmt::format("step {}  evaluation{}", step, figures_of(*figures));
  }
  training_ = line;
  losses_.push_back(number_or_nan(line, "loss"));
  if (const double skipped = number_or_nan(line, "skipped_steps"); skipped > 0) skipped_ += skipped;
  const LineTime at = time_of(line);
  const bool known = !std::isnan(at.time) && !std::isnan(at.elapsed_seconds);
  if (!recent_.empty() && (!known || is_of_later_process(at, recent_.back().at))) recent_.clear();
  if (known) recent_.push_back({step, at});
  if (recent_.size() > kRecent) recent_.erase(recent_.begin());
  return training_line();
}

int64_t RunWatch::process_here() const {
  return !begin_.is_null() && word(begin_, "host") == host_ ? integer(begin_, "pid") : 0;
}

std::optional<int> RunWatch::exit_code(std::string& why) const {
  why.clear();
  if (!end_.is_null()) return static_cast<int>(integer(end_, "exit_code"));
  if (begin_.is_null()) {
    if (training_.is_null() && evaluation_.is_null()) return std::nullopt;
    try {
      const int64_t last = last_step_of(config_);
      const Json summary = parse_object(read_file(directory_ + "/summary.json"));
      if (last > 0 && integer(summary.is_null() ? Json::object() : summary, "steps") >= last) return kOk;
    } catch (const InputMissing&) {  // not finished
    }
    return std::nullopt;
  }
  const int64_t pid = process_here();
  if (pid == 0 || WatchedMachine::lives(pid, number_or_nan(begin_, "time"))) return std::nullopt;
  why = fmt::format("process {} of the run is gone, and has not recorded its end: it was killed, or has crashed", pid);
  return kInternal;
}

std::optional<double> RunWatch::seconds_left() const {
  const int64_t last = last_step_of(config_);
  if (last == 0 || training_.is_null()) return std::nullopt;
  const auto left = static_cast<double>(std::max<int64_t>(0, last - integer(training_, "step")));
  if (recent_.size() > 1 && recent_.back().step > recent_.front().step) {
    const auto steps = static_cast<double>(recent_.back().step - recent_.front().step);
    return left * (recent_.back().at.time - recent_.front().at.time) / steps;
  }
  const double rate = number_or_nan(training_, "sequences_per_second");
  if (!(rate > 0)) return std::nullopt;
  return left * static_cast<double>(setting(config_, "/global_batch_size")) / rate;
}

std::string RunWatch::training_line() const {
  const int64_t last = last_step_of(config_);
  std::string text = fmt::format("step {}{}", integer(training_, "step"), last > 0 ? fmt::format("/{}", last) : "");
  append(text, training_, "loss", "loss {:.4f}");
  append(text, training_, "learning_rate", "lr {:.3g}");
  append(text, training_, "grad_norm", "|g| {:.3f}");
  append(text, training_, "sequences_per_second", "{:.1f} seq/s");
  if (skipped_ > 0) text += fmt::format("  skipped {:.0f}", skipped_);
  if (const auto left = seconds_left()) text += "  eta " + format_duration(*left);
  return text;
}

std::string RunWatch::title() const {
  std::string text = printable(directory_, "");
  if (begin_.is_null()) return text;
  text += fmt::format("  on {}, {}", word(begin_, "host"), word(begin_, "device"));
  if (const std::string ranks = word(begin_, "world_size"); ranks != "1") text += fmt::format(", {} ranks", ranks);
  return text + ", " + word(begin_, "precision");
}

std::string RunWatch::progress(size_t columns) const {
  const int64_t step = integer(training_, "step"), last = last_step_of(config_);
  if (last == 0) return fmt::format("step {}", step);
  const double share = std::min(1.0, static_cast<double>(step) / static_cast<double>(last));
  std::string text = fmt::format(" step {}/{}  {:.1f} %", step, last, 100 * share);
  if (const auto left = seconds_left(); left && end_.is_null()) text += "  eta " + format_duration(*left);
  constexpr size_t kLongestBar = 32;
  const size_t cells = std::min(kLongestBar, columns > text.size() ? columns - text.size() : 0);
  std::string bar;
  for (size_t i = 0; i < cells; ++i) bar += static_cast<double>(i) < share * static_cast<double>(cells) ? "█" : "░";
  return bar + text;
}

std::string RunWatch::state(double now) const {
  if (!end_.is_null()) return "ended with exit code " + word(end_, "exit_code") + ": " + word(end_, "reason");
  const double time = number_or_nan(training_.is_null() ? begin_ : training_, "time");
  if (std::isnan(time)) return "waits for the first line of metrics.jsonl";
  std::string text = fmt::format("last line {} ago", format_duration(std::max(0.0, now - time)));
  if (damaged_ > 0) text += fmt::format(", {} damaged lines passed over", damaged_);
  return text;
}

std::vector<std::string> RunWatch::screen(size_t columns, double now) const {
  std::vector<std::string> lines = {title()};
  const auto add = [&](const char* label, const std::string& text) {
    if (!text.empty()) lines.push_back(labelled(label, text));
  };
  if (!training_.is_null()) {
    lines.push_back(progress(columns));
    constexpr size_t kLossColumns = 10;
    const size_t room = columns > kLabelColumns + kLossColumns ? columns - kLabelColumns - kLossColumns : 0;
    std::string loss;
    append(loss, training_, "loss", "{:<8.4f}");
    add("loss", loss.empty() ? "" : loss + "  " + sparkline(losses_, std::min<size_t>(room, 60)));
    add("rate", rate_of(training_));
    std::string optimizer;
    append(optimizer, training_, "learning_rate", "lr {:.3g}");
    append(optimizer, training_, "grad_norm", "|g| {:.3f}");
    append(optimizer, training_, "loss_scale", "loss scale {:g}");
    add("optimizer", optimizer + fmt::format("  skipped {:.0f}", skipped_));
    add("ranks", balance_of(training_));
    std::string data;
    append(data, training_, "data_wait_seconds", "waited {:.2g} s");
    if (const double fill = number_or_nan(training_, "fill"); fill > 0)
      data += fmt::format("  fill {:.1f} %", 100 * fill);
    add("data", data);
  }
  if (!evaluation_.is_null())
    add("evaluation", fmt::format("step {}{}", integer(evaluation_, "step"), figures_of(evaluation_["evaluation"])));
  if (const int64_t pid = process_here(); pid > 0 && end_.is_null()) {
    if (const int64_t bytes = WatchedMachine::memory_of(pid); bytes > 0)
      add("memory", fmt::format("{} (process {})", bytes_text(bytes), pid));
  }
  add("state", state(now));
  for (std::string& line : lines) line = cut(line, columns);
  return lines;
}

}  // namespace bert
