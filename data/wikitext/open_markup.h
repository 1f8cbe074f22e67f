// What a scan of wikitext has written, with the markup in it that is still open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/wikitext/wikitext.h"

namespace bert {

class OpenMarkup {
 protected:
  enum class Kind : uint8_t { kBraces, kLink, kExternal, kTable, kHtmlTable, kVariant };

  /// Something open. Its text lies in the output from `begin` on, with the opening characters, until its end is found.
  struct Frame {
    Kind kind;
    size_t begin = 0, content = 0;  // in the output: of the opening characters, and after them
    size_t pipes = 0;               // number of pipes that lie before
    size_t braces = 0;              // of kBraces, still open
    size_t end = 0;                 // of a caption: the place in the text of its end, if it is known
  };

  explicit OpenMarkup(const WikiNamespaces& namespaces) : namespaces_(namespaces) {}

  /// Opens a frame at the end of the output, whose opening characters are the next `bytes`. Beyond a depth of 64 nothing
  /// is opened.
  void open(Kind kind, size_t bytes);
  /// Closes the frame `index` with the frames inside. `value` takes the place of its text.
  void close(size_t index, std::string_view value);
  /// Gives up the innermost frame. Its text stays; its pipes may be those of the frame around it.
  void abandon();
  void abandon_to(size_t depth);

  /// The innermost frame of `kind` that has only frames of `between` inside.
  [[nodiscard]] std::optional<size_t> innermost(Kind kind, std::initializer_list<Kind> between) const;
  /// True if the output's line has only `allowed` characters: white space and marks of lists. Looks back a bounded
  /// number of bytes.
  [[nodiscard]] bool at_line_start(std::string_view allowed) const;

  /// Replaces the text of the innermost frame from `begin` on by `value`.
  void replace(size_t begin, std::string_view value);
  /// Where a template or a file has left nothing at the begin of a line, the text behind it does not begin the line.
  void separate_from_line_start();

  const WikiNamespaces& namespaces_;
  std::string out_;
  std::vector<Frame> frames_;
  std::vector<size_t> pipes_;  // places of '|' in out_, of all frames

 private:
  /// Erases a part of the output that only the innermost frame had, with its pipes.
  void erase(size_t begin, size_t end);
};

}  // namespace bert
