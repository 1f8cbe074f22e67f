// The result of `bert data extract`: a directory of text files, without duplicates and near-empty documents.
//
// Note [Extracted text]
// DIR/00000.txt, 00001.txt and so on are UTF-8. A document has one paragraph a line and no blank line; one blank line
// ends it. So `bert data create --split-sentences` reads back exactly these documents: nowhere are two blank lines, and
// every blank line ends a document (data/text/paragraphs.h). No document continues in another file.
//
// A file is there when it is whole. Until the directory is complete it holds DIR/.extract.unfinished, and then DIR/.extract.json.
// A killed extraction leaves whole files and that mark; the next one into the same directory removes them and starts
// over.
//
// Note [Duplicates]
// The first of several equal documents stays. Equal are documents with the same words, whatever the white space between
// them: 128 bits of XXH3 are compared. With near_duplicates, a document is also dropped if its set of word 5-grams (in
// lower case, without accents and punctuation) has an estimated Jaccard similarity >= 0.8 with an earlier document's:
// data/corpus/near_duplicates.h. A document that stays takes 23 to 46 bytes of memory for the former, and 220 to
// 311 more for the latter: the classes there say of what.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace bert {

struct ExtractOptions {
  int64_t min_characters = 20;  // without ASCII white space; documents with fewer are near-empty
  int64_t min_words = 0;        // likewise, words as of data/corpus/words.h
  bool keep_duplicates = false;
  bool near_duplicates = false;
  int64_t most_duplicate_bytes = 2'000'000'000;  // memory for finding duplicates
  int64_t file_bytes = 100'000'000;              // a file is ended when it has as many
};

struct ExtractStatistics {
  int64_t documents = 0, characters = 0, bytes = 0, files = 0;  // written
  int64_t near_empty = 0, duplicates = 0, near_duplicates = 0;  // documents dropped
};

/// Writes documents into a directory, in the order of the calls. Not for several threads at once.
class ExtractedText {
 public:
  /// Creates `directory`, or takes one that is empty or that a killed extraction left. Throws IoError for any other
  /// directory, and if another process extracts into it.
  ExtractedText(std::string directory, const ExtractOptions& options);
  ~ExtractedText();
  ExtractedText(const ExtractedText&) = delete;
  ExtractedText& operator=(const ExtractedText&) = delete;

  /// Writes a document of valid UTF-8, unless it is to be dropped; returns true if it was written. Each line of `text`
  /// that is not blank is a paragraph; runs of ASCII white space in it become single spaces. Throws IoError, and
  /// DataError if the search for duplicates takes more memory than allowed.
  bool add(std::string_view text);

  /// Ends the last file, writes `summary`, a JSON object, to DIR/.extract.json, and marks the directory as complete.
  void finish(const std::string& summary);

  [[nodiscard]] const ExtractStatistics& statistics() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bert
