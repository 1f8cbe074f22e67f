#include "data/io/child_messages.h"

#include <fmt/format.h>

#include <new>
#include <utility>

namespace bert {
namespace {

// A number has 8 bytes. A text has its length before it.
constexpr int64_t kError = 1;  // a message: the text of an exception
constexpr int64_t kMostTextBytes = int64_t{16} << 20;

}  // namespace

void MessageSender::append(const void* data, size_t bytes) {
  constexpr size_t kMostWritten = size_t{64} << 10;  // one write
  buffer_.append(static_cast<const char*>(data), bytes);
  if (buffer_.size() >= kMostWritten) flush();
}

void MessageSender::flush() {
  write_(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void MessageSender::number(int64_t value) { append(&value, sizeof value); }

void MessageSender::text(const std::string& value) {
  number(static_cast<int64_t>(value.size()));
  append(value.data(), value.size());
}

MessageReader::MessageReader(std::string path, const ChildLimits& limits,
                             const std::function<void(MessageSender&)>& work)
    : path_(std::move(path)), child_(path_, limits, [&](const BoundedChild::Write& write) {
        MessageSender sender(write);
        try {
          work(sender);
        } catch (const std::bad_alloc&) {
          throw;
        } catch (const std::exception& error) {
          sender.number(kError);
          sender.text(error.what());
        }
        sender.flush();
      }) {}

int64_t MessageReader::message() {
  const int64_t kind = number();
  if (kind == kError) throw bad(text());
  return kind;
}

void MessageReader::take(void* data, size_t bytes) {
  if (!child_.read(data, bytes)) throw bad("the process that parses the file ended before the last answer");
}

int64_t MessageReader::number() {
  int64_t value = 0;
  take(&value, sizeof value);
  return value;
}

std::string MessageReader::text() {
  const int64_t bytes = number();
  if (bytes < 0 || bytes > kMostTextBytes) throw bad(fmt::format("a text of {} bytes", bytes));
  std::string value(static_cast<size_t>(bytes), '\0');
  take(value.data(), value.size());
  return value;
}

}  // namespace bert
