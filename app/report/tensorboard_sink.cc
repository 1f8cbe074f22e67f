#include <optional>

#include "app/report/event_file.h"
#include "app/report/file_sinks.h"
#include "app/report/line_file.h"
#include "data/io/files.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// `object` as a block of code in Markdown.
std::string code_block(const Json& object) {
  return "```\n" + object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n```";
}

class TensorBoardSink : public Sink {
 public:
  TensorBoardSink(const std::string& run_directory, int64_t saved)
      : directory_(run_directory + "/report/tensorboard"), saved_(saved) {}

  void begin(const RunFacts& facts) override {
    make_directories(directory_);
    const std::string path = directory_ + "/" + event_file_name(facts.init_time, facts.host, facts.pid);
    file_.emplace(path, facts.init_time, saved_ >= 0 ? std::optional(saved_ + 1) : std::nullopt);
    SummaryValues values;
    values.add_text("args/text_summary", code_block(facts.config));
    if (facts.config.contains("model")) values.add_text("model_config/text_summary", code_block(facts.config["model"]));
    values.add_session_start(flat(facts.config), facts.run_directory, facts.init_time);
    file_->write(facts.init_time, facts.step, values);
  }

  void interval(const IntervalReport& report) override { write(report.line, figures_of(report.line), "train/"); }
  void evaluation(const EvaluationLine& evaluation) override {
    write(evaluation.line, evaluation.line.at("evaluation"), "eval/");
  }

  void distributions(int64_t step, double time, const std::vector<TensorDistribution>& tensors) override {
    if (!file_) return;
    SummaryValues values;
    for (const TensorDistribution& tensor : tensors) {
      if (tensor.weights.count > 0) values.add_histogram("weights/" + tensor.name, tensor.weights);
      if (tensor.gradients.count > 0) values.add_histogram("gradients/" + tensor.name, tensor.gradients);
    }
    file_->write(time, step, values);
  }

  void end(const RunEnd& end) override {
    if (!file_) return;
    SummaryValues values;
    if (end.steps > 0 && end.seconds > 0) {
      values.add_scalar("train/train_runtime", end.seconds);
      values.add_scalar("train/train_samples_per_second", end.sequences / end.seconds);
      values.add_scalar("train/train_steps_per_second", static_cast<double>(end.steps) / end.seconds);
      values.add_scalar("train/train_loss", end.mean_loss);
    }
    values.add_session_end(end.finished, end.time);
    file_->write(end.time, end.step, values);
  }

 private:
  void write(const Json& line, const Json& figures, const std::string& prefix) {
    if (!file_) return;
    SummaryValues values;
    visit_numbers(figures, '/',
                  [&](const std::string& name, double value) { values.add_scalar(prefix + name, value); });
    file_->write(line.at("time").get<double>(), line.at("step").get<int64_t>(), values);
  }

  const std::string directory_;
  const int64_t saved_;
  std::optional<EventFile> file_;
};

}  // namespace

std::unique_ptr<Sink> make_tensorboard_sink(const std::string& run_directory, int64_t saved) {
  return std::make_unique<TensorBoardSink>(run_directory, saved);
}

}  // namespace bert
