#include "app/report/console_sink.h"

#include <utility>

namespace bert {

ConsoleSink::ConsoleSink(std::function<std::string()> activity, Progress::Record record)
    : progress_(std::move(activity), std::move(record)) {}

void ConsoleSink::training_begins(const TrainingBegin& begin) { progress_.start(begin.step, begin.last_step); }

void ConsoleSink::interval(const IntervalReport& report) { progress_.update(report.metrics); }

}  // namespace bert
