// Downloads that go on after a cut, ask several mirrors, and check what they got.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/download/digest.h"
#include "data/download/http.h"

namespace bert {

struct DownloadOptions {
  HttpOptions http;
  int64_t retries = 5;               // further attempts in a row that bring no new bytes
  int64_t first_wait_ms = 1000;      // before the first of them; doubled each time, at most a minute
  std::vector<std::string> mirrors;  // base URLs, in the order to ask; none: the file's own host
  /// Says to a person that something is tried again or in another way.
  std::function<void(const std::string& message)> say = [](const std::string&) {};
  /// `bytes` of `of_bytes` are there; of_bytes is absent if the server does not say it.
  std::function<void(const std::string& name, int64_t bytes, std::optional<int64_t> of_bytes)> progress =
      [](const std::string&, int64_t, std::optional<int64_t>) {};
};

/// A file to download.
struct RemoteFile {
  std::string host;              // "https://dumps.wikimedia.org"; a mirror takes its place
  std::string path;              // below it: "/enwiki/latest/enwiki-latest-sha1sums.txt"
  std::string name;              // below the output directory; "" for the last part of `path`
  std::optional<int64_t> bytes;  // published
  PublishedDigest digest;        // published
};

/// A file that is there.
struct DownloadedFile {
  std::string path;
  std::string url;             // that it came from; "" if it was there before
  int64_t bytes = 0;           // its size
  int64_t bytes_received = 0;  // by this call
  int64_t resumed_at = 0;      // bytes that an earlier process had left
  std::string
      verified_by;     // "sha256" or "sha1"; "size", the published one; "length", as the server gave it; or "nothing"
  std::string digest;  // as published
};

/// Downloads of one data set.
///
/// Each mirror is asked for host-relative paths, and where these are absent for the bare file name. A mirror's failure
/// is final after `retries` attempts, or at once if there is no connection to begin with; then the next one is asked. A
/// part of one mirror is continued from another only if a checksum is published.
///
/// Throws DataError if a file is damaged (and removes it), InputMissing if no server has it, NetworkError if no server
/// can be reached or answers, IoError for the disk. The message names each URL and its cause.
class Downloader {
 public:
  explicit Downloader(DownloadOptions options);

  /// Downloads a file into `directory`, which exists, or checks the one that is there.
  DownloadedFile file(const RemoteFile& remote, const std::string& directory);

  /// The content of a small file: a list of checksums.
  std::string text(const RemoteFile& remote);

  /// Says something to the person who waits.
  void say(const std::string& message) const { options_.say(message); }

 private:
  class Attempts;

  DownloadOptions options_;
  HttpClient client_;
};

/// The URLs for `remote` at each mirror, best first.
std::vector<std::vector<std::string>> urls_of(const RemoteFile& remote, const std::vector<std::string>& mirrors);

}  // namespace bert
