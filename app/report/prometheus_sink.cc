#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "app/http/prometheus_text.h"
#include "app/http/server.h"
#include "app/http/types.h"
#include "app/net/socket.h"
#include "app/report/file_sinks.h"
#include "data/io/files.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMaxSteps = "bert_train_max_steps";

/// `name` with the characters that a metric's name may have.
std::string metric_name(const std::string& name) {
  std::string result = name;
  for (char& c : result) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return result;
}

/// `value` as Prometheus spells it.
std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// The newest text. The threads of the server read it.
class NewestText : public HttpHandler {
 public:
  void set(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }

  void check(const ServerRequest& request) override {
    if (request.path != "/metrics") throw HttpError(404, "not found; the figures are at /metrics");
    if (request.method != "GET" && request.method != "HEAD")
      throw HttpError(405, "expected GET", {{"Allow", "GET, HEAD"}});
  }
  ServerResponse answer(const ServerRequest& /*request*/) override {
    const std::lock_guard lock(mutex_);
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = text_};
  }
  void finished(const std::string& /*path*/, int /*status*/, double /*seconds*/) override {}

 private:
  std::mutex mutex_;
  std::string text_;
};

class PrometheusSink : public Sink {
 public:
  PrometheusSink(std::string run, int64_t port) : run_(std::move(run)), port_(port) {}

  void begin(const RunFacts& facts) override {
    values_["bert_train_step"][labels()] = static_cast<double>(facts.step);
    values_[kMaxSteps][labels()] = static_cast<double>(facts.max_steps);
    publish();
    constexpr int64_t kMostConnections = 8;
    server_.emplace(listen_on({.host = "127.0.0.1", .port = port_}, "set another report_port, or 0 for none"),
                    kMostConnections, ConnectionLimits(), text_, counts_);
  }
  void interval(const IntervalReport& report) override { take("bert_train_", report.line, figures_of(report.line)); }
  void evaluation(const EvaluationLine& evaluation) override {
    take("bert_eval_", evaluation.line, evaluation.line.at("evaluation"));
  }

 private:
  /// The labels of a figure, with a source unless it is "".
  [[nodiscard]] std::string labels(const std::string& source = "") const {
    return fmt::format("{{run={}{}}}", metric_label(run_), source.empty() ? "" : ",source=" + metric_label(source));
  }

  /// Replaces the figures whose names begin with `prefix`: one that the new line lacks is not kept.
  void take(const std::string& prefix, const Json& line, Json figures) {
    std::erase_if(values_, [&](const auto& of_name) {
      return of_name.first.starts_with(prefix) && of_name.first != kMaxSteps;  // no line has max_steps
    });
    values_[prefix + "step"][labels()] = line.at("step").get<double>();
    values_[prefix + "time_seconds"][labels()] = line.at("time").get<double>();
    if (const auto sources = figures.find("sources"); sources != figures.end()) {
      for (const auto& [source, of_source] : sources->items()) put(prefix + "source_", of_source, labels(source));
      figures.erase("sources");
    }
    put(prefix, figures, labels());
    publish();
  }

  void put(const std::string& prefix, const Json& figures, const std::string& labels) {
    visit_numbers(figures, '_',
                  [&](const std::string& name, double value) { values_[prefix + metric_name(name)][labels] = value; });
  }

  void publish() {
    std::string text;
    for (const auto& [name, of_labels] : values_) {
      text += metric_header(name, "The newest value of this run; the keys are those of metrics.jsonl.", "gauge");
      for (const auto& [labels, value] : of_labels) text += fmt::format("{}{} {}\n", name, labels, value_text(value));
    }
    text_.set(std::move(text));
  }

  const std::string run_;
  const int64_t port_;
  std::map<std::string, std::map<std::string, double>> values_;  // by name and labels
  NewestText text_;
  ConnectionCounts counts_;
  std::optional<HttpServer> server_;  // last member: its threads use the others
};

}  // namespace

std::unique_ptr<Sink> make_prometheus_sink(const std::string& run, int64_t port) {
  return std::make_unique<PrometheusSink>(run, port);
}

}  // namespace bert
