#include "data/corpus/extracted_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "data/corpus/input_files.h"
#include "data/corpus/near_duplicates.h"
#include "data/corpus/words.h"
#include "data/io/descriptor.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "data/text/paragraphs.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr const char* kSummary = ".extract.json";

/// True for 00000.txt and the like, and for AtomicFile's temporary names of them.
bool is_text_file(const std::string& name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::string_view rest = std::string_view(name).substr(digits);
  return digits > 0 && (rest == ".txt" || rest.starts_with(".txt.tmp-"));
}

/// A directory that this process alone extracts into.
class ExtractDirectory {
 public:
  explicit ExtractDirectory(std::string path) : path_(std::move(path)) {
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) throw_io_error(path_, "create", error.value());
    check_and_empty();
  }

  [[nodiscard]] std::string file(const std::string& name) const { return (fs::path(path_) / name).string(); }

  void finish(const std::string& summary) {
    AtomicFile file_of_summary(file(kSummary));
    file_of_summary.write(summary + "\n");
    file_of_summary.commit();
    fs::remove(file(kUnfinishedExtraction));
    sync_path(path_);
  }

 private:
  void check_and_empty() {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
      names.push_back(entry->path().filename().string());
    if (error) throw_io_error(path_, "read", error.value());
    const bool unfinished = std::find(names.begin(), names.end(), kUnfinishedExtraction) != names.end();
    for (const std::string& name : names) {
      if (!unfinished && name == kSummary)
        throw IoError(path_ + ": an extraction has been finished here; name another directory, or remove this one");
      if (name == kUnfinishedExtraction || name == kSummary || (unfinished && is_text_file(name))) continue;
      throw IoError(fmt::format("{}: holds a file that no extraction wrote: {}; name an empty directory", path_, name));
    }
    lock_ = Descriptor(open(file(kUnfinishedExtraction).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!lock_) throw_io_error(path_, "write", errno);
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw IoError(path_ + ": another process extracts into this directory; wait for it, or name another directory");
    for (const std::string& name : names) {
      if (name != kUnfinishedExtraction) fs::remove(file(name));
    }
  }

  std::string path_;
  Descriptor lock_;
};

}  // namespace

class ExtractedText::Impl {
 public:
  Impl(std::string path, const ExtractOptions& how) : options(how), directory(std::move(path)) {}

  bool add(std::string_view text) {
    take_paragraphs(text);
    if (is_near_empty()) return ++statistics.near_empty, false;
    if (!options.keep_duplicates) {
      const XXH128_hash_t hash = XXH3_128bits(document.data(), document.size());
      if (!hashes.insert(hash.low64, hash.high64)) return ++statistics.duplicates, false;
    }
    if (options.near_duplicates && !signatures.insert(min_hash(document))) return ++statistics.near_duplicates, false;
    check_memory();
    for (const size_t end : ends) document[end] = '\n';
    document += '\n';
    write();
    return true;
  }

  void finish(const std::string& summary) {
    end_file();
    directory.finish(summary);
  }

  const ExtractOptions options;
  ExtractStatistics statistics;

 private:
  /// Puts the paragraphs of `text` into `document`, each followed by a space whose place is in `ends`.
  void take_paragraphs(std::string_view text) {
    document.clear();
    ends.clear();
    while (!text.empty()) {
      const std::string_view line = strip_space(take_line(text));
      if (line.empty()) continue;
      for (const char c : line) {
        const bool space = c == ' ' || (c >= '\t' && c <= '\r');
        if (c == '\0') continue;  // many of them are no text for a reader
        if (!space) {
          document += c;
        } else if (!document.empty() && document.back() != ' ') {
          document += ' ';
        }
      }
      ends.push_back(document.size());
      document += ' ';
    }
    characters = std::count_if(document.begin(), document.end(), [](char c) {
      return c != ' ' && (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // not a byte inside of a character
    });
  }

  [[nodiscard]] bool is_near_empty() const {
    return ends.empty() || characters < options.min_characters ||
           (options.min_words > 0 && count_words(document) < options.min_words);
  }

  void check_memory() const {
    const int64_t bytes = hashes.bytes() + signatures.bytes();
    if (bytes <= options.most_duplicate_bytes) return;
    throw DataError(
        fmt::format("the search for duplicates among {} documents takes {} MB of memory, and {} MB are allowed; raise "
                    "--duplicates-memory, or give {}",
                    statistics.documents + 1, bytes / 1'000'000, options.most_duplicate_bytes / 1'000'000,
                    options.near_duplicates ? "up --near-duplicates" : "--keep-duplicates"));
  }

  void write() {
    if (!file) file.emplace(directory.file(fmt::format("{:05}.txt", statistics.files++)));
    ++statistics.documents;
    statistics.characters += characters;
    statistics.bytes += static_cast<int64_t>(document.size());
    buffer += document;
    if (file->size() + static_cast<int64_t>(buffer.size()) >= options.file_bytes) {
      end_file();
    } else if (buffer.size() >= kBufferBytes) {
      flush();
    }
  }

  void flush() {
    file->write(buffer);
    buffer.clear();
  }

  void end_file() {
    if (!file) return;
    flush();
    file->commit();
    file.reset();
  }

  ExtractDirectory directory;
  std::string document;      // the current one
  std::vector<size_t> ends;  // of its paragraphs
  int64_t characters = 0;    // without white space
  HashSet hashes;
  NearDuplicates signatures;
  std::optional<AtomicFile> file;
  std::string buffer;  // of bytes that are not in the file yet
};

ExtractedText::ExtractedText(std::string directory, const ExtractOptions& options)
    : impl_(std::make_unique<Impl>(std::move(directory), options)) {}

ExtractedText::~ExtractedText() = default;

bool ExtractedText::add(std::string_view text) { return impl_->add(text); }

void ExtractedText::finish(const std::string& summary) { impl_->finish(summary); }

const ExtractStatistics& ExtractedText::statistics() const { return impl_->statistics; }

}  // namespace bert
