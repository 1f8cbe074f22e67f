#include "tests/fuzz/corpus_formats.h"

#include "data/corpus/document_reader.h"
#include "data/io/error.h"
#include "data/wikitext/extract_dump.h"
#include "tests/support/corpus_testing.h"
#include "tests/support/packed_text.h"
#include "tests/support/text_file.h"

namespace bert::testing {
namespace {

/// Forty documents from number `first` on.
std::string some_prose(int first = 0) {
  std::string text;
  for (int i = first; i < first + 40; ++i)
    text += "Document " + std::to_string(i * i) + " has caf\u00e9s, \u4e2d\u6587 and\nlines.\n\n";
  return text;
}

/// Not all bytes of a packed file have to do with its text: a gzip header has a time. A copy that gives the same
/// documents counts as refused, because no difference is silent. The file has one member: a file of several that is cut
/// where one ends is whole.
Format packed(const std::string& directory, const std::string& name, std::string (*pack)(std::string_view)) {
  const std::string text = some_prose();
  const std::string bytes = pack(text);
  const std::vector<std::string> want = documents_of({write_text(directory + "/plain", text)});
  const auto read = [=](const std::string& place) {
    const std::string path = place + "/" + name;
    if (documents_of({path}) != want) {
      if (read_file(path) == bytes) throw std::logic_error("what is valid gives other documents");
    } else if (read_file(path) != bytes) {
      throw DataError("the damage changes no document");
    }
  };
  return format_of_files(name, true, directory, {{name, bytes}}, read, pack(some_prose(100)));
}

Format json_lines(const std::string& directory) {
  std::string text;
  for (int i = 0; i < 20; ++i)
    text +=
        R"({"id": )" + std::to_string(i) + R"(, "a": {"b": "caf\u00e9 \"x\"", "c": [1.5, null, {"b": ""}]}})" + "\n";
  return format_of_files("json lines", false, directory, {{"a.jsonl", text}}, [](const std::string& place) {
    for (const bool skip : {true, false})
      static_cast<void>(documents_of({place + "/a.jsonl"}, {.text_field = "a.b", .skip_bad_lines = skip}));
  });
}

Format other_encodings(const std::string& directory) {
  const std::string wide("\xFF\xFE\x61\0\n\0\x2D\x4E\x3D\xD8\x00\xDE", 12);
  return format_of_files("other encodings", false, directory,
                         {{"wide", wide}, {"GB18030", "\xD6\xD0\xCE\xC4\x81\x30\x81\x30.\n"}},
                         [](const std::string& place) {
                           static_cast<void>(documents_of({place + "/wide"}, {.encoding = "UTF-16"}));
                           static_cast<void>(documents_of({place + "/GB18030"}, {.encoding = "GB18030"}));
                         });
}

/// The articles of a dump, one string.
std::string articles_of(const std::string& path) {
  std::string articles;
  extract_dump(path, {.num_threads = 2},
               [&](const Article& article) { articles.append(article.title).append("\n").append(article.text); });
  return articles;
}

/// A dump of 300 articles from number `first` on.
std::string some_dump(int first) {
  std::string xml = "<mediawiki><siteinfo><namespaces><namespace key=\"6\">Datei</namespace></namespaces></siteinfo>\n";
  for (int i = first; i < first + 300; ++i) {
    const std::string number = std::to_string(i * i);
    xml += "<page><title>T" + number + "</title><ns>0</ns><revision><text>{{Box|a=" + number;
    xml += "}}[[Datei:x|y]]\n'''T" + number + "''' is [[a|number]] " + number + ".&lt;ref&gt;x&lt;/ref&gt;\n{|\n| ";
    xml += std::string(300, 'x') + number + "\n|}</text></revision></page>\n";
  }
  return xml + "</mediawiki>\n";
}

/// A dump of one stream of bzip2 with several blocks, and the same without bzip2, which has no checksums. A packed copy
/// that gives the same articles counts as refused, as in packed().
std::vector<Format> dumps(const std::string& directory) {
  const std::string xml = some_dump(0), other = some_dump(1000);
  const std::string want = articles_of(write_text(directory + "/dump.xml", xml)), bytes = bzip2(xml, 1);
  const auto read_packed = [=](const std::string& place) {
    const std::string path = place + "/dump.xml.bz2";
    if (articles_of(path) == want && read_file(path) != bytes) throw DataError("the damage changes no article");
  };
  const auto read_plain = [](const std::string& place) { static_cast<void>(articles_of(place + "/dump.xml")); };
  return {format_of_files("bz2 dump", true, directory, {{"dump.xml.bz2", bytes}}, read_packed, bzip2(other, 1)),
          format_of_files("dump", false, directory, {{"dump.xml", xml}}, read_plain, other)};
}

}  // namespace

std::vector<Format> corpus_formats(const std::string& directory) {
  std::vector<Format> formats = dumps(directory);
  formats.insert(formats.end(), {packed(directory, "text.gz", gzip_of), packed(directory, "text.bz2", bzip2_of),
                                 packed(directory, "text.xz", xz_of), packed(directory, "text.zst", zstd_of),
                                 json_lines(directory), other_encodings(directory)});
  return formats;
}

}  // namespace bert::testing
