// TensorBoard's event files: records (data/io/record_frame.h) of protocol buffer messages.
// Source: tensorflow/core/util/event.proto and framework/summary.proto; tensorboard/plugins/{hparams,text}.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "app/report/tensor_histogram.h"
#include "data/io/files.h"

namespace bert {

/// The values of one Summary message, in their wire format.
class SummaryValues {
 public:
  void add_scalar(std::string_view tag, double value);
  void add_histogram(std::string_view tag, const TensorHistogram& histogram);
  /// A text, which TensorBoard shows as Markdown. `tag` ends with "/text_summary", as torch's and TensorFlow's writers
  /// have it.
  void add_text(std::string_view tag, std::string_view markdown);
  /// The begin of a session of the hparams plugin. `values`: an object of numbers, booleans and strings. `group` names
  /// the trial: sessions of one group are one row of its table.
  void add_session_start(const nlohmann::ordered_json& values, std::string_view group, double time);
  /// The end of that session.
  void add_session_end(bool success, double time);

  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// An event file. Each write appends whole records.
class EventFile {
 public:
  /// Creates the file `path` with its first record, the version of the format. With `purge_from`, the second one says
  /// that a run starts again at that step: TensorBoard then drops the events of earlier files from that step on, which
  /// a killed process has left. Throws IoError.
  EventFile(const std::string& path, double time, std::optional<int64_t> purge_from);

  void write(double time, int64_t step, const SummaryValues& values);

 private:
  AppendedFile file_;
};

/// The name of an event file, such as events.out.tfevents.1700000000.host.4711.0, as torch's writer composes it.
std::string event_file_name(double time, const std::string& host, int64_t pid);

}  // namespace bert
