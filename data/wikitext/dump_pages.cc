#include "data/wikitext/dump_pages.h"

#include <expat.h>
#include <fmt/format.h>

#include <charconv>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "data/io/error.h"

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

  WikiNamespaces namespaces_;

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

  [[noreturn]] void fail(const std::string& why) {
    throw DataError(name_ + " (unpacked)", XML_GetCurrentByteIndex(parser_), why);
  }

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
    if (path_.size() == kMostDepth) fail("elements are nested too deep for a dump of MediaWiki");
    path_.emplace_back(element);
    content_ = nullptr;
    most_ = kMostName;
    if (at("mediawiki", "page")) page_ = {};
    if (at("page", "revision")) page_.text.clear(), page_.model = "wikitext";
    if (at("page", "redirect")) page_.redirect = true;
    if (at("page", "title")) content_ = &page_.title;
    if (at("revision", "model")) page_.model.clear(), content_ = &page_.model;
    if (at("revision", "text")) content_ = &page_.text, most_ = kMostText;
    if (at("page", "id") || at("page", "ns") || at("namespaces", "namespace")) {
      number_.clear();
      content_ = &number_;
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
    if (at("page", "id")) page_.id = number(number_);
    if (at("page", "ns")) page_.name_space = static_cast<int>(number(number_));
    if (at("namespaces", "namespace") && !number_.empty()) namespaces_.add(number_, namespace_key_);
    if (at("mediawiki", "page")) {
      receive_(std::move(page_));
      page_ = {};
    }
    path_.pop_back();
    content_ = nullptr;
  }

  std::string name_;
  std::function<void(DumpPage)> receive_;
  XML_Parser parser_ = XML_ParserCreate("UTF-8");
  std::exception_ptr error_;
  std::vector<std::string> path_;   // open elements
  std::string* content_ = nullptr;  // takes the characters
  size_t most_ = kMostName;         // bytes of it
  DumpPage page_;
  std::string number_;
  int namespace_key_ = 0;
};

DumpPages::DumpPages(std::string name, std::function<void(DumpPage page)> receive)
    : impl_(std::make_unique<Impl>(std::move(name), std::move(receive))) {}
DumpPages::~DumpPages() = default;
void DumpPages::parse(std::string_view bytes) { impl_->parse(bytes, false); }
void DumpPages::finish() { impl_->parse({}, true); }
const WikiNamespaces& DumpPages::namespaces() const { return impl_->namespaces_; }

}  // namespace bert
