// The result of `bert data extract`: a directory of text files, without duplicates and near-empty documents.
//
// Note [Extracted text]
// DIR/00000.txt, 00001.txt and so on are UTF-8. A document has one paragraph a line and no blank line; one blank line
// ends it. So `bert data create --split-sentences` reads back exactly these documents: nowhere are two blank lines, and
// every blank line ends a document (data/text/paragraphs.h). No document continues in another file.
//
// Note [Resuming an extraction]
// A file is there when it is whole. Until the directory is complete it holds DIR/.extract.unfinished, which the process
// locks, and at the end DIR/.extract.json. After every finished file DIR/.extract.state is replaced. It has
// - the settings: options that decide the result, and sizes, times of change and names of the input files;
// - the counts up to the last document of that file, and the place in the input after this document. The reader of the
//   input defines the place: ReadPlace in document_reader.h, DumpPlace in data/wikitext/extract_dump.h.
// A killed extraction leaves whole files. The next one into the same directory
// - is refused with DataError, if its settings are others;
// - removes files that the state does not count;
// - reads the counted files again, if duplicates are dropped: the tables of duplicates depend on the documents that stay
//   and on nothing else. This takes the time of reading the files, with near_duplicates that of computing their MinHash;
// - goes on at the place. The documents after it, at most one file of them, are made again.
// The result is that of an extraction that was not killed, to the byte and to the count. Without a state, because no
// file was finished or because the input is a pipe, the next one starts over.
//
// Note [Duplicates]
// The first of several equal documents stays. Equal are documents with the same words, whatever the white space between
// them: 64 bits of XXH3 are compared. With near_duplicates, a document is also dropped if its set of word 5-grams (in
// lower case, without accents and punctuation) has an estimated Jaccard similarity >= 0.8 with an earlier document's:
// data/corpus/near_duplicates.h, which also says how much memory a document takes. Documents are compared with those that
// stay.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "data/corpus/extraction_directory.h"

namespace bert {

struct ExtractOptions {
  int64_t min_characters = 20;  // without ASCII white space; documents with fewer are near-empty
  int64_t min_words = 0;        // likewise, words as of data/corpus/words.h
  bool keep_duplicates = false;
  bool near_duplicates = false;
  int64_t most_duplicate_bytes = 2'000'000'000;  // memory for finding duplicates
  int64_t file_bytes = 100'000'000;              // a file is ended when it has as many
  bool with_titles = false;                      // a document begins with a line that has its title
};

struct ExtractStatistics {
  int64_t documents = 0, characters = 0, bytes = 0, files = 0;  // written
  int64_t near_empty = 0, duplicates = 0, near_duplicates = 0;  // documents dropped
  int64_t zero_bytes = 0;                                       // dropped, also of documents that were dropped

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("documents", self.documents);
    visit("characters", self.characters);
    visit("bytes", self.bytes);
    visit("files", self.files);
    visit("near_empty", self.near_empty);
    visit("duplicates", self.duplicates);
    visit("near_duplicates", self.near_duplicates);
    visit("zero_bytes", self.zero_bytes);
  }
};

/// The input of an extraction, for Note [Resuming an extraction].
struct ExtractInput {
  Settings settings;  // all that decides which documents are added, in which order
  /// Returns the place in the input after the document that is added last. Empty: the extraction cannot be resumed.
  std::function<Figures()> place;
};

/// Writes documents into a directory, in the order of the calls. Not for several threads at once.
class ExtractedText {
 public:
  /// Creates `directory`, or takes one that is empty or that a killed extraction left. Throws IoError for any other
  /// directory, and if another process extracts into it; DataError if the killed extraction had other settings, or if its
  /// files were changed.
  ExtractedText(std::string directory, const ExtractOptions& options, ExtractInput input = {});
  ~ExtractedText();
  ExtractedText(const ExtractedText&) = delete;
  ExtractedText& operator=(const ExtractedText&) = delete;

  /// The place from which on documents are to be added: after those of a killed extraction. Empty at the beginning.
  [[nodiscard]] const Figures& place() const;

  /// Writes a document of valid UTF-8, unless it is to be dropped; returns true if it was written. Each line of `text`
  /// that is not blank is a paragraph; runs of ASCII white space in it become single spaces, and zero
  /// bytes are dropped. Throws IoError, and
  /// DataError if the search for duplicates takes more memory than allowed.
  /// With titles `title` is the first line of the document. It does not count for limits, and duplicates are those of
  /// the text after it.
  bool add(std::string_view text, std::string_view title = {});

  /// Ends the last file, writes `summary`, a JSON object, to DIR/.extract.json, and marks the directory as complete.
  void finish(const std::string& summary);

  [[nodiscard]] const ExtractStatistics& statistics() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bert
