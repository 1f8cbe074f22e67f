#include "data/wikitext/open_markup.h"

#include <algorithm>

#include "data/wikitext/links.h"
#include "data/wikitext/markup_scanner.h"

namespace bert {
namespace {

/// Things that may be open at once; MediaWiki's own limits are 40 levels of templates and 100 of the parser.
constexpr size_t kMaxDepth = 64;

}  // namespace

void OpenMarkup::open(Kind kind, size_t bytes) {
  if (frames_.size() >= kMaxDepth) return;
  const size_t begin = out_.size();
  frames_.push_back({.kind = kind, .begin = begin, .content = begin + bytes, .pipes = pipes_.size(), .braces = bytes});
}

void OpenMarkup::close(size_t index, std::string_view value) {
  frames_.resize(index + 1);
  replace(frames_.back().begin, value);
  frames_.pop_back();
}

void OpenMarkup::abandon() {
  const Frame frame = frames_.back();
  frames_.pop_back();
  if (frame.kind == Kind::kBraces) {
    // The rest of an unclosed template follows as text: its lines begin with '|'. The line of its name goes.
    const size_t end = std::min(out_.find('\n', frame.begin), out_.size());
    erase(frame.begin, end);
  } else if (frame.kind == Kind::kLink) {
    const size_t pipe = frame.pipes < pipes_.size() ? pipes_[frame.pipes] : out_.size();
    if (is_file_link(std::string_view(out_).substr(frame.content, pipe - frame.content), namespaces_)) {
      erase(frame.begin, out_.size());
    } else {
      erase(frame.begin, pipe < out_.size() ? pipe + 1 : frame.content);
    }
  }
}

void OpenMarkup::abandon_to(size_t depth) {
  while (frames_.size() > depth) abandon();
}

std::optional<size_t> OpenMarkup::innermost(Kind kind, std::initializer_list<Kind> between) const {
  for (size_t i = frames_.size(); i-- > 0;) {
    if (frames_[i].kind == kind) return i;
    if (std::ranges::find(between, frames_[i].kind) == between.end()) break;
  }
  return std::nullopt;
}

bool OpenMarkup::at_line_start(std::string_view allowed) const {
  constexpr size_t kMostMarks = 64;
  const size_t least = out_.size() - std::min(out_.size(), kMostMarks);
  for (size_t i = out_.size(); i > least; --i) {
    if (out_[i - 1] == '\n') return true;
    if (allowed.find(out_[i - 1]) == std::string_view::npos) return false;
  }
  return least == 0;
}

void OpenMarkup::replace(size_t begin, std::string_view value) {
  pipes_.resize(frames_.back().pipes);
  out_.resize(begin);
  out_ += value;
}

void OpenMarkup::separate_from_line_start() {
  if (frames_.empty() && (out_.empty() || out_.back() == '\n')) out_ += kSeparator;
}

void OpenMarkup::erase(size_t begin, size_t end) {
  out_.erase(begin, end - begin);
  while (!pipes_.empty() && pipes_.back() >= begin) pipes_.pop_back();
}

}  // namespace bert
