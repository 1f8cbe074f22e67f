#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string_view>
#include <utility>

#include "data/download/data_sets.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr const char* kHost = "https://dumps.wikimedia.org";
constexpr size_t kDateDigits = 8, kSha1Digits = 40;
constexpr size_t kMostDates = 6;  // dumps that are asked for; Wikimedia keeps about that many

/// The endings of the dump's name, the preferred one first. The dump in one stream is made last, and some Wikipedias
/// have only the other one.
constexpr const char* kEndings[] = {"-pages-articles.xml.bz2", "-pages-articles-multistream.xml.bz2"};

bool is_date(std::string_view text) {
  return text.size() == kDateDigits && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// A line of a list of checksums, "SHA1  NAME", where the name is that of a dump of all articles.
struct Listed {
  std::string name, date, sha1;
};

/// The dump in `list`, whose date is `date`, or any if `date` is empty. The name is empty if there is none.
Listed find_dump(const std::string& list, const std::string& wiki, const std::string& date) {
  Listed found;
  size_t best = std::size(kEndings);
  std::istringstream lines(list);
  for (Listed line; lines >> line.sha1 >> line.name;) {
    if (!line.name.starts_with(wiki + "-") || line.sha1.size() != kSha1Digits) continue;
    line.date = line.name.substr(wiki.size() + 1, kDateDigits);
    if (!is_date(line.date) || (!date.empty() && line.date != date)) continue;
    for (size_t ending = 0; ending < best; ++ending) {
      if (line.name != wiki + "-" + line.date + kEndings[ending]) continue;
      best = ending;
      found = line;
    }
  }
  return found;
}

DataSetFile dump_file(const std::string& wiki, const std::string& date, const std::string& name,
                      const std::string& sha1) {
  PublishedDigest digest;
  if (!sha1.empty()) digest = {"sha1", sha1};
  return {.remote = {.host = kHost,
                     .path = fmt::format("/{}/{}/{}", wiki, date, name),
                     .name = {},
                     .bytes = {},
                     .digest = std::move(digest)},
          .unpack_into = {},
          .members = {}};
}

std::string list_path(const std::string& wiki, const std::string& directory) {
  return fmt::format("/{0}/{1}/{0}-{1}-sha1sums.txt", wiki, directory);
}

/// Asks for texts that may be absent.
class Lists {
 public:
  explicit Lists(Downloader& downloader) : downloader_(downloader) {}

  /// The text, or "" if no server has it.
  std::string text(const std::string& path) {
    try {
      return downloader_.text({.host = kHost, .path = path, .name = {}, .bytes = {}, .digest = {}});
    } catch (const InputMissing& missing) {
      if (first_cause_.empty()) first_cause_ = missing.what();
      return "";
    }
  }
  /// The message about the first text that is absent.
  [[nodiscard]] const std::string& first_cause() const { return first_cause_; }

 private:
  Downloader& downloader_;
  std::string first_cause_;
};

/// The dates of the dumps in a directory's page, newest first.
std::vector<std::string> dates_in(const std::string& page) {
  std::vector<std::string> dates;
  const std::string_view mark = "href=\"";
  for (size_t at = page.find(mark); at != std::string::npos; at = page.find(mark, at + 1)) {
    const std::string date = page.substr(at + mark.size(), kDateDigits);
    if (is_date(date) && page.substr(at + mark.size() + kDateDigits, 1) == "/") dates.push_back(date);
  }
  std::sort(dates.rbegin(), dates.rend());
  dates.erase(std::unique(dates.begin(), dates.end()), dates.end());
  return dates;
}

}  // namespace

DataSetFile wikipedia_file(Downloader& downloader, const std::string& language, const std::string& date) {
  std::string wiki = language + "wiki";
  std::ranges::replace(wiki, '-', '_');
  Lists lists(downloader);
  if (date != "latest") {
    const std::string list = lists.text(list_path(wiki, date));
    // A mirror may have the dump without the list.
    if (list.empty()) return dump_file(wiki, date, wiki + "-" + date + kEndings[0], "");
    const Listed listed = find_dump(list, wiki, date);
    if (!listed.name.empty()) return dump_file(wiki, date, listed.name, listed.sha1);
    throw InputMissing(
        fmt::format("{}: the dump of {} has no file of all articles yet; name an earlier day", wiki, date));
  }
  const Listed latest = find_dump(lists.text(list_path(wiki, "latest")), wiki, "");
  if (!latest.name.empty()) return dump_file(wiki, latest.date, latest.name, latest.sha1);
  // While a dump is being made, the latest list may have none of its articles. Some mirrors have no such list.
  const std::vector<std::string> dates = dates_in(lists.text(fmt::format("/{}/", wiki)));
  for (size_t i = 0; i < std::min(dates.size(), kMostDates); ++i) {
    const Listed listed = find_dump(lists.text(list_path(wiki, dates[i])), wiki, dates[i]);
    if (!listed.name.empty()) return dump_file(wiki, dates[i], listed.name, listed.sha1);
  }
  downloader.say(
      fmt::format("{}: no list of checksums is found, so the latest dump is asked for without one; if it is "
                  "not there either, check --language. {}",
                  wiki, lists.first_cause()));
  return dump_file(wiki, "latest", wiki + "-latest" + kEndings[0], "");
}

}  // namespace bert
