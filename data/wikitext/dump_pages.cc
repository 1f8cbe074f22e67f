#include "data/wikitext/dump_pages.h"

#include <expat.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "data/io/error.h"
#include "data/wikitext/text_pieces.h"
#include "data/wikitext/wiki_names.h"

namespace bert {
namespace {

/// More than a hundred times the largest page that MediaWiki stores ($wgMaxArticleSize: 2 MB).
constexpr size_t kMostText = size_t{256} << 20;
constexpr size_t kMostName = 4096;               // bytes of a title, a number or the name of a namespace
constexpr size_t kMostDepth = 64;                // of elements; a dump has 5
constexpr size_t kMostParsed = size_t{1} << 20;  // bytes for one call of expat, which takes an int

int64_t number(std::string_view digits) {
  int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

/// "zh-hans", "zh_yuewiki": the language, "zh".
std::string language_of(std::string_view code) {
  return ascii_lower(code.substr(0, std::min(code.find("wik"), code.find_first_of("-_"))));
}

/// True for "#REDIRECT [[Title]]" in the language of any large Wikipedia. Source: MediaWiki's WikitextContent.php.
bool begins_with_redirect(std::string_view text) {
  static const std::unordered_set<std::string_view> words = [] {
    std::unordered_set<std::string_view> made;
    for_each_entry(kRedirectWords, [&](std::string_view word) { made.insert(word); });
    return made;
  }();
  constexpr size_t kLongest = 100;  // bytes before the title
  text = trim(text.substr(0, text.find("[[")));
  constexpr std::string_view kWide = "＃";
  if (text.size() > kLongest || (!text.starts_with('#') && !text.starts_with(kWide))) return false;
  text.remove_prefix(text.front() == '#' ? 1 : kWide.size());
  if (text.ends_with(':')) text.remove_suffix(1);
  return words.contains(folded_name(trim(text)));
}

}  // namespace

class DumpPages::Impl {
 public:
  Impl(std::string name, std::function<void(DumpPage)> receive) : name_(std::move(name)), receive_(std::move(receive)) {
    if (parser_ == nullptr) throw std::bad_alloc();
    XML_SetUserData(parser_, this);
    XML_SetElementHandler(
        parser_,
        [](void* self, const XML_Char* element, const XML_Char** attributes) {
          static_cast<Impl*>(self)->guarded([=](Impl& impl) { impl.begin(element, attributes); });
        },
        [](void* self, const XML_Char*) { static_cast<Impl*>(self)->guarded([](Impl& impl) { impl.end(); }); });
    XML_SetCharacterDataHandler(parser_, [](void* self, const XML_Char* text, int bytes) {
      static_cast<Impl*>(self)->guarded([=](Impl& impl) { impl.characters({text, static_cast<size_t>(bytes)}); });
    });
    XML_SetStartDoctypeDeclHandler(parser_, [](void* self, const XML_Char*, const XML_Char*, const XML_Char*, int) {
      static_cast<Impl*>(self)->guarded(
          [](Impl& impl) { impl.fail("a document type, which no dump of MediaWiki has"); });
    });
  }
  ~Impl() { XML_ParserFree(parser_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void parse(std::string_view bytes, bool last) {
    do {
      const std::string_view part = bytes.substr(0, kMostParsed);
      bytes.remove_prefix(part.size());
      parsed_ += static_cast<int64_t>(part.size());
      const int final_part = last && bytes.empty() ? 1 : 0;
      const XML_Status status = XML_Parse(parser_, part.data(), static_cast<int>(part.size()), final_part);
      if (error_) std::rethrow_exception(error_);
      if (status != XML_STATUS_OK) {
        const XML_Error error = XML_GetErrorCode(parser_);
        if (error == XML_ERROR_NO_MEMORY) throw std::bad_alloc();
        const bool cut_off = error == XML_ERROR_NO_ELEMENTS || error == XML_ERROR_UNCLOSED_TOKEN ||
                             error == XML_ERROR_PARTIAL_CHAR || error == XML_ERROR_UNCLOSED_CDATA_SECTION;
        fail(cut_off ? fmt::format("the dump ends here, inside {}; it is cut off", place())
                     : fmt::format("bad XML in {}: {}", place(), XML_ErrorString(error)));
      }
    } while (!bytes.empty());
  }

  void skip_to(int64_t byte) { skipped_ = byte - parsed_; }

  WikiNamespaces namespaces_;
  std::string language_;
  std::optional<int64_t> first_page_;

 private:
  /// Exceptions may not pass through expat, which is C: keeps the exception and stops the parser.
  template <class Action>
  void guarded(const Action& action) {
    if (error_) return;
    try {
      action(*this);
    } catch (...) {
      error_ = std::current_exception();
      XML_StopParser(parser_, XML_FALSE);
    }
  }

  [[noreturn]] void fail(const std::string& why) { throw DataError(name_ + " (unpacked)", byte(), why); }

  /// The place in the dump of the element or text that is being parsed.
  [[nodiscard]] int64_t byte() const { return XML_GetCurrentByteIndex(parser_) + skipped_; }

  [[nodiscard]] std::string place() const {
    if (path_.empty()) return "no element";
    return "<" + path_.back() + ">" + (page_.title.empty() ? "" : " of the page \"" + page_.title + "\"");
  }

  [[nodiscard]] bool at(std::string_view parent, std::string_view element) const {
    return path_.size() > 1 && path_.back() == element && path_[path_.size() - 2] == parent;
  }

  void begin(std::string_view element, const XML_Char** attributes) {
    if (path_.empty() && element != "mediawiki")
      fail(fmt::format("the file is XML of <{}>; a dump of MediaWiki begins with <mediawiki>", element));
    if (path_.empty()) {
      for (const XML_Char** attribute = attributes; *attribute != nullptr; attribute += 2)
        if (std::string_view(attribute[0]) == "xml:lang") language_ = language_of(attribute[1]);
    }
    if (path_.size() == kMostDepth) fail("elements are nested too deep for a dump of MediaWiki");
    path_.emplace_back(element);
    content_ = nullptr;
    most_ = kMostName;
    if (at("mediawiki", "page")) {
      page_ = {};
      has_namespace_ = false;
      if (!first_page_) first_page_ = byte();
    }
    if (at("page", "revision")) page_.text.clear(), page_.model = "wikitext";
    if (at("page", "redirect")) page_.redirect = true;
    if (at("page", "title")) content_ = &page_.title;
    if (at("revision", "model")) page_.model.clear(), content_ = &page_.model;
    if (at("revision", "text")) content_ = &page_.text, most_ = kMostText;
    if (at("page", "id") || at("page", "ns") || at("namespaces", "namespace") || at("siteinfo", "dbname")) {
      value_.clear();
      content_ = &value_;
    }
    if (at("namespaces", "namespace")) {
      for (; *attributes != nullptr; attributes += 2)
        if (std::string_view(attributes[0]) == "key") namespace_key_ = static_cast<int>(number(attributes[1]));
    }
  }

  void characters(std::string_view text) {
    if (content_ == nullptr) return;
    if (text.size() > most_ - content_->size()) fail(fmt::format("{} has more than {} bytes", place(), most_));
    content_->append(text);
  }

  void end() {
    if (at("page", "id")) page_.id = number(value_);
    if (at("siteinfo", "dbname") && language_.empty()) language_ = language_of(value_);
    if (at("page", "ns")) {
      page_.name_space = static_cast<int>(number(value_));
      has_namespace_ = true;
    }
    if (at("namespaces", "namespace") && !value_.empty()) {
      namespaces_.add(value_, namespace_key_);
      listed_.insert_or_assign(folded_name(value_), namespace_key_);
    }
    if (at("mediawiki", "page")) {
      if (!has_namespace_) page_.name_space = namespace_of(page_.title);
      page_.redirect = page_.redirect || begins_with_redirect(page_.text);
      page_.end = byte() + XML_GetCurrentByteCount(parser_);
      receive_(std::move(page_));
      page_ = {};
    }
    path_.pop_back();
    content_ = nullptr;
  }

  /// The namespace of a title. Names that <siteinfo> does not list are words: "Image: a Film" is an article elsewhere.
  [[nodiscard]] int namespace_of(std::string_view title) const {
    const size_t colon = title.find(':');
    if (colon == std::string_view::npos) return WikiNamespaces::kArticle;
    const std::string_view prefix = title.substr(0, colon);
    if (listed_.empty()) return namespaces_.find(prefix);
    const auto found = listed_.find(folded_name(prefix));
    return found == listed_.end() ? WikiNamespaces::kArticle : found->second;
  }

  std::string name_;
  std::function<void(DumpPage)> receive_;
  XML_Parser parser_ = XML_ParserCreate("UTF-8");
  std::exception_ptr error_;
  std::vector<std::string> path_;   // open elements
  std::string* content_ = nullptr;  // takes the characters
  size_t most_ = kMostName;         // bytes of it
  DumpPage page_;
  std::string value_;  // of a short element
  int namespace_key_ = 0;
  std::unordered_map<std::string, int> listed_;  // the names in <siteinfo>, folded
  bool has_namespace_ = false;                   // the page has <ns>
  int64_t parsed_ = 0;                           // bytes given to the parser
  int64_t skipped_ = 0;                          // bytes of the dump that were not given to it
};

DumpPages::DumpPages(std::string name, std::function<void(DumpPage page)> receive)
    : impl_(std::make_unique<Impl>(std::move(name), std::move(receive))) {}
DumpPages::~DumpPages() = default;
void DumpPages::parse(std::string_view bytes) { impl_->parse(bytes, false); }
void DumpPages::skip_to(int64_t byte) { impl_->skip_to(byte); }
std::optional<int64_t> DumpPages::first_page() const { return impl_->first_page_; }
void DumpPages::finish() { impl_->parse({}, true); }
const WikiNamespaces& DumpPages::namespaces() const { return impl_->namespaces_; }
const std::string& DumpPages::language() const { return impl_->language_; }

}  // namespace bert
