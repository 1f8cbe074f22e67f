#include "data/download/downloader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "data/download/partial_file.h"
#include "data/io/error.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

constexpr int64_t kNewBytes = 1 << 16;              // an attempt that brings so many more has not failed
constexpr int64_t kLongestWaitMs = 60'000;          // between two attempts, if the server does not ask for more
constexpr int64_t kLongestRetryAfterSeconds = 300;  // a server that asks for more is given up
constexpr int64_t kLargestText = 1 << 24;           // bytes of a list of checksums, with a line for each file

enum class Reason { kUnreachable, kAbsent, kDamaged };

/// An attempt that failed.
struct Failure {
  Reason reason;
  std::string cause;
  bool again = false;        // the next attempt may succeed
  int64_t wait_seconds = 0;  // before it, at least
};

const char* meaning(int64_t status) {
  switch (status) {
    case 401:
      return "a password is asked for";
    case 403:
      return "forbidden";
    case 404:
      return "not found";
    case 407:
      return "the proxy asks for a password";
    case 410:
      return "gone";
    case 429:
      return "too many requests";
    default:
      return status >= 500 ? "an error of the server" : "not a file";
  }
}

/// The failure of an answer that has no file. Sources: RFC 9110, 15.5 and 15.6; RFC 6585, 4.
Failure refusal(const HttpResponse& response, const std::string& url) {
  std::string cause = fmt::format("the server answered {} ({})", response.status, meaning(response.status));
  if (response.url != url && !response.url.empty()) cause += ", after a redirect to " + response.url;
  const int64_t status = response.status;
  const bool absent = status == 403 || status == 404 || status == 410;  // stores answer 403 for names they do not have
  const bool passing = status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501);
  const int64_t wait = response.retry_after_seconds.value_or(0);
  if (wait > kLongestRetryAfterSeconds) cause += fmt::format(" and asks to wait for {} s", wait);
  return {absent ? Reason::kAbsent : Reason::kUnreachable, cause, passing && wait <= kLongestRetryAfterSeconds, wait};
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

[[noreturn]] void throw_all(const std::string& name, const std::vector<std::pair<std::string, Failure>>& failures) {
  const auto any = [&](Reason reason) {
    return std::ranges::any_of(failures, [&](const auto& one) { return one.second.reason == reason; });
  };
  std::string message = "cannot download " + name;
  for (const auto& [url, failure] : failures)
    message += (url == failures.front().first ? ": " : "; ") + url + ": " + failure.cause;
  message += ". ";
  if (any(Reason::kDamaged)) {
    throw DataError(message +
                    "The damaged bytes were removed. Try again later, or name another server with --mirror URL.");
  }
  if (any(Reason::kUnreachable)) {
    throw NetworkError(message +
                       "Check the network. Behind a proxy, set https_proxy and http_proxy. --mirror URL names another "
                       "server.");
  }
  throw InputMissing(message + "--mirror URL names another server.");
}

/// The file of `remote` that was there before the call.
DownloadedFile checked_file(const RemoteFile& remote, const std::string& path) {
  DownloadedFile there{.path = path, .url = {}, .verified_by = "nothing", .digest = {}};
  there.bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  const auto differs = [&](const std::string& what, const std::string& found, const std::string& published) {
    throw DataError(
        fmt::format("{}: is there, but its {} is {}, and {} is published; remove it, and it will be "
                    "downloaded again",
                    path, what, found, published));
  };
  if (remote.bytes) {
    if (there.bytes != *remote.bytes) differs("size", std::to_string(there.bytes), std::to_string(*remote.bytes));
    there.verified_by = "size";
  }
  if (remote.digest.algorithm.empty()) return there;
  const std::string found = digest_of_file(path, remote.digest.algorithm);
  if (found != remote.digest.hexadecimal) differs(remote.digest.algorithm, found, remote.digest.hexadecimal);
  there.verified_by = remote.digest.algorithm;
  there.digest = found;
  return there;
}

}  // namespace

/// The attempts to get one file.
class Downloader::Attempts {
 public:
  Attempts(Downloader& owner, const RemoteFile& remote, PartialFile& part)
      : owner_(owner), remote_(remote), part_(part), spliced_(part.size() > 0) {}

  /// One request. Returns when the part is the whole file, and right. Throws Failure.
  void get(const std::string& url) {
    const PartSource source = part_.source();
    if (source.bytes != part_.size() || part_.size() == 0) request(url, source);
    check_whole();
  }

  DownloadedFile result(const std::string& target, const std::string& url) const {
    const char* by = marked_ ? "length" : "nothing";
    if (remote_.bytes) by = "size";
    return {.path = target,
            .url = url,
            .bytes = part_.size(),
            .bytes_received = received_,
            .resumed_at = 0,
            .verified_by = remote_.digest.algorithm.empty() ? by : remote_.digest.algorithm,
            .digest = remote_.digest.hexadecimal};
  }

