// Documents from files of any kind.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "data/corpus/document_reader.h"
#include "data/io/error.h"
#include "tests/support/corpus_testing.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using namespace std::string_literals;
using testing::Contains;
using testing::documents_of;
using testing::run_shell;
using testing::TemporaryDirectory;
using testing::write_text;
using Documents = std::vector<std::string>;

/// The message of the DataError that reading throws, or "".
std::string refusal(const std::string& path, const ReaderOptions& options = {}) {
  return testing::message_of<DataError>([&] { documents_of({path}, options); });
}

/// Text that no compressor makes small: the n-th line holds pseudorandom words.
std::string some_text(size_t lines) {
  std::string text;
  uint64_t state = 1;
  for (size_t i = 0; i < lines; ++i) {
    for (int word = 0; word < 12; ++word) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      text += std::to_string(state >> 40) + " ";
    }
    text += "caf\u00e9 \u4e2d\u6587.\n";
  }
  return text;
}

const ReaderOptions kLines{.layout = Layout::kLines};

TEST_CASE("A packed file is the same documents as the file, by its bytes and whatever its name", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string plain = write_text(directory.path("plain"), some_text(9000));
  const Documents want = documents_of({plain}, kLines);
  REQUIRE(want.size() == 9000);
  const std::string half = directory.path("half");
  for (const std::string program : {"gzip", "bzip2", "xz", "zstd"}) {
    CAPTURE(program);
    const std::string packed = directory.path("packed"), twice = directory.path("twice");
    if (!run_shell(program + " -c " + plain + " >" + packed)) BERT_SKIP(program + " is not installed");
    CHECK(documents_of({packed}, kLines) == want);
    // Several members, as `cat` and parallel compressors make them; the cut is in the middle of a line.
    REQUIRE(run_shell("head -c 400001 " + plain + " | " + program + " -c >" + twice + " && tail -c +400002 " + plain +
                      " | " + program + " -c >>" + twice));
    CHECK(documents_of({twice}, kLines) == want);

    const std::string bytes = read_file(packed);
    for (const size_t kept : {bytes.size() - 1, bytes.size() / 2, size_t{20}}) {
      write_text(half, bytes.substr(0, kept));
      CHECK_THAT(refusal(half, kLines), Contains(half + ": byte ") && Contains(program + " data ends too early"));
    }
    std::string damaged = bytes;
    damaged[bytes.size() / 2] = static_cast<char>(damaged[bytes.size() / 2] ^ 0x10);
    CHECK_THAT(refusal(write_text(half, damaged), kLines), Contains("cannot unpack the " + program + " data"));
    for (const std::string& garbage : {"\n"s, "garbage after the end"s, std::string(3, '\0')})
      CHECK_THAT(refusal(write_text(half, bytes + garbage), kLines),
                 Contains(half + ": byte ") && Contains(program + " data"));
  }
}

TEST_CASE("A file that is named as packed and is not is refused", "[unit][corpus]") {
  const TemporaryDirectory directory;
  for (const std::string name : {"a.gz", "a.bz2", "a.xz", "a.zst"}) {
    for (const std::string& content : {""s, "text\n"s})
      CHECK_THAT(refusal(write_text(directory.path(name), content)), Contains("does not begin as"));
  }
  CHECK_THAT(refusal(write_text(directory.path("a"), "PK\x03\x04")), Contains(": is zip; unpack it first"));
}

TEST_CASE("A packed file that wants more memory than allowed is refused", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string packed = directory.path("a.zst");
  if (!run_shell("head -c 300000000 /dev/zero | zstd --long=28 -c >" + packed)) BERT_SKIP("zstd is not installed");
  CHECK_THAT(refusal(packed), Contains("cannot unpack the zstd data") && Contains("too much memory"));
}

