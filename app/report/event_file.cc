#include "app/report/event_file.h"

#include <fmt/format.h>

#include <vector>

#include "data/io/record_frame.h"
#include "data/io/wire.h"

namespace bert {
namespace {

// The numbers of the fields, by message.
namespace event {
enum : uint64_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
}
namespace session_log {
enum : uint64_t { kStatus = 1, kMessage = 3 };
constexpr int64_t kStart = 1;
}  // namespace session_log
namespace summary {
enum : uint64_t { kValue = 1 };
}
namespace value {
enum : uint64_t { kTag = 1, kSimpleValue = 2, kHistogram = 5, kTensor = 8, kMetadata = 9 };
}
namespace histogram {
enum : uint64_t { kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7 };
}
namespace metadata {
enum : uint64_t { kPluginData = 1 };
}
namespace plugin_data {
enum : uint64_t { kPluginName = 1, kContent = 2 };
}
namespace tensor {
enum : uint64_t { kDtype = 1, kShape = 2, kStringValue = 8 };
constexpr int64_t kFloat = 1, kString = 7;
}  // namespace tensor
namespace tensor_shape {
enum : uint64_t { kDim = 2 };
}
namespace dimension {
enum : uint64_t { kSize = 1 };
}
namespace hparams {  // HParamsPluginData
enum : uint64_t { kSessionStart = 3, kSessionEnd = 4 };
}
namespace session_start {
enum : uint64_t { kHparams = 1, kGroupName = 4, kStartTime = 5 };
}
namespace session_end {
enum : uint64_t { kStatus = 1, kEndTime = 2 };
constexpr int64_t kSuccess = 1, kFailure = 2;
}  // namespace session_end
namespace map_entry {
enum : uint64_t { kKey = 1, kValue = 2 };
}
namespace any_value {  // google.protobuf.Value
enum : uint64_t { kNumber = 2, kString = 3, kBool = 4 };
}

// Fields of proto3 with the value 0, or without bytes, are left out, as protobuf's own writer does.
void append_number(std::string& message, uint64_t field, int64_t number) {
  if (number != 0) wire::append_number(message, field, number);
}
void append_double(std::string& message, uint64_t field, double number) {
  if (number != 0) wire::append_double(message, field, number);
}
void append_bytes(std::string& message, uint64_t field, std::string_view bytes) {
  if (!bytes.empty()) wire::append_bytes(message, field, bytes);
}

/// A TensorProto of one dimension, without its values.
std::string tensor_of(int64_t dtype, int64_t size) {
  std::string dimension, shape, tensor;
  append_number(dimension, dimension::kSize, size);
  wire::append_bytes(shape, tensor_shape::kDim, dimension);
  wire::append_number(tensor, tensor::kDtype, dtype);
  wire::append_bytes(tensor, tensor::kShape, shape);
  return tensor;
}

std::string metadata_of(std::string_view plugin, std::string_view content) {
  std::string data, metadata;
  wire::append_bytes(data, plugin_data::kPluginName, plugin);
  append_bytes(data, plugin_data::kContent, content);
  wire::append_bytes(metadata, metadata::kPluginData, data);
  return metadata;
}

/// Appends a value whose message has `tag` and then `fields`.
void append_value(std::string& values, std::string_view tag, std::string_view fields) {
  std::string message;
  wire::append_bytes(message, value::kTag, tag);
  message += fields;
  wire::append_bytes(values, summary::kValue, message);
}

/// Appends a value of the hparams plugin. Its tensor is empty: the content of the metadata is all that counts.
void append_hparams(std::string& values, std::string_view tag, uint64_t field, std::string_view message) {
  std::string content, fields;
  wire::append_bytes(content, field, message);
  wire::append_bytes(fields, value::kTensor, tensor_of(tensor::kFloat, 0));
  wire::append_bytes(fields, value::kMetadata, metadata_of("hparams", content));
  append_value(values, tag, fields);
}

void append_packed(std::string& message, uint64_t field, const std::vector<double>& values) {
  append_bytes(message, field, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
}

std::string any_value_of(const nlohmann::ordered_json& json) {
  std::string message;
  if (json.is_boolean()) {
    wire::append_number(message, any_value::kBool, json.get<bool>() ? 1 : 0);
  } else if (json.is_number()) {
    wire::append_double(message, any_value::kNumber, json.get<double>());
  } else {
    wire::append_bytes(message, any_value::kString, json.is_string() ? json.get<std::string>() : json.dump());
  }
  return message;
}

std::string event_of(double time, int64_t step) {
  std::string message;
  append_double(message, event::kWallTime, time);
  append_number(message, event::kStep, step);
  return message;
}

}  // namespace

void SummaryValues::add_scalar(std::string_view tag, double number) {
  std::string fields;
  wire::append_float(fields, value::kSimpleValue, static_cast<float>(number));
  append_value(bytes_, tag, fields);
}

void SummaryValues::add_histogram(std::string_view tag, const TensorHistogram& histogram) {
  std::vector<double> limits, counts;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    limits.push_back(histogram.bound(i));
    counts.push_back(static_cast<double>(histogram.counts[i]));
  }
  std::string message, fields;
  append_double(message, histogram::kMin, histogram.least);
  append_double(message, histogram::kMax, histogram.most);
  append_double(message, histogram::kNum, static_cast<double>(histogram.count));
  append_double(message, histogram::kSum, histogram.sum);
  append_double(message, histogram::kSumSquares, histogram.sum_of_squares);
  append_packed(message, histogram::kBucketLimit, limits);
  append_packed(message, histogram::kBucket, counts);
  wire::append_bytes(fields, value::kHistogram, message);
  append_value(bytes_, tag, fields);
}

void SummaryValues::add_text(std::string_view tag, std::string_view markdown) {
  std::string text = tensor_of(tensor::kString, 1), fields;
  wire::append_bytes(text, tensor::kStringValue, markdown);
  wire::append_bytes(fields, value::kTensor, text);
  wire::append_bytes(fields, value::kMetadata, metadata_of("text", ""));
  append_value(bytes_, tag, fields);
}

void SummaryValues::add_session_start(const nlohmann::ordered_json& values, std::string_view group, double time) {
  std::string message;
  for (const auto& [key, json] : values.items()) {
    std::string entry;
    wire::append_bytes(entry, map_entry::kKey, key);
    wire::append_bytes(entry, map_entry::kValue, any_value_of(json));
    wire::append_bytes(message, session_start::kHparams, entry);
  }
  append_bytes(message, session_start::kGroupName, group);
  append_double(message, session_start::kStartTime, time);
  append_hparams(bytes_, "_hparams_/session_start_info", hparams::kSessionStart, message);
}

void SummaryValues::add_session_end(bool success, double time) {
  std::string message;
  wire::append_number(message, session_end::kStatus, success ? session_end::kSuccess : session_end::kFailure);
  append_double(message, session_end::kEndTime, time);
  append_hparams(bytes_, "_hparams_/session_end_info", hparams::kSessionEnd, message);
}

EventFile::EventFile(const std::string& path, double time, std::optional<int64_t> purge_from) : file_(path) {
  std::string version = event_of(time, purge_from.value_or(0)), bytes;
  wire::append_bytes(version, event::kFileVersion, "brain.Event:2");
  append_record(bytes, version);
  if (purge_from) {
    std::string restart = event_of(time, *purge_from), log;
    wire::append_number(log, session_log::kStatus, session_log::kStart);
    wire::append_bytes(log, session_log::kMessage, fmt::format("continues from step {}", *purge_from - 1));
    wire::append_bytes(restart, event::kSessionLog, log);
    append_record(bytes, restart);
  }
  file_.write(bytes);
}

void EventFile::write(double time, int64_t step, const SummaryValues& values) {
  std::string message = event_of(time, step), bytes;
  wire::append_bytes(message, event::kSummary, values.bytes());
  append_record(bytes, message);
  file_.write(bytes);
}

std::string event_file_name(double time, const std::string& host, int64_t pid) {
  return fmt::format("events.out.tfevents.{:010}.{}.{}.0", static_cast<int64_t>(time), host, pid);
}

}  // namespace bert