 private:
  void request(const std::string& url, const PartSource& source) {
    const std::string validator = source.etag.empty() ? source.last_modified : source.etag;
    const bool same_file = source.url == url && !validator.empty();
    if (part_.size() > 0 && !same_file && remote_.digest.algorithm.empty()) {
      owner_.options_.say(
          fmt::format("{}: starts at the beginning: the {} bytes that are there cannot be told to be of "
                      "this file",
                      url, part_.size()));
      restart({});
    }
    const HttpRequest request{
        .url = url, .first_byte = part_.size(), .if_range = part_.size() > 0 && same_file ? validator : ""};
    bool whole = false;
    const auto begin = [&](const HttpResponse& response) {
      if (response.status == 200) return begin_whole(request, response);
      if (response.status == 206 && request.first_byte > 0) return begin_rest(request, response, source);
      if (response.status != 416 || request.first_byte == 0) throw refusal(response, url);
      whole = response.range_size == request.first_byte;  // the part has all bytes
      if (!whole) begin_anew("the server has fewer bytes than the part");
      return false;
    };
    owner_.client_.get(request, begin, [&](std::string_view piece) { take(piece); });
    if (whole) return;
    if (expected_ && part_.size() < *expected_)
      throw Failure{Reason::kUnreachable, fmt::format("the server sent {} of {} bytes", part_.size(), *expected_),
                    true};
    if (expected_ && part_.size() > *expected_) begin_anew("the server sent more bytes than it had said");
  }

  bool begin_whole(const HttpRequest& request, const HttpResponse& response) {
    if (request.first_byte > 0) {
      owner_.options_.say(fmt::format(
          "{}: starts at the beginning: the server has another file now, or cannot send the rest of one", request.url));
    }
    restart({.url = request.url,
             .etag = response.etag,
             .last_modified = response.last_modified,
             .bytes = response.content_length});
    content_type_ = response.content_type;
    marked_ = response.end_is_marked;
    expect(response.content_length);
    return true;
  }

  bool begin_rest(const HttpRequest& request, const HttpResponse& response, const PartSource& source) {
    const bool other_size = source.bytes && response.range_size && source.bytes != response.range_size;
    const auto differ = [](const std::string& a, const std::string& b) { return !a.empty() && !b.empty() && a != b; };
    const bool other_file =
        !request.if_range.empty() && (source.etag.empty() ? differ(source.last_modified, response.last_modified)
                                                          : differ(source.etag, response.etag));
    if (response.range_first != request.first_byte || other_size || other_file)
      begin_anew("the server sent bytes of another file, or others than it was asked for");
    spliced_ = true;
    marked_ = response.end_is_marked;
    expect(response.range_size);
    return true;
  }

  /// The size of the file, as the server gives it.
  void expect(std::optional<int64_t> bytes) {
    expected_ = bytes;
    if (bytes && remote_.bytes && *bytes != *remote_.bytes)
      damaged(fmt::format("the server has {} bytes, and {} are published", *bytes, *remote_.bytes));
    if (bytes) check_free_space(part_.path(), *bytes - part_.size(), "the rest of the download");
  }

  void take(std::string_view piece) {
    if (remote_.bytes && part_.size() + static_cast<int64_t>(piece.size()) > *remote_.bytes)
      damaged(fmt::format("the server sends more than the {} bytes that are published", *remote_.bytes));
    part_.append(piece);
    received_ += static_cast<int64_t>(piece.size());
    owner_.options_.progress(remote_.name, part_.size(), expected_ ? expected_ : remote_.bytes);
  }

  void check_whole() {
    if (remote_.bytes && part_.size() != *remote_.bytes)
      damaged(fmt::format("the server sent {} bytes, and {} are published", part_.size(), *remote_.bytes));
    const std::string digest = part_.digest();
    if (digest != remote_.digest.hexadecimal)
      damaged(fmt::format("its {} is {}, and {} is published", remote_.digest.algorithm, digest,
                          remote_.digest.hexadecimal));
  }

  /// Refuses what has come. A file that was put together from several answers gets another chance, but one only.
  [[noreturn]] void damaged(std::string cause) {
    if (content_type_.starts_with("text/html")) cause += "; the server sent a web page, perhaps a proxy's or a login's";
    const bool again = spliced_ && !had_its_chance_;
    had_its_chance_ = had_its_chance_ || again;
    restart({});
    throw Failure{Reason::kDamaged, cause, again};
  }

  [[noreturn]] void begin_anew(const std::string& cause) {
    restart({});
    throw Failure{Reason::kUnreachable, cause, true};
  }

  void restart(const PartSource& source) {
    part_.restart(source);
    spliced_ = false;
  }

