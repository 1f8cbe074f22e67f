#include "data/wikitext/entities.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "data/text/unicode.h"
#include "data/wikitext/wiki_names.h"

namespace bert {
namespace {

using Names = std::unordered_map<std::string_view, std::string>;

const Names& names() {
  static const Names table = [] {
    Names made;
    for_each_entry(kEntityNames, [&](std::string_view entry) {
      const size_t space = entry.find(' ');
      std::string& value = made[entry.substr(0, space)];
      const char* at = entry.data() + space;
      while (at < entry.data() + entry.size()) {
        uint32_t code = 0;
        at = std::from_chars(at + 1, entry.data() + entry.size(), code, 16).ptr;
        append_utf8(code, value);
      }
    });
    return made;
  }();
  return table;
}

/// The text of the reference `body`, which stands between '&' and ';'; nothing if it is none.
std::optional<std::string> decoded(std::string_view body) {
  if (!body.starts_with('#')) {
    const auto found = names().find(body);
    return found == names().end() ? std::nullopt : std::optional(found->second);
  }
  body.remove_prefix(1);
  const bool hexadecimal = body.starts_with('x') || body.starts_with('X');
  if (hexadecimal) body.remove_prefix(1);
  uint32_t code = 0;
  const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), code, hexadecimal ? 16 : 10);
  if (body.empty() || end != body.data() + body.size()) return std::nullopt;
  constexpr uint32_t kSurrogates = 0xD800, kAfterSurrogates = 0xE000, kEnd = 0x110000;
  const bool scalar =
      error == std::errc() && code > 0 && code < kEnd && (code < kSurrogates || code >= kAfterSurrogates);
  std::string text;
  if (scalar) append_utf8(code, text);
  return text;
}

}  // namespace

void decode_references(std::string_view text, std::string& out, void (*append)(std::string_view, std::string&)) {
  constexpr size_t kLongest = 40;  // bytes of a reference; the longest name has 31
  for (size_t at = 0; at < text.size();) {
    const size_t ampersand = std::min(text.find('&', at), text.size());
    out += text.substr(at, ampersand - at);
    at = ampersand;
    if (at == text.size()) break;
    const std::string_view rest = text.substr(at + 1, kLongest);
    const size_t end = rest.find(';');
    const auto value = end == std::string_view::npos ? std::nullopt : decoded(rest.substr(0, end));
    if (value && append != nullptr) {
      append(*value, out);
    } else {
      out += value ? std::string_view(*value) : "&";
    }
    at += value ? end + 2 : 1;
  }
}

}  // namespace bert