TEST_CASE("Prose is documents as in sentence_splitter", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const auto prose = [&](const std::string& text) { return documents_of({write_text(directory.path("a"), text)}); };
  CHECK(prose("The cat\nsat.\n\nA bird\nsang.\n") == Documents{"The cat\nsat.\n", "A bird\nsang.\n"});
  CHECK(prose("\ufeff\r\n\nI\r\n\r\n\r\nIt began.\r\n\r\nIt went\non.\n\n\n\nII") ==
        Documents{"I\r\n", "It began.\r\n\nIt went\non.\n", "II\n"});
  CHECK(prose("").empty());
  CHECK(prose("\n \n\u00a0\n").empty());
  // A single pair of blank lines in a long text does not divide it into two documents.
  std::string text = "A.\n\n\n";
  for (int i = 0; i < 20000; ++i) text += "One sentence of a paragraph of its own.\n\n";
  CHECK(prose(text).size() == 20001);
}

TEST_CASE("Sentences are documents as in Google's script", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string a = write_text(directory.path("a"), "a b\n c\n\n\u3000\nd"),
                    b = write_text(directory.path("b"), "e\n\u00a0\nf\r\n"),
                    mark = write_text(directory.path("mark"), "\ufeff\ng");
  const ReaderOptions kSentences{.layout = Layout::kSentences};
  // A document goes on in the next file; a line with a byte order mark alone is not blank.
  CHECK(documents_of({a, b, mark}, kSentences) == Documents{"a b\n c\n", "d\ne\n", "f\r\n\ufeff\ng\n"});
}

TEST_CASE("Lines and files are documents", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string a = write_text(directory.path("a"), "\ufeffone\r\n\n two \n\u00a0\nthree");
  CHECK(documents_of({a}, kLines) == Documents{"one", "two", "three"});
  CHECK(documents_of({a, a}, {.layout = Layout::kFiles}) ==
        Documents{"one\r\n\n two \n\u00a0\nthree\n", "one\r\n\n two \n\u00a0\nthree\n"});
}

TEST_CASE("JSON lines give one field", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string a = directory.path("a.jsonl");
  const auto read = [&](const std::string& text, const std::string& field = "text") {
    write_text(a, text);
    return documents_of({a}, {.text_field = field});
  };
  CHECK(read("{\"text\": \"a\\nb \\u00e9\"}\r\n\n{\"n\": [{\"text\": 1}], \"text\": \"c\", \"o\": {\"text\": 2}}") ==
        Documents{"a\nb \u00e9", "c"});
  CHECK(read(R"({"text": 1, "a": {"x": {"b": 0}, "b": {"c": "yes"}, "c": 4}})", "a.b.c") == Documents{"yes"});
  CHECK(read("{\"text\": \" \"}\n{\"text\": \"x\"}") == Documents{"x"});
  const auto refused = [&](const std::string& line, const std::string& field = "text") {
    write_text(a, "{\"text\": \"first\", \"a\": {\"b\": \"first\"}}\n" + line);
    return refusal(a, {.text_field = field});
  };
  CHECK_THAT(refused("{\"text\": \"x\""), Contains(a + ": line 2: no JSON object: it is wrong at byte 13"));
  CHECK_THAT(refused(R"({"body": "x", "id": {"text": "y"}})"),
             Contains("line 2: no field text; the object has body, id."));
  CHECK_THAT(refused("{}"), Contains("the object has no fields"));
  CHECK_THAT(refused("[1]"), Contains("line 2: no JSON object, but a list"));
  CHECK_THAT(refused("7"), Contains("line 2: no JSON object, but a number"));
  CHECK_THAT(refused("{\"text\": null}"), Contains("line 2: the field text is null, not a string"));
  CHECK_THAT(refused("{\"text\": {\"text\": \"x\"}}"), Contains("the field text is an object, not a string"));
  CHECK_THAT(refused(R"({"text": "a", "text": "b"})"), Contains("line 2: the field text is there twice"));
  CHECK_THAT(refused(R"({"a": {"b": "x"}, "a": {"b": "y"}})", "a.b"), Contains("the field a.b is there twice"));
  CHECK_THAT(refused("{\"text\": \"a\"} x"), Contains("no JSON object"));
  CHECK_THAT(refused("{\"x\": " + std::string(1000000, '[')), Contains("no JSON object"));

  write_text(a, "{\"text\": \"x\"}\nno\n{}\n{\"text\": \"y\"}\n");
  DocumentReader reader({a}, {.skip_bad_lines = true});
  std::string document;
  CHECK(reader.next(document));
  CHECK(reader.next(document));
  CHECK(document == "y");
  CHECK_FALSE(reader.next(document));
  CHECK(reader.statistics().bad_lines == 2);
  CHECK(documents_of({write_text(directory.path("b.txt"), "{\"text\": \"x\"}")}, {.layout = Layout::kJsonLines}) ==
        Documents{"x"});
}

