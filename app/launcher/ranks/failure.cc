#include "app/launcher/ranks/failure.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "app/parse/bounded_json.h"
#include "app/system/console.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/rank_state.h"
#include "app/system/signals.h"
#include "data/io/files.h"

namespace bert {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLargestErrorFile = 1 << 20;  // bytes; a traceback has a few kilobytes
constexpr size_t kLongestMessage = 400;         // bytes of the message that are printed

/// The content of the rank's error file; an empty object if the rank wrote nothing readable.
Json error_file_content(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return Json::object();  // opening a pipe would block
  try {
    const Json content = parse_bounded_json(read_file(path, kLargestErrorFile), path);
    return content.is_object() ? content : Json::object();
  } catch (const std::exception&) {
    return Json::object();
  }
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

/// `message` is a string, or an object {"message": ..., "extraInfo": ...} of torch.distributed.elastic's ErrorHandler.
std::string message_of(const Json& content) {
  const auto found = content.find("message");
  if (found == content.end()) return "";
  return found->is_object() ? text_of(*found, "message") : text_of(content, "message");
}

/// A member that the rank has added: at the top level, or in ErrorHandler's extraInfo.
std::string added(const Json& content, const char* key) {
  const auto message = content.find("message");
  if (content.contains(key) || message == content.end() || !message->is_object()) return text_of(content, key);
  const auto extra = message->find("extraInfo");
  return extra != message->end() && extra->is_object() ? text_of(*extra, key) : "";
}

int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string first_line(const std::string& text) { return shortened(text.substr(0, text.find('\n')), kLongestMessage); }

/// The time in the error file, seconds since 1970. ErrorHandler's extraInfo holds it as text.
int64_t time_of(const Json& content, int64_t otherwise) {
  const std::string text = added(content, "timestamp");
  char* end = nullptr;
  const int64_t seconds = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' && seconds > 0 ? seconds : otherwise;
}

/// Renames an unreadable error file: it may still hold the rank's own account.
void keep_unread(const std::string& path) {
  std::error_code unknown;
  const bool there = std::filesystem::is_regular_file(path, unknown) && std::filesystem::file_size(path, unknown) > 0;
  if (there) std::filesystem::rename(path, path + ".unread", unknown);
}

void write_quietly(const std::string& path, const std::string& text) {
  try {
    write_file(path, text);
  } catch (const std::exception&) {  // ignored, as complete_error_file promises
  }
}

}  // namespace

Failure describe_exit(const LaunchConfig& config, const Assignment& assignment, const WorkerExit& exit,
                      const RankTraces& traces) {
  Failure failure;
  failure.rank = assignment.first_rank + exit.local_rank;
  failure.local_rank = exit.local_rank;
  failure.pid = exit.pid;
  failure.host = config.rendezvous.local_addr;
  failure.exit_code = exit_code_of(exit.status);
  failure.signal = WIFSIGNALED(exit.status) ? WTERMSIG(exit.status) : 0;
  failure.error_file = traces.error_file;
  const Json content = error_file_content(traces.error_file);
  failure.time = time_of(content, now_seconds());
  failure.message = message_of(content);
  failure.phase = added(content, "phase");
  failure.last_collective = added(content, "last_collective");
  const RankState state = read_rank_state(traces.state.get());
  if (failure.phase.empty()) failure.phase = state.phase;
  if (failure.last_collective.empty()) failure.last_collective = state.last_collective;
  return failure;
}

Cause cause_of(const Failure& failure) {
  if (failure.exit_code == kPreempted) return Cause::kPreempted;
  if (failure.signal == SIGKILL) return Cause::kKilled;
  // Texts of the kernel and Gloo, of PyTorch's store, of its NCCL backend ("ncclRemoteError: A call failed possibly due to
  // a network error or a remote process exiting prematurely.") and of that backend's watchdog.
  constexpr std::array kTexts = std::to_array<const char*>(
      {" by peer", "Broken pipe", "ait timeout", "ocket Timeout", "ocket has timed out", "ncclRemoteError",
       "aught collective operation timeout", "watchdog thread terminated"});
  const bool tells =
      std::ranges::any_of(kTexts, [&](const char* text) { return failure.message.find(text) != std::string::npos; });
  const bool of_peer = failure.signal == SIGPIPE || failure.exit_code == kPeerFailure ||
                       failure.message.starts_with("PeerError:") || tells;
  if (of_peer) return Cause::kConsequence;
  const bool plain = failure.exit_code == 1 || failure.signal == SIGABRT;
  return failure.message.empty() && plain && failure.pid != 0 ? Cause::kSilent : Cause::kOwn;
}

bool likelier_cause(const Failure& a, const Failure& b) {
  const auto place = [](const Failure& failure) {
    const bool by_signal = failure.signal != 0 && failure.signal != SIGABRT;
    return std::make_tuple(cause_of(failure), failure.time, !by_signal, failure.rank);
  };
  return place(a) < place(b);
}

std::string one_line(const Failure& failure) {
  std::string line = "rank " + std::to_string(failure.rank) + " (local rank " + std::to_string(failure.local_rank) +
                     ", host " + failure.host;
  if (failure.pid == 0) return line + ") cannot be started: " + failure.message;
  line += ", pid " + std::to_string(failure.pid) + ") ";
  if (failure.signal != 0) {
    line += "was killed by signal " + std::to_string(failure.signal) + " (" + signal_name(failure.signal) + ")";
  } else if (failure.exit_code == kPreempted) {
    line += "ended with exit code 75: preempted with a checkpoint saved, run again";
  } else {
    line += "failed with exit code " + std::to_string(failure.exit_code);
  }
  if (!failure.phase.empty()) line += ", in phase " + first_line(failure.phase);
  if (!failure.last_collective.empty()) line += ", last collective " + first_line(failure.last_collective);
  if (!failure.message.empty()) line += ": " + first_line(failure.message);
  if (!failure.error_file.empty()) line += "; " + failure.error_file;
  if (!failure.note.empty()) line += "; " + failure.note;
  return line;
}

void complete_error_file(const Failure& failure) {
  Json content = error_file_content(failure.error_file);
  if (content.empty()) keep_unread(failure.error_file);
  if (!content.contains("message")) {
    const std::string message = failure.signal != 0
                                    ? "Signal " + std::to_string(failure.signal) + " (" + signal_name(failure.signal) +
                                          ") received by PID " + std::to_string(failure.pid)
                                    : "Exit code " + std::to_string(failure.exit_code);
    content["message"] = {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(failure.time)}}}};
  }
  content["rank"] = failure.rank;
  content["local_rank"] = failure.local_rank;
  content["host"] = failure.host;
  content["pid"] = failure.pid;
  content["exit_code"] = failure.exit_code;
  content["signal"] = failure.signal != 0 ? Json(signal_name(failure.signal)) : Json();
  content["time"] = failure.time;
  content["phase"] = failure.phase;
  content["last_collective"] = failure.last_collective;
  const std::string text = content.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!failure.error_file.empty()) write_quietly(failure.error_file, text);
  const char* own = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (own != nullptr && *own != '\0') write_quietly(own, text);
}

}  // namespace bert
