// Documents from files of any kind, one at a time.
//
// Note [Memory of a reader]
// A reader holds one document, the beginning of the text of one file (kHeadBytes, where the layout asks for it), and the
// state of one decompressor: at most 8 MB for gzip, bzip2 and zstd's usual levels, 65 MB for xz -9, and never more than
// kMostDecoderBytes (data/corpus/decompression.h). The size of the files does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/input_files.h"

namespace bert {

/// The places where documents begin and end.
enum class Layout {
  kSentences,  // one sentence a line, blank lines between documents, as Google's script reads it: a document goes on in
               // the next file unless a blank line ends it, and str.isspace() of Python decides what is blank
  kProse,      // blank_lines_between_documents() of the first kHeadBytes of a file decides; a file ends a document
  kLines,      // one document a line
  kJsonLines,  // one JSON object a line; one of its fields is the document
  kFiles,      // one document a file
};

/// The words for the layouts on command lines: "sentences", "prose", "lines", "json-lines", "files", in that order.
extern const std::vector<std::string> kLayoutNames;

struct ReaderOptions {
  Layout layout = Layout::kProse;          // of every file but those whose name ends as of JSON lines
  std::string text_field = "text";         // of a JSON object; "a.b" is the field b of the object a
  std::string language = {};               // of prose: the one of split_document()
  std::string encoding = {};               // name for iconv(3); empty: UTF-8, and all others are refused
  bool skip_bad_lines = false;             // count lines that are no JSON object with the field, instead of throwing
  size_t most_document_bytes = 256 << 20;  // larger ones are refused
};

/// Counts of what was read up to now. Nothing is left out without a count.
struct ReadStatistics {
  int64_t files = 0;          // read to their end
  int64_t skipped_files = 0;  // InputFiles::skipped
  int64_t stored_bytes = 0;   // of the files, compressed if they are
  int64_t text_bytes = 0;     // decompressed, as UTF-8
  int64_t documents = 0;
  int64_t invalid_sequences = 0;  // dropped: no UTF-8, nothing in the encoding, or half of a surrogate pair
  int64_t bad_lines = 0;          // skipped, with skip_bad_lines

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("files", self.files);
    visit("skipped_files", self.skipped_files);
    visit("stored_bytes", self.stored_bytes);
    visit("text_bytes", self.text_bytes);
    visit("documents", self.documents);
    visit("invalid_sequences", self.invalid_sequences);
    visit("bad_lines", self.bad_lines);
  }
};

/// A place between two documents.
struct ReadPlace {
  int64_t file = 0;            // number of the file that goes on, or begins
  int64_t lines = 0;           // of that file, before the place
  int64_t bad_lines = 0;       // of those lines
  ReadStatistics before = {};  // counts of the files before, but all documents

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("file", self.file);
    visit("lines", self.lines);
    visit("file.bad_lines", self.bad_lines);
    ReadStatistics::visit_fields(self.before, visit);
  }
};

/// The first bytes of a file's text that decide between one and two blank lines.
inline constexpr size_t kHeadBytes = size_t{16} << 20;

/// Reads the documents of files, in order, each file once from its beginning to its end. The same files and options give
/// the same documents on every machine. A file is plain, gzip, bzip2, xz or zstd, as its first bytes say. A file whose
/// name ends in .jsonl, .ndjson or .json (before .gz, .bz2, .xz or .zst) is read as kJsonLines in every layout.
///
/// A document is valid UTF-8 without a byte order mark, as the file has it, with its line breaks, but without blank lines
/// at its ends. No document is white space alone. Documents of kSentences have one sentence a line. All others are
/// prose: split_document() of data/text/sentence_splitter.h gives their sentences.
class DocumentReader {
 public:
  /// Finds the files (input_files.h), and opens none yet. Throws InputMissing, IoError, and std::invalid_argument for
  /// an unknown encoding.
  DocumentReader(const std::vector<std::string>& paths, ReaderOptions options);
  ~DocumentReader();
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;

  /// Puts the next document into `document`; false after the last. Throws IoError, and DataError with file and place: a
  /// damaged compressed file, text in another encoding, something other than text, a bad line of JSON, a document that
  /// is too large, or a file that changed while it was read.
  bool next(std::string& document);

  /// The place after the document that next() has given last.
  [[nodiscard]] ReadPlace place() const;
  /// Goes on at a place that a reader of the same files with the same options has given. Before the first next(), which
  /// reads the lines of the file before the place again. Throws DataError if there is no such place.
  void go_to(const ReadPlace& place);

  [[nodiscard]] const ReadStatistics& statistics() const;
  /// The files, in the order of reading.
  [[nodiscard]] const std::vector<InputFile>& files() const;
  /// Size of all files, for progress: statistics().stored_bytes grows to it. Pipes and devices count as 0.
  [[nodiscard]] int64_t stored_bytes() const;
  /// Throws DataError with the reason why there is nothing to read. For callers that found no document.
  [[noreturn]] void throw_no_text() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bert
