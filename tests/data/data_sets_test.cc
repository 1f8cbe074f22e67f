// Addresses and checksums of public data sets, dumps of Wikipedia, archives, and GLUE's form of MRPC.
#include "data/download/data_sets.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "data/download/mrpc.h"
#include "data/download/zip_archive.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/http_server.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HttpAnswer;
using testing::HttpQuestion;
using testing::HttpServer;
using testing::serve_file;
using testing::TemporaryDirectory;

std::string url_of(const DataSetFile& file) { return file.remote.host + file.remote.path; }

std::string from_hexadecimal(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST_CASE("Data sets have their addresses, and checksums where they are published", "[unit][download]") {
  std::vector<DataSetFile> files;
  std::vector<std::string> urls;
  for (const std::string& task : glue_tasks()) {
    for (const DataSetFile& file : glue_files(task)) files.push_back(file);
  }
  CHECK(glue_tasks().size() == 10);
  for (const std::string version : {"1.1", "2.0"}) {
    for (const DataSetFile& file : squad_files(version)) files.push_back(file);
  }
  std::set<std::string> digests;
  for (const DataSetFile& file : files) {
    urls.push_back(url_of(file));
    CHECK(file.remote.bytes.value_or(0) > 0);
    CHECK(file.remote.digest.hexadecimal.size() == 64);
    digests.insert(file.remote.digest.hexadecimal);
  }
  CHECK(digests.size() == files.size());
  const std::string glue = "https://dl.fbaipublicfiles.com/",
                    squad = "https://rajpurkar.github.io/SQuAD-explorer/dataset/";
  CHECK(urls == std::vector<std::string>{
                    glue + "glue/data/CoLA.zip", glue + "glue/data/SST-2.zip",
                    glue + "senteval/senteval_data/msr_paraphrase_train.txt",
                    glue + "senteval/senteval_data/msr_paraphrase_test.txt", glue + "glue/data/mrpc_dev_ids.tsv",
                    glue + "glue/data/QQP-clean.zip", glue + "glue/data/STS-B.zip", glue + "glue/data/MNLI.zip",
                    glue + "glue/data/QNLIv2.zip", glue + "glue/data/RTE.zip", glue + "glue/data/WNLI.zip",
                    glue + "glue/data/AX.tsv", squad + "train-v1.1.json", squad + "dev-v1.1.json",
                    squad + "train-v2.0.json", squad + "dev-v2.0.json"});
  CHECK(glue_files("MRPC")[2].remote.name == "MRPC/mrpc_dev_ids.tsv");
  CHECK(glue_files("QQP")[0].unpack_into == "QQP");
  CHECK(glue_files("AX")[0].unpack_into.empty());
}

TEST_CASE("Google's models have Google's names and Hugging Face's", "[unit][download]") {
  const std::string google = "https://storage.googleapis.com/bert_models/";
  CHECK(google_bert_models().size() == 9 * 2 + 23);
  std::set<std::string> urls;
  for (const std::string& name : google_bert_models()) {
    const DataSetFile file = google_bert_file(name);
    urls.insert(url_of(file));
    for (const auto& [member, sha256] : file.members) CHECK(sha256.size() == 64);
    CHECK((file.members.size() == 5 || file.members.empty()));
  }
  CHECK(urls.size() == 9 + 23);
  CHECK(url_of(google_bert_file("bert-base-cased")) == google + "2018_10_18/cased_L-12_H-768_A-12.zip");
  CHECK(url_of(google_bert_file("uncased_L-12_H-768_A-12")) == google + "2018_10_18/uncased_L-12_H-768_A-12.zip");
  CHECK(url_of(google_bert_file("uncased_L-2_H-128_A-2")) == google + "2020_02_20/uncased_L-2_H-128_A-2.zip");
  CHECK(url_of(google_bert_file("wwm_cased_L-24_H-1024_A-16")) == google + "2019_05_30/wwm_cased_L-24_H-1024_A-16.zip");
  CHECK_THROWS(google_bert_file("bert-huge"));
}

TEST_CASE("Published checksums are those of the real files", "[unit][download]") {
  const std::string shared = testing::shared_data();
  if (shared.empty()) BERT_SKIP("needs ../shared/data");
  CHECK(digest_of_file(shared + "/squad/dev-v1.1.json", "sha256") == squad_files("1.1")[1].remote.digest.hexadecimal);
  for (const std::string kind : {"cased", "uncased"}) {
    CHECK(digest_of_file(fmt::format("{}/vocab/bert-base-{}-vocab.txt", shared, kind), "sha256") ==
          google_bert_file("bert-base-" + kind).members.at("vocab.txt"));
  }
}

struct Dumps {
  HttpServer server;
  DownloadOptions options;
  explicit Dumps(HttpServer::Handler handler) : server(std::move(handler)) {
    options.retries = 0;
    options.mirrors = {server.url() + "/dumps"};
  }
  DataSetFile find(const std::string& language, const std::string& date) {
    Downloader downloader(options);
    return wikipedia_file(downloader, language, date);
  }
};

const std::string kSha1(40, 'a'), kOtherSha1(40, 'b');

TEST_CASE("The latest dump is named by its date, with the checksum of that date", "[unit][download]") {
  Dumps dumps([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (question.target != "/dumps/zh_min_nanwiki/latest/zh_min_nanwiki-latest-sha1sums.txt") return answer.status(404);
    serve_file({.content = kOtherSha1 + "  zh_min_nanwiki-20260901-pages-articles-multistream.xml.bz2\n" + kSha1 +
                           "  zh_min_nanwiki-20260901-pages-articles.xml.bz2\n" + kOtherSha1 +
                           "  zh_min_nanwiki-20260901-pages-articles1.xml-p1p41242.bz2\n"},
               question, answer);
  });
  const DataSetFile file = dumps.find("zh-min-nan", "latest");
  CHECK(url_of(file) ==
        "https://dumps.wikimedia.org/zh_min_nanwiki/20260901/zh_min_nanwiki-20260901-pages-articles.xml.bz2");
  CHECK(file.remote.digest.algorithm == "sha1");
  CHECK(file.remote.digest.hexadecimal == kSha1);
  // Without any list, the file of that name is asked for.
  std::string said;
  dumps.options.say = [&](const std::string& message) { said = message; };
  const DataSetFile unlisted = dumps.find("xx", "latest");
  CHECK(url_of(unlisted) == "https://dumps.wikimedia.org/xxwiki/latest/xxwiki-latest-pages-articles.xml.bz2");
  CHECK(unlisted.remote.digest.algorithm.empty());
  CHECK_THAT(said, Contains("xxwiki: no list of checksums is found") && Contains("--language") &&
                       Contains("xxwiki-latest-sha1sums.txt: the server answered 404"));
}

TEST_CASE("While a dump is being made, the one before is taken", "[unit][download]") {
  const bool has_latest = GENERATE(true, false);  // some mirrors have no directory of that name
  Dumps dumps([&](const HttpQuestion& question, const HttpAnswer& answer) {
    const std::string begin = "/dumps/enwiki/";
    const auto serve = [&](const std::string& text) { serve_file({.content = text}, question, answer); };
    if (question.target == begin + "latest/enwiki-latest-sha1sums.txt" && has_latest)
      return serve(kOtherSha1 + "  enwiki-20260920-page.sql.gz\n");
    if (question.target == begin)
      return serve(
          "<a href=\"../\">..</a><a href=\"20260820/\">x</a><a href=\"20260901/\">x</a>"
          "<a href=\"20260920/\">x</a><a href=\"latest/\">");
    if (question.target == begin + "20260901/enwiki-20260901-sha1sums.txt")
      return serve(kSha1 + "  enwiki-20260901-pages-articles-multistream.xml.bz2\n");
    answer.status(404);
  });
  const DataSetFile file = dumps.find("en", "latest");
  CHECK(url_of(file) ==
        "https://dumps.wikimedia.org/enwiki/20260901/enwiki-20260901-pages-articles-multistream.xml.bz2");
  CHECK(file.remote.digest.hexadecimal == kSha1);
  CHECK(url_of(dumps.find("en", "20260901")) == url_of(file));
  // The list of that day is absent: the dump is asked for without a checksum.
  CHECK(url_of(dumps.find("en", "20260820")) ==
        "https://dumps.wikimedia.org/enwiki/20260820/enwiki-20260820-pages-articles.xml.bz2");
  CHECK(dumps.find("en", "20260820").remote.digest.algorithm.empty());
}

TEST_CASE("Archives of Python's zipfile are unpacked, and hostile ones refused", "[unit][download]") {
  const json golden = json::parse(read_file(testing::golden("zip_archives.json")));
  for (const auto& [name, archive] : golden["good"].items()) {
    const TemporaryDirectory directory;
    const std::string path = directory.path("x.zip"), into = directory.path("into/here");
    write(path, from_hexadecimal(archive["zip"]));
    for (int round = 0; round < 2; ++round) {  // the second one finds all files there
      const UnpackedArchive unpacked = unpack_zip(path, into, {});
      CHECK(unpacked.left_out == archive["left_out"]);
      REQUIRE(unpacked.files.size() == archive["files"].size());
      for (const UnpackedFile& file : unpacked.files) {
        CHECK(file.verified_by == "crc32");
        const std::string bytes = from_hexadecimal(archive["files"].at(file.path.substr(into.size() + 1)));
        CHECK(read_file(file.path) == bytes);
        CHECK(file.bytes == static_cast<int64_t>(bytes.size()));
      }
    }
  }
  for (const auto& [message, archives] : golden["bad"].items()) {
    for (const json& archive : archives) {
      const TemporaryDirectory directory;
      write(directory.path("x.zip"), from_hexadecimal(archive));
      CAPTURE(message, archive.get<std::string>());
      CHECK_THROWS_AS(unpack_zip(directory.path("x.zip"), directory.path("into"), {}), DataError);
      CHECK_THROWS_WITH(unpack_zip(directory.path("x.zip"), directory.path("into"), {}), Contains(message));
      CHECK_FALSE(std::filesystem::exists(directory.path("x")));
    }
  }
}

TEST_CASE("A changed byte of an archive is an error, or changes no file", "[unit][download]") {
  const json golden = json::parse(read_file(testing::golden("zip_archives.json")));
  for (const auto& [name, archive] : golden["good"].items()) {
    const std::string right = from_hexadecimal(archive["zip"]);
    int refused = 0;
    for (size_t at = 0; at < right.size(); at += right.size() / 12) {  // few, since each file is synced
      const TemporaryDirectory directory;
      std::string bytes = right;
      bytes[at] = static_cast<char>(bytes[at] ^ 4);
      write(directory.path("x.zip"), bytes);
      try {
        for (const UnpackedFile& file : unpack_zip(directory.path("x.zip"), directory.path("into"), {}).files) {
          const std::string member = file.path.substr(directory.path("into").size() + 1);
          bool known = false;  // names have no checksum, and may change
          for (const auto& [expected, content] : archive["files"].items())
            known = known || read_file(file.path) == from_hexadecimal(content);
          CHECK((known || archive["left_out"] > 0));  // a file of macOS may have become another's
        }
      } catch (const DataError&) {
        ++refused;
      }
    }
    CHECK(refused > 0);
  }
}

TEST_CASE("Members have their published checksums, or are not written", "[unit][download]") {
  const json golden = json::parse(read_file(testing::golden("zip_archives.json")));
  const TemporaryDirectory directory;
  const std::string path = directory.path("x.zip"), into = directory.path("into");
  write(path, from_hexadecimal(golden["good"]["flat"]["zip"]));
  Digest digest("sha256");
  digest.update("[PAD]\n", 6);
  const UnpackedArchive unpacked = unpack_zip(path, into, {{"vocab.txt", digest.hexadecimal()}});
  CHECK(unpacked.files[0].verified_by == "sha256");
  CHECK(unpacked.files[0].digest == digest.hexadecimal());
  CHECK(unpacked.files[1].verified_by == "crc32");
  std::filesystem::remove_all(into);
  CHECK_THROWS_WITH(unpack_zip(path, into, {{"vocab.txt", std::string(64, '0')}}),
                    Contains("vocab.txt: its sha256 is " + digest.hexadecimal()));
  CHECK_FALSE(std::filesystem::exists(into + "/vocab.txt"));
  CHECK_THROWS_WITH(unpack_zip(path, into, {{"weights", digest.hexadecimal()}}),
                    Contains("the archive has no weights"));
}

TEST_CASE("MRPC is split by the ids that GLUE holds out", "[unit][download]") {
  const TemporaryDirectory directory;
  const std::string first = "\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";
  const auto text = [&](const std::string& name) { return read_file(directory.path(name)); };
  write(directory.path("msr_paraphrase_train.txt"),
        first + "1\t10\t11\tA a .\tB \"b .\n0\t12\t13\tC .\tD .\n1\t10\t12\tE .\tF .\n");
  write(directory.path("msr_paraphrase_test.txt"), first + "1\t20\t21\tG .\tH .\r\n0\t22\t23\tI .\tJ .\n");
  write(directory.path("mrpc_dev_ids.tsv"), "12\t13\n");
  CHECK(split_mrpc(directory.path()).size() == 3);
  CHECK(text("train.tsv") == first + "1\t10\t11\tA a .\tB \"b .\n1\t10\t12\tE .\tF .\n");
  CHECK(text("dev.tsv") == first + "0\t12\t13\tC .\tD .\n");
  CHECK(text("test.tsv") == "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t20\t21\tG .\tH .\n1\t22\t23\tI .\tJ .\n");
  write(directory.path("mrpc_dev_ids.tsv"), "12\t13\n13\t12\n");
  CHECK_THROWS_WITH(split_mrpc(directory.path()), Contains("2 pairs of ids, of which 1 are in"));
  write(directory.path("msr_paraphrase_train.txt"), first + "1\t10\t11\tA a .\n");
  CHECK_THROWS_WITH(split_mrpc(directory.path()), Contains("msr_paraphrase_train.txt:2: 4 columns, expected 5"));
}

TEST_CASE("MRPC is split as the official script splits it", "[unit][download]") {
  const std::string shared = testing::shared_data();
  if (shared.empty()) BERT_SKIP("needs ../shared/data");
  const std::string official = shared + "/glue/MRPC/";
  const std::string train = read_file(official + "train.tsv"), dev = read_file(official + "dev.tsv");
  const size_t first_line = dev.find('\n') + 1;
  std::istringstream rows(dev.substr(first_line)), test(read_file(official + "test.tsv"));
  const TemporaryDirectory directory;
  // The source has the same rows in another order; the order within each part is kept.
  write(directory.path("msr_paraphrase_train.txt"), train + dev.substr(first_line));
  std::string ids, test_rows;
  for (std::string row; std::getline(rows, row);) {
    const size_t one = row.find('\t') + 1, two = row.find('\t', one) + 1;
    ids += row.substr(one, row.find('\t', two) - one) + "\n";
  }
  for (std::string row; std::getline(test, row);)
    test_rows += (test_rows.empty() ? "Quality" : "0") + row.substr(row.find('\t')) + "\n";
  CHECK(ids.size() == glue_files("MRPC")[2].remote.bytes);
  CHECK(train.size() + dev.size() - first_line == glue_files("MRPC")[0].remote.bytes);
  write(directory.path("mrpc_dev_ids.tsv"), ids);
  write(directory.path("msr_paraphrase_test.txt"), test_rows);
  split_mrpc(directory.path());
  for (const std::string name : {"train.tsv", "dev.tsv", "test.tsv"})
    CHECK((read_file(directory.path(name)) == read_file(official + name)));
}

}  // namespace
}  // namespace bert