  Downloader& owner_;
  const RemoteFile& remote_;
  PartialFile& part_;
  bool spliced_;                     // the part's bytes came with several answers
  bool had_its_chance_ = false;      // such a part was damaged before
  bool marked_ = true;               // a cut of the last answer would have been noticed
  std::optional<int64_t> expected_;  // bytes of the whole file
  int64_t received_ = 0;
  std::string content_type_;
};

namespace {

/// Calls attempt(url) until it returns, or throws its last Failure. `reached` gives the bytes of the file so far.
template <class Attempt, class Reached>
void try_repeatedly(const std::string& url, const DownloadOptions& options, Attempt&& attempt, Reached&& reached) {
  int64_t furthest = reached(), wait = options.first_wait_ms, failed = 0;
  bool connected = false;
  while (true) {
    Failure failure{};
    try {
      attempt(url);
      return;
    } catch (const Failure& refused) {
      failure = refused;
      connected = true;
    } catch (const TransferError& error) {
      connected = connected || error.connected;
      failure = {Reason::kUnreachable, error.what(), error.worth_again && connected};
    }
    if (reached() >= furthest + kNewBytes) {
      furthest = reached();
      failed = 0;
      wait = options.first_wait_ms;
    }
    if (!failure.again || failed == options.retries) throw failure;
    ++failed;
    const int64_t pause = std::max(wait, 1000 * failure.wait_seconds);
    options.say(fmt::format("{}: {}; trying again in {} s ({} of {})", url, failure.cause,
                            static_cast<double>(pause) / 1000, failed, options.retries));
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    wait = std::min(2 * wait, kLongestWaitMs);
  }
}

/// Asks the mirrors in turn. Returns the URL that gave the file.
template <class Attempt, class Reached>
std::string ask_mirrors(const RemoteFile& remote, const DownloadOptions& options, Attempt&& attempt,
                        Reached&& reached) {
  std::vector<std::pair<std::string, Failure>> failures;
  for (const auto& urls : urls_of(remote, options.mirrors)) {
    for (const std::string& url : urls) {
      try {
        try_repeatedly(url, options, attempt, reached);
        return url;
      } catch (const Failure& failure) {
        failures.emplace_back(url, failure);
        if (failure.reason != Reason::kAbsent) break;
      }
    }
  }
  throw_all(last_part(remote.path), failures);
}

}  // namespace

Downloader::Downloader(DownloadOptions options) : options_(std::move(options)), client_(options_.http) {}

DownloadedFile Downloader::file(const RemoteFile& remote, const std::string& directory) {
  RemoteFile named = remote;
  if (named.name.empty()) named.name = last_part(remote.path);
  const std::string target = (std::filesystem::path(directory) / named.name).string();
  if (std::filesystem::exists(target)) return checked_file(named, target);
  PartialFile part(target, named.digest);
  const int64_t resumed_at = part.size();
  if (resumed_at > 0) options_.say(fmt::format("{}: continues at byte {}", target, resumed_at));
  Attempts attempts(*this, named, part);
  std::string url;
  try {
    url = ask_mirrors(
        named, options_, [&](const std::string& each) { attempts.get(each); }, [&] { return part.size(); });
  } catch (...) {
    if (part.size() == 0) part.discard();
    throw;
  }
  DownloadedFile result = attempts.result(target, url);
  result.resumed_at = resumed_at;
  part.commit();
  if (result.verified_by == "nothing")
    options_.say(
        fmt::format("{}: the server did not say how long the file is, and no checksum is published: if all of "
                    "it came is not known",
                    target));
  return result;
}

std::string Downloader::text(const RemoteFile& remote) {
  std::string content;
  const auto attempt = [&](const std::string& url) {
    content.clear();
    const auto begin = [&](const HttpResponse& response) {
      if (response.status != 200) throw refusal(response, url);
      return true;
    };
    client_.get({.url = url, .first_byte = 0, .if_range = {}}, begin, [&](std::string_view piece) {
      if (static_cast<int64_t>(content.size() + piece.size()) > kLargestText)
        throw Failure{Reason::kDamaged, fmt::format("the list has more than {} bytes", kLargestText)};
      content += piece;
    });
  };
  ask_mirrors(remote, options_, attempt, [] { return int64_t{0}; });
  return content;
}

std::vector<std::vector<std::string>> urls_of(const RemoteFile& remote, const std::vector<std::string>& mirrors) {
  if (mirrors.empty()) return {{remote.host + remote.path}};
  std::vector<std::vector<std::string>> urls;
  for (std::string base : mirrors) {
    while (base.ends_with('/')) base.pop_back();
    urls.push_back({base + remote.path, base + "/" + last_part(remote.path)});
  }
  return urls;
}

}  // namespace bert
