#include "data/formats/child_examples.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <new>

#include "data/io/io_errors.h"

namespace bert {
namespace {

// What passes through the pipe. Numbers are int64_t; texts and lists have their length before them.
//   kFacts, size, the three numbers of ExampleFileInfo, checksum, number of parameters, their names and values
//   kExample, bits of the share, segment_b_start, is_random_next, input_ids, masked_positions, masked_ids
//   kEnd; or kError and a message, wherever one of the others is expected
enum Message : int64_t { kFacts = 1, kExample, kEnd, kError };

constexpr int64_t kMostTokens = 65535;  // as in a shard
constexpr int64_t kMostTextBytes = int64_t{16} << 20;
constexpr int64_t kMostParameters = 10000;
constexpr int64_t kMostMemory = int64_t{2} << 30;  // of the child
constexpr int64_t kSilentMs = 60000;

int64_t size_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return status.st_size;
  if (errno == ENOENT || errno == ENOTDIR) throw InputMissing(path + ": no such file");
  throw_io_error(path, "open", errno);
}

}  // namespace

// ---- the child ----

void ExampleSender::append(const void* data, size_t bytes) {
  constexpr size_t kBufferBytes = size_t{64} << 10;  // one write
  buffer_.append(static_cast<const char*>(data), bytes);
  if (buffer_.size() >= kBufferBytes) flush();
}

void ExampleSender::flush() {
  write_(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void ExampleSender::number(int64_t value) { append(&value, sizeof value); }

void ExampleSender::text(const std::string& value) {
  number(static_cast<int64_t>(value.size()));
  append(value.data(), value.size());
}

void ExampleSender::facts(const ExampleFileInfo& info, int64_t size) {
  for (const int64_t each : {int64_t{kFacts}, size, info.max_seq_length, info.max_predictions_per_seq, info.vocab_size})
    number(each);
  text(info.vocabulary_checksum);
  number(static_cast<int64_t>(info.parameters.size()));
  for (const auto& [key, value] : info.parameters) {
    text(key);
    text(value);
  }
}

void ExampleSender::example(const PretrainingExample& example, double share) {
  number(kExample);
  append(&share, sizeof share);
  number(example.segment_b_start);
  number(example.is_random_next ? 1 : 0);
  for (const auto* values : {&example.input_ids, &example.masked_positions, &example.masked_ids}) {
    number(static_cast<int64_t>(values->size()));
    append(values->data(), values->size() * sizeof(int32_t));
  }
}

// ---- the parent ----

ChildReader::ChildReader(const std::string& path, int64_t seconds_per_megabyte, const Parse& parse)
    : path_(path),
      child_(path,
             {.memory_bytes = kMostMemory,
              .processor_seconds = 1 + size_of(path) * seconds_per_megabyte / 1000000,
              .silent_ms = kSilentMs},
             [&](const BoundedChild::Write& write) {
               ExampleSender sender(write);
               try {
                 parse(sender);
                 sender.number(kEnd);
               } catch (const std::bad_alloc&) {
                 throw;
               } catch (const std::exception& error) {
                 sender.number(kError);
                 sender.text(error.what());
               }
               sender.flush();
             }) {
  read_facts();
}

bool ChildReader::next(PretrainingExample& example) {
  if (ended_) return false;
  const int64_t message = take_message();
  if (message == kEnd && (size_ < 0 || read_ == size_)) {
    ended_ = true;
    share_ = 1;
    return false;
  }
  if (message != kExample || read_ == size_) throw bad("the process that parses the file gave answers out of order");
  take(&share_, sizeof share_);
  share_ = std::isfinite(share_) ? std::clamp(share_, 0.0, 1.0) : 0;
  example.segment_b_start = static_cast<int32_t>(number());
  example.is_random_next = number() != 0;
  for (auto* values : {&example.input_ids, &example.masked_positions, &example.masked_ids}) numbers(*values);
  try {
    validate(example, info_.vocab_size > 0 ? info_.vocab_size : int64_t{1} << 31, info_.max_seq_length);
    if (static_cast<int64_t>(example.masked_ids.size()) > info_.max_predictions_per_seq)
      throw DataError(fmt::format("an example has {} masks, the file says at most {}", example.masked_ids.size(),
                                  info_.max_predictions_per_seq));
  } catch (const DataError& error) {
    throw bad(fmt::format("row {}: {}", read_, error.what()));
  }
  ++read_;
  return true;
}

DataError ChildReader::bad(const std::string& what) const { return DataError(path_ + ": " + what); }

void ChildReader::take(void* data, size_t bytes) {
  if (!child_.read(data, bytes)) throw bad("the process that parses the file ended before the last answer");
}

int64_t ChildReader::number() {
  int64_t value = 0;
  take(&value, sizeof value);
  return value;
}

std::string ChildReader::text() {
  const int64_t bytes = number();
  if (bytes < 0 || bytes > kMostTextBytes) throw bad(fmt::format("a text of {} bytes", bytes));
  std::string value(static_cast<size_t>(bytes), '\0');
  take(value.data(), value.size());
  return value;
}

void ChildReader::numbers(std::vector<int32_t>& values) {
  const int64_t count = number();
  if (count < 0 || count > kMostTokens) throw bad(fmt::format("row {}: a list of {} numbers", read_, count));
  values.resize(static_cast<size_t>(count));
  take(values.data(), values.size() * sizeof(int32_t));
}

/// The next message's kind. Throws DataError for kError.
int64_t ChildReader::take_message() {
  const int64_t kind = number();
  if (kind == kError) throw bad(text());
  return kind;
}

void ChildReader::read_facts() {
  if (take_message() != kFacts) throw bad("the process that parses the file gave answers out of order");
  size_ = number();
  info_.max_seq_length = number();
  info_.max_predictions_per_seq = number();
  info_.vocab_size = number();
  info_.vocabulary_checksum = text();
  if (size_ == 0) throw bad("no examples to read");
  if (info_.max_seq_length < 1 || info_.max_seq_length > kMostTokens || info_.max_predictions_per_seq < 0 ||
      info_.max_predictions_per_seq > kMostTokens || info_.vocab_size < 0 || info_.vocab_size > int64_t{1} << 31) {
    throw bad(fmt::format("examples of {} tokens and {} masks, with ids below {}; {} tokens and masks are allowed",
                          info_.max_seq_length, info_.max_predictions_per_seq, info_.vocab_size, kMostTokens));
  }
  const int64_t parameters = number();
  if (parameters < 0 || parameters > kMostParameters) throw bad(fmt::format("{} parameters", parameters));
  for (int64_t i = 0; i < parameters; ++i) {
    std::string key = text();
    info_.parameters.emplace_back(std::move(key), text());
  }
}

}  // namespace bert
