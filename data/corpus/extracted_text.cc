#include "data/corpus/extracted_text.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "data/corpus/near_duplicates.h"
#include "data/corpus/words.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "data/io/text_parts.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr const char* kWritten = "written.";  // begins the names of counts in the state

/// The settings of the whole extraction.
Settings all_settings(const ExtractOptions& options, Settings settings) {
  settings.insert(settings.end(), {{"--min-characters", std::to_string(options.min_characters)},
                                   {"--min-words", std::to_string(options.min_words)},
                                   {"--keep-duplicates", options.keep_duplicates ? "on" : "off"},
                                   {"--near-duplicates", options.near_duplicates ? "on" : "off"},
                                   {"--with-titles", options.with_titles ? "on" : "off"},
                                   {"--file-size in bytes", std::to_string(options.file_bytes)}});
  return settings;
}

}  // namespace

class ExtractedText::Impl {
 public:
  Impl(std::string path, const ExtractOptions& how, ExtractInput input_)
      : options(how), input(std::move(input_)), directory(std::move(path), all_settings(how, input.settings)) {
    if (!directory.saved()) return;
    place = *directory.saved();
    read_figures(place, kWritten, statistics);
    read_again();
  }

  bool add(std::string_view text, std::string_view title) {
    document.clear();
    ends.clear();
    if (options.with_titles) take_title(title);
    const size_t title_bytes = document.size();
    take_paragraphs(text);
    const std::string_view compared = std::string_view(document).substr(title_bytes);
    const int64_t characters = count_characters(compared);
    if (is_near_empty(compared, characters)) return ++statistics.near_empty, false;
    check_memory();
    const uint64_t hash = XXH3_64bits(compared.data(), compared.size());
    if (!options.keep_duplicates && hashes.contains(hash)) return ++statistics.duplicates, false;
    if (options.near_duplicates && !signatures.insert(min_hash(compared))) return ++statistics.near_duplicates, false;
    if (!options.keep_duplicates) hashes.insert(hash);
    statistics.characters += count_characters(std::string_view(document).substr(0, title_bytes)) + characters;
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
  Figures place;  // to begin at

 private:
  /// Reads the files of a killed extraction, and fills the tables of duplicates.
  void read_again() {
    ExtractStatistics found;
    for (; found.files < statistics.files; ++found.files) {
      const std::string path = directory.text_file(found.files);
      std::ifstream in(path, std::ios::binary);
      if (!in) throw_io_error(path, "open", errno);
      document.clear();
      bool is_title = options.with_titles;
      for (std::string line; std::getline(in, line);) {
        found.bytes += static_cast<int64_t>(line.size()) + 1;
        if (!line.empty()) {
          if (!is_title) document.append(line).push_back(' ');
          is_title = false;
          continue;
        }
        ++found.documents;
        remember();
        document.clear();
        is_title = options.with_titles;
      }
      if (in.bad()) throw_io_error(path, "read", errno);
    }
    if (found.bytes == statistics.bytes && found.documents == statistics.documents) return;
    throw DataError(fmt::format(
        "{}: its files have {} documents in {} bytes; the extraction had written {} in {}. Remove the directory to "
        "start over.",
        fs::path(directory.text_file(0)).parent_path().string(), found.documents, found.bytes, statistics.documents,
        statistics.bytes));
  }

  /// Puts `document`, which stays, into the tables of duplicates.
  void remember() {
    check_memory();
    if (!options.keep_duplicates) hashes.insert(XXH3_64bits(document.data(), document.size()));
    if (options.near_duplicates) signatures.insert(min_hash(document));
  }

  /// Puts the title into `document` as one line, whatever it is: read_again() takes the first line for the title.
  void take_title(std::string_view title) {
    std::string line(title);
    std::ranges::replace(line, '\n', ' ');
    take_paragraphs(line);
    if (ends.empty()) take_paragraphs("-");
  }

  /// Appends the paragraphs of `text` to `document`, each followed by a space whose place is in `ends`.
  void take_paragraphs(std::string_view text) {
    while (!text.empty()) {
      const std::string_view line = strip_space(take_part(text, '\n'));
      const size_t begin = document.size();
      for (const char c : line) {
        const bool space = c == ' ' || (c >= '\t' && c <= '\r');
        if (c == '\0') {  // many of them are no text for a reader
          ++statistics.zero_bytes;
        } else if (!space) {
          document += c;
        } else if (document.size() > begin && document.back() != ' ') {
          document += ' ';
        }
      }
      if (document.size() > begin && document.back() == ' ') document.pop_back();
      if (document.size() == begin) continue;
      ends.push_back(document.size());
      document += ' ';
    }
  }

  /// Characters of `text` without white space.
  static int64_t count_characters(std::string_view text) {
    return std::ranges::count_if(text, [](char c) {
      return c != ' ' && (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // not a byte inside of a character
    });
  }

  [[nodiscard]] bool is_near_empty(std::string_view text, int64_t characters) const {
    return text.empty() || characters < options.min_characters ||
           (options.min_words > 0 && count_words(text) < options.min_words);
  }

  /// Throws before a table grows that has no room.
  void check_memory() const {
    const int64_t bytes = (options.keep_duplicates ? 0 : hashes.bytes_to_insert()) +
                          (options.near_duplicates ? signatures.bytes_to_insert() : 0);
    if (bytes <= options.most_duplicate_bytes) return;
    throw DataError(
        fmt::format("the search for duplicates among {} documents takes {} MB of memory, and {} MB are allowed; raise "
                    "--duplicates-memory and give the same command again, or give {} in another directory",
                    statistics.documents + 1, bytes / 1'000'000, options.most_duplicate_bytes / 1'000'000,
                    options.near_duplicates ? "up --near-duplicates" : "--keep-duplicates"));
  }

  void write() {
    if (!file) file.emplace(directory.text_file(statistics.files++));
    ++statistics.documents;
    statistics.bytes += static_cast<int64_t>(document.size());
    buffer += document;
    if (file->size() + static_cast<int64_t>(buffer.size()) >= options.file_bytes) {
      end_file();
      save();
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

  void save() {
    if (!input.place) return;
    Figures figures = input.place();
    add_figures(kWritten, statistics, figures);
    directory.save(statistics.files, figures);
  }

  const ExtractInput input;
  ExtractionDirectory directory;
  std::string document;      // the current one
  std::vector<size_t> ends;  // of its paragraphs
  HashSet hashes;
  NearDuplicates signatures;
  std::optional<AtomicFile> file;
  std::string buffer;  // of bytes that are not in the file yet
};

ExtractedText::ExtractedText(std::string directory, const ExtractOptions& options, ExtractInput input)
    : impl_(std::make_unique<Impl>(std::move(directory), options, std::move(input))) {}

ExtractedText::~ExtractedText() = default;

const Figures& ExtractedText::place() const { return impl_->place; }

bool ExtractedText::add(std::string_view text, std::string_view title) { return impl_->add(text, title); }

void ExtractedText::finish(const std::string& summary) { impl_->finish(summary); }

const ExtractStatistics& ExtractedText::statistics() const { return impl_->statistics; }

}  // namespace bert
