#include <filesystem>
#include <optional>

#include "app/report/file_sinks.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// A MetricsFile that is created with its first line.
class LateFile {
 public:
  LateFile(std::string path, int64_t saved) : path_(std::move(path)), saved_(saved) {
    if (std::filesystem::exists(path_)) file_.emplace(path_, saved_);
  }
  void write(const Json& line) {
    if (!file_) file_.emplace(path_, saved_);
    file_->write(line);
  }

 private:
  const std::string path_;
  const int64_t saved_;
  std::optional<MetricsFile> file_;
};

class JsonlSink : public Sink {
 public:
  JsonlSink(const std::string& directory, int64_t saved)
      : metrics_(directory + "/metrics.jsonl", saved),
        layers_(directory + "/layers.jsonl", saved),
        answers_(directory + "/answers.jsonl", saved) {}

  void interval(const IntervalReport& report) override { metrics_.write(report.line); }
  void evaluation(const EvaluationLine& evaluation) override { metrics_.write(evaluation.line); }
  void layers(const Json& line) override { layers_.write(line); }
  void answers(const Json& line) override { answers_.write(line); }

 private:
  MetricsFile metrics_;
  LateFile layers_, answers_;
};

}  // namespace

std::unique_ptr<Sink> make_jsonl_sink(const std::string& run_directory, int64_t saved) {
  return std::make_unique<JsonlSink>(run_directory, saved);
}

}  // namespace bert