TEST_CASE("JSON lines of Python's json are read, with NaN and halves of surrogate pairs", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string a = write_text(directory.path("a.jsonl"),
                                   R"({"score": NaN, "l": [Infinity, -Infinity], "text": "NaN \"NaN\" Infinity"}
{"text": "a\ud800b\udc00", "other": "\uD83D"}
{"text": "\ud83d\ude00 \ud83d\ud83d\ude00 \\ud800"}
)");
  // Python 3.11: [json.loads(line)["text"] for line in open("a.jsonl")], halves of pairs as U+FFFD.
  DocumentReader reader({a}, {});
  Documents documents;
  for (std::string document; reader.next(document);) documents.push_back(document);
  CHECK(documents == Documents{"NaN \"NaN\" Infinity", "a\uFFFDb\uFFFD", "\U0001F600 \uFFFD\U0001F600 \\ud800"});
  CHECK(reader.statistics().invalid_sequences == 4);
  write_text(a, "{\"text\": \"x\", \"n\": Nan}");
  CHECK_THAT(refusal(a, {}), Contains("no JSON object"));
}

TEST_CASE("A directory is its files, sorted, without hidden ones, and links may form circles", "[unit][corpus]") {
  const TemporaryDirectory directory;
  namespace fs = std::filesystem;
  fs::create_directories(directory.path("d/b"));
  fs::create_directories(directory.path("d/.git"));
  write_text(directory.path("d/c.jsonl"), "{\"text\": \"json\"}");
  write_text(directory.path("d/b/z"), "deep");
  write_text(directory.path("d/B"), "upper");
  write_text(directory.path("d/a.txt"), "first");
  write_text(directory.path("d/.hidden"), "hidden");
  write_text(directory.path("d/.git/x"), "hidden");
  REQUIRE(mkfifo(directory.path("d/pipe").c_str(), 0600) == 0);
  fs::create_directory_symlink("..", directory.path("d/b/up"));
  if (run_shell("gzip " + directory.path("d/a.txt"))) CHECK(fs::exists(directory.path("d/a.txt.gz")));
  DocumentReader reader({directory.path("d")}, {});
  Documents found;
  for (std::string document; reader.next(document);) found.push_back(document);
  CHECK(found == Documents{"upper\n", "first\n", "deep\n", "json"});
  CHECK(reader.statistics().skipped_files == 3);
  CHECK(reader.statistics().files == 4);
  CHECK(reader.statistics().documents == 4);
  CHECK(reader.statistics().stored_bytes == reader.stored_bytes());

  fs::create_symlink("nowhere", directory.path("d/link"));
  CHECK_THROWS_AS(DocumentReader({directory.path("d")}, {}), InputMissing);
  CHECK_THROWS_AS(DocumentReader({directory.path("d/.git/none")}, {}), InputMissing);
  fs::create_directories(directory.path("empty/.git"));
  CHECK_THROWS_AS(DocumentReader({directory.path("empty")}, {}), InputMissing);
}

