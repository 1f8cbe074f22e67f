#include "data/corpus/document_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "data/corpus/encoding.h"
#include "data/corpus/json_lines.h"
#include "data/corpus/text_source.h"
#include "data/io/error.h"
#include "data/io/text_parts.h"
#include "data/text/paragraphs.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {

const std::vector<std::string> kLayoutNames = {"sentences", "prose", "lines", "json-lines", "files"};

namespace {

constexpr std::string_view kByteOrderMark = "\ufeff";

/// True if Python's text.strip() leaves nothing of valid UTF-8.
bool is_blank(std::string_view text) {
  while (!text.empty()) {
    const DecodedUtf8 decoded = decode_utf8(text);
    if (!is_python_space(decoded.value)) return false;
    text.remove_prefix(static_cast<size_t>(decoded.bytes));
  }
  return true;
}

Layout layout_of(const std::string& path, const ReaderOptions& options) {
  constexpr std::array<std::string_view, 3> kJsonSuffixes = {".jsonl", ".ndjson", ".json"};
  const std::string_view name = without_packed_suffix(path);
  const bool json = std::ranges::any_of(kJsonSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
  return json ? Layout::kJsonLines : options.layout;
}

/// Lines of a file, of any length.
class LineReader {
 public:
  LineReader(const std::string& path, const ReaderOptions& options)
      : source_(path, options.encoding), most_bytes_(options.most_document_bytes) {}

  /// The first bytes of the text, at most `bytes` and a piece. Only before the first line.
  std::string_view head(size_t bytes) {
    while (head_.size() < bytes) {
      const std::string_view piece = source_.next();
      if (piece.empty()) break;
      head_.append(piece);
    }
    rest_ = head_;
    return head_;
  }

  /// The next line without its line break; false at the end. Valid until the next call.
  bool next(std::string_view& line) {
    long_.clear();
    while (true) {
      if (rest_.empty()) {
        head_ = {};
        rest_ = source_.next();
        if (rest_.empty()) {
          line = long_;
          return !long_.empty();
        }
      }
      const size_t end = rest_.find('\n');
      const std::string_view part = rest_.substr(0, end);
      rest_.remove_prefix(std::min(part.size() + 1, rest_.size()));
      if (end != std::string_view::npos && long_.empty()) {
        line = part;
        return true;
      }
      check_size(long_.size() + part.size());
      long_.append(part);
      line = long_;
      if (end != std::string_view::npos) return true;
    }
  }

  /// Throws DataError if a document is larger than allowed.
  void check_size(size_t bytes) const {
    if (bytes <= most_bytes_) return;
    throw DataError(fmt::format(
        "{}: a document has more than {} MB of text. Its documents may end otherwise: name the way with --layout ({}).",
        source_.path(), most_bytes_ / 1000000, "sentences, prose, lines, json-lines"));
  }

  [[nodiscard]] const TextSource& source() const { return source_; }

 private:
  TextSource source_;
  const size_t most_bytes_;
  std::string head_, long_;
  std::string_view rest_;
};

/// The documents of one file.
class FileDocuments {
 public:
  FileDocuments(const std::string& path, const ReaderOptions& options)
      : options_(options), layout_(layout_of(path, options)), lines_(path, options) {
    if (layout_ != Layout::kProse) return;
    std::string_view head = lines_.head(kHeadBytes);
    if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
    blanks_to_end_ = blank_lines_between_documents(head);
  }

  /// Appends the text of the next document to `document`. Returns true if the document ends there, and false at the end
  /// of the file.
  bool next(std::string& document) {
    std::string_view line;
    size_t blank = 0;  // blank lines since the last other line
    while (lines_.next(line)) {
      if (number_++ == 0) line = without_mark(line);
      if (layout_ == Layout::kLines || layout_ == Layout::kJsonLines) {
        if (take_line_document(line, document)) return true;
        continue;
      }
      const bool ends = layout_ == Layout::kSentences ? is_blank(line) : trimmed(line).empty();
      if (ends) {
        ++blank;
        if (layout_ != Layout::kFiles && blank >= blanks_to_end_ && !document.empty()) return true;
        continue;
      }
      lines_.check_size(document.size() + line.size());
      if (!document.empty()) document.append(blank, '\n');
      document.append(line).push_back('\n');
      blank = 0;
    }
    return false;
  }

  /// Reads `lines` lines, which have given documents before. `bad_lines` of them were skipped.
  void skip(int64_t lines, int64_t bad_lines) {
    for (std::string_view line; number_ < lines; ++number_) {
      if (!lines_.next(line))
        throw DataError(fmt::format("{}: has {} lines; {} were read of it before", source().path(), number_, lines));
      if (layout_ == Layout::kJsonLines) lone_surrogates_ += count_lone_surrogates(line);
    }
    bad_lines_ = bad_lines;
  }

  [[nodiscard]] Layout layout() const { return layout_; }
  [[nodiscard]] int64_t lines() const { return number_; }
  [[nodiscard]] const TextSource& source() const { return lines_.source(); }
  [[nodiscard]] int64_t bad_lines() const { return bad_lines_; }
  /// Of JSON's strings: each became U+FFFD.
  [[nodiscard]] int64_t lone_surrogates() const { return lone_surrogates_; }

 private:
  /// Python does not take a line with a mark alone for blank, so such a line ends no document. The tokenizer ignores it.
  [[nodiscard]] std::string_view without_mark(std::string_view line) const {
    if (!line.starts_with(kByteOrderMark)) return line;
    const std::string_view rest = line.substr(kByteOrderMark.size());
    return layout_ == Layout::kSentences && is_blank(rest) ? line : rest;
  }

  bool take_line_document(std::string_view line, std::string& document) {
    line = trimmed(line);
    lines_.check_size(line.size());
    if (layout_ == Layout::kLines) {
      document = line;
    } else if (!line.empty()) {
      const std::string error = read_json_field(line, options_.text_field, document, lone_surrogates_);
      if (!error.empty()) {
        if (!options_.skip_bad_lines) {
          throw DataError(
              fmt::format("{}: line {}: {}. Correct it, name the field with --text-field, or count and skip "
                          "such lines with --skip-bad-lines.",
                          source().path(), number_, error));
        }
        ++bad_lines_;
        document.clear();
      }
    }
    if (!is_blank(document)) return true;
    document.clear();
    return false;
  }

  const ReaderOptions& options_;
  const Layout layout_;
  LineReader lines_;
  size_t blanks_to_end_ = 1;
  int64_t number_ = 0;  // of lines up to now
  int64_t bad_lines_ = 0;
  int64_t lone_surrogates_ = 0;
};

}  // namespace

class DocumentReader::Impl {
 public:
  Impl(const std::vector<std::string>& names, ReaderOptions how)
      : options(std::move(how)), paths(names), found(find_input_files(names)) {
    if (!options.encoding.empty()) static_cast<void>(EncodingConverter(options.encoding));
    statistics.skipped_files = before.skipped_files = found.skipped;
  }

