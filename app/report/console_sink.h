// The numbers of a run for people: progress and messages on standard error.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "app/report/sink.h"

namespace bert {

class ConsoleSink : public Sink {
 public:
  /// The arguments of Progress: the name of the activity of this moment, and a function that gets every line that is
  /// shown.
  ConsoleSink(std::function<std::string()> activity, Progress::Record record)
      : progress_(std::move(activity), std::move(record)) {}

  void training_begins(const TrainingBegin& begin) override { progress_.start(begin.step, begin.last_step); }
  void interval(const IntervalReport& report) override { progress_.update(report.metrics); }

  /// Prints a line above the bar.
  void message(const std::string& text) { progress_.message(text); }
  /// `step` steps have been tried. Shows nothing.
  void reached(int64_t step) { progress_.reached(step); }
  /// Ends the line of progress.
  void finish() { progress_.finish(); }

 private:
  Progress progress_;
};

}  // namespace bert
