#include "data/formats/child_examples.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "data/io/io_errors.h"

namespace bert {
namespace {

// The bytes in the pipe. Numbers are int64_t; texts and lists have their length before them.
//   kFacts, size, the three numbers of ExampleFileInfo, checksum, number of parameters, their names and values
//   kExample, bits of the share, segment_b_start, is_random_next, input_ids, masked_positions, masked_ids
//   kEnd
enum Message : int64_t { kFacts = 2, kExample, kEnd };

constexpr int64_t kMostTokens = 65535;  // as in a shard
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

void ExampleSender::facts(const ExampleFileInfo& info, int64_t size) {
  for (const int64_t each : {int64_t{kFacts}, size, info.max_seq_length, info.max_predictions_per_seq, info.vocab_size})
    sender_.number(each);
  sender_.text(info.vocabulary_checksum);
  sender_.number(static_cast<int64_t>(info.parameters.size()));
  for (const auto& [key, value] : info.parameters) {
    sender_.text(key);
    sender_.text(value);
  }
}

void ExampleSender::example(const PretrainingExample& example, double share) {
  sender_.number(kExample);
  sender_.append(&share, sizeof share);
  sender_.number(example.segment_b_start);
  sender_.number(example.is_random_next ? 1 : 0);
  for (const auto* values : {&example.input_ids, &example.masked_positions, &example.masked_ids}) {
    sender_.number(static_cast<int64_t>(values->size()));
    sender_.append(values->data(), values->size() * sizeof(int32_t));
  }
}

// ---- the parent ----

ChildReader::ChildReader(const std::string& path, int64_t seconds_per_megabyte, const Parse& parse)
    : child_(path,
             {.memory_bytes = kMostMemory,
              .processor_seconds = 1 + size_of(path) * seconds_per_megabyte / 1000000,
              .silent_ms = kSilentMs},
             [&](MessageSender& messages) {
               ExampleSender sender(messages);
               parse(sender);
               messages.number(kEnd);
             }) {
  read_facts();
}

bool ChildReader::next(PretrainingExample& example) {
  if (ended_) return false;
  const int64_t message = child_.message();
  if (message == kEnd && (size_ < 0 || read_ == size_)) {
    ended_ = true;
    share_ = 1;
    return false;
  }
  if (message != kExample || read_ == size_)
    throw child_.bad("the process that parses the file gave answers out of order");
  child_.take(&share_, sizeof share_);
  share_ = std::isfinite(share_) ? std::clamp(share_, 0.0, 1.0) : 0;
  example.segment_b_start = static_cast<int32_t>(child_.number());
  example.is_random_next = child_.number() != 0;
  for (auto* values : {&example.input_ids, &example.masked_positions, &example.masked_ids}) numbers(*values);
  try {
    validate(example, info_.vocab_size > 0 ? info_.vocab_size : int64_t{1} << 31, info_.max_seq_length);
    if (static_cast<int64_t>(example.masked_ids.size()) > info_.max_predictions_per_seq)
      throw DataError(fmt::format("an example has {} masks, the file says at most {}", example.masked_ids.size(),
                                  info_.max_predictions_per_seq));
  } catch (const DataError& error) {
    throw child_.bad(fmt::format("row {}: {}", read_, error.what()));
  }
  ++read_;
  return true;
}

void ChildReader::numbers(std::vector<int32_t>& values) {
  const int64_t count = child_.number();
  if (count < 0 || count > kMostTokens) throw child_.bad(fmt::format("row {}: a list of {} numbers", read_, count));
  values.resize(static_cast<size_t>(count));
  child_.take(values.data(), values.size() * sizeof(int32_t));
}

void ChildReader::read_facts() {
  if (child_.message() != kFacts) throw child_.bad("the process that parses the file gave answers out of order");
  size_ = child_.number();
  info_.max_seq_length = child_.number();
  info_.max_predictions_per_seq = child_.number();
  info_.vocab_size = child_.number();
  info_.vocabulary_checksum = child_.text();
  if (size_ == 0) throw child_.bad("no examples to read");
  if (info_.max_seq_length < 1 || info_.max_seq_length > kMostTokens || info_.max_predictions_per_seq < 0 ||
      info_.max_predictions_per_seq > kMostTokens || info_.vocab_size < 0 || info_.vocab_size > int64_t{1} << 31) {
    throw child_.bad(
        fmt::format("examples of {} tokens and {} masks, with ids below {}; {} tokens and masks are allowed",
                    info_.max_seq_length, info_.max_predictions_per_seq, info_.vocab_size, kMostTokens));
  }
  const int64_t parameters = child_.number();
  if (parameters < 0 || parameters > kMostParameters) throw child_.bad(fmt::format("{} parameters", parameters));
  for (int64_t i = 0; i < parameters; ++i) {
    std::string key = child_.text();
    info_.parameters.emplace_back(std::move(key), child_.text());
  }
}

}  // namespace bert