TEST_CASE("Reading goes on after any document as if it had not been interrupted", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string a = write_text(directory.path("a"), "\ufeffone\r\ntwo\n\n\n\nthree \xFF\n\n\n\nfour\nfour"),
                    b = write_text(directory.path("b"), "\nfive\n\n\u3000\n\nsix\n"),
                    c = write_text(directory.path("c.jsonl"),
                                   "{\"text\": \"seven\"}\nbad\n\n{\"text\": \"eight\"}\nbad\n"),
                    d = write_text(directory.path("d"), "nine\n\n\nten");
  for (const Layout layout : {Layout::kSentences, Layout::kProse, Layout::kLines, Layout::kFiles}) {
    const std::vector<std::string> paths = {a, b, c, d, a};
    const ReaderOptions options{.layout = layout, .skip_bad_lines = true};
    DocumentReader whole(paths, options);
    Documents all;
    std::vector<ReadPlace> places = {whole.place()};
    for (std::string document; whole.next(document); places.push_back(whole.place())) all.push_back(document);
    REQUIRE(all.size() >= 6);
    for (size_t i = 0; i < places.size(); ++i) {
      CAPTURE(static_cast<int>(layout), i);
      DocumentReader rest(paths, options);
      rest.go_to(places[i]);
      Documents found(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i));
      for (std::string document; rest.next(document);) found.push_back(document);
      CHECK(found == all);
      const auto counts = [](const ReadStatistics& statistics) {
        std::vector<int64_t> values;
        ReadStatistics::visit_fields(statistics, [&](const char*, int64_t value) { values.push_back(value); });
        return values;
      };
      CHECK(counts(rest.statistics()) == counts(whole.statistics()));
    }
  }
  DocumentReader reader({d}, kLines);
  CHECK_THROWS_AS(reader.go_to({.file = 2}), DataError);
  CHECK_THROWS_AS(reader.go_to({.file = 0, .lines = 5}), DataError);
}

TEST_CASE("A pipe is read, and a file that changes while it is read is refused", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string pipe = directory.path("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  {
    const std::jthread writer([&] { write_text(pipe, "one\n\ntwo\n"); });
    CHECK(documents_of({pipe}) == Documents{"one\n", "two\n"});
  }
  const std::string growing = write_text(directory.path("a"), some_text(50000));
  DocumentReader reader({growing}, kLines);
  std::string document;
  REQUIRE(reader.next(document));
  std::ofstream(growing, std::ios::app) << "more\n";
  try {
    while (reader.next(document)) {
    }
    FAIL("accepted");
  } catch (const DataError& error) {
    CHECK_THAT(error.what(), Contains(growing + ": byte ") && Contains("the file changed while it was read"));
  }
}

TEST_CASE("Invalid UTF-8 is dropped and counted, also where pieces meet", "[unit][corpus]") {
  const TemporaryDirectory directory;
  // Characters of three bytes, so that most pieces end within one; one invalid byte in 40,000.
  std::string text, want;
  for (int i = 0; i < 100; ++i) {
    for (int k = 0; k < 13333; ++k) text += "\u4e2d";
    text += "\xE4\xB8\n";
  }
  DocumentReader reader({write_text(directory.path("a"), text)}, kLines);
  std::string document;
  size_t lines = 0, bytes = 0;
  while (reader.next(document)) {
    ++lines;
    bytes += document.size();
  }
  CHECK(lines == 100);
  CHECK(bytes == size_t{100} * 13333 * 3);
  CHECK(reader.statistics().invalid_sequences == 100);
  CHECK(reader.statistics().text_bytes == static_cast<int64_t>(text.size()));
}

TEST_CASE("What is no text is refused at once, also if it has no end", "[unit][corpus]") {
  const TemporaryDirectory directory;
  CHECK_THAT(refusal("/dev/zero"), Contains("/dev/zero: byte 0: is not text in UTF-8"));
  CHECK_THAT(refusal("/dev/urandom"), Contains("is not text in UTF-8"));
  // A hole at the end, as a crash may leave one.
  const std::string hole = write_text(directory.path("hole"), some_text(50000));
  std::filesystem::resize_file(hole, 20'000'000);
  CHECK_THAT(refusal(hole, kLines), Contains("of its first 20000000 bytes are zero"));
  CHECK_THAT(refusal(write_text(directory.path("a"), some_text(100)), {.most_document_bytes = 1000}),
             Contains("a document has more than 0 MB of text") && Contains("--layout"));
}

TEST_CASE("A line of 100 MB and a million combining marks are one document each", "[unit][corpus]") {
  const TemporaryDirectory directory;
  std::string text(100'000'000, 'a');
  text += "\n";
  for (int i = 0; i < 1'000'000; ++i) text += "\u0301";
  const Documents found = documents_of({write_text(directory.path("a"), text)}, kLines);
  REQUIRE(found.size() == 2);
  CHECK(found[0].size() == 100'000'000);
  CHECK(found[1].size() == 2'000'000);
}

}  // namespace
}  // namespace bert