  bool next(std::string& document) {
    document.clear();
    while (open_next()) {
      const bool whole = file->next(document);
      update();
      if (whole && is_blank(document)) {
        document.clear();
        continue;
      }
      if (whole) return ++statistics.documents, true;
      const bool continues = file->layout() == Layout::kSentences && index < found.files.size() &&
                             layout_of(found.files[index].path, options) == Layout::kSentences;
      before = statistics;
      ++statistics.files, ++before.files;
      file.reset();
      if (continues) continue;
      if (!is_blank(document)) return ++statistics.documents, true;
      document.clear();
    }
    return false;
  }

  [[nodiscard]] ReadPlace place() const {
    ReadPlace result{.file = static_cast<int64_t>(index), .before = before};
    if (file) result = {result.file - 1, file->lines(), file->bad_lines(), before};
    result.before.documents = statistics.documents;
    return result;
  }

  void go_to(const ReadPlace& place) {
    if (place.file < 0 || place.file > static_cast<int64_t>(found.files.size()))
      throw DataError(fmt::format("there is no input file number {} among {}", place.file, found.files.size()));
    index = static_cast<size_t>(place.file);
    statistics = before = place.before;
    if (place.lines == 0) return;
    open_next();
    file->skip(place.lines, place.bad_lines);
    update();
  }

  const ReaderOptions options;
  const std::vector<std::string> paths;
  const InputFiles found;
  ReadStatistics statistics;

 private:
  /// Opens the next file if none is open. False after the last.
  bool open_next() {
    if (file) return true;
    if (index == found.files.size()) return false;
    file = std::make_unique<FileDocuments>(found.files[index++].path, options);
    return true;
  }

  void update() {
    const TextSource& source = file->source();
    statistics.stored_bytes = before.stored_bytes + source.stored_bytes();
    statistics.text_bytes = before.text_bytes + source.text_bytes();
    statistics.invalid_sequences = before.invalid_sequences + source.invalid_sequences() + file->lone_surrogates();
    statistics.bad_lines = before.bad_lines + file->bad_lines();
  }

  std::unique_ptr<FileDocuments> file;  // the open one
  size_t index = 0;                     // of the next file
  ReadStatistics before;                // of the files before the open one
};

DocumentReader::DocumentReader(const std::vector<std::string>& paths, ReaderOptions options)
    : impl_(std::make_unique<Impl>(paths, std::move(options))) {}

DocumentReader::~DocumentReader() = default;

bool DocumentReader::next(std::string& document) { return impl_->next(document); }

ReadPlace DocumentReader::place() const { return impl_->place(); }

void DocumentReader::go_to(const ReadPlace& place) { impl_->go_to(place); }

const ReadStatistics& DocumentReader::statistics() const { return impl_->statistics; }

const std::vector<InputFile>& DocumentReader::files() const { return impl_->found.files; }

int64_t DocumentReader::stored_bytes() const {
  int64_t bytes = 0;
  for (const InputFile& file : files()) bytes += file.bytes;
  return bytes;
}

void DocumentReader::throw_no_text() const {
  bert::throw_no_text(
      {.paths = impl_->paths, .bytes = statistics().text_bytes, .invalid_sequences = statistics().invalid_sequences});
}

}  // namespace bert
