#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/transfer_progress.h"
#include "app/system/console.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/data/actions.h"
#include "data/download/data_sets.h"
#include "data/download/downloader.h"
#include "data/download/mrpc.h"
#include "data/download/zip_archive.h"
#include "data/io/error.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string output;
  DownloadOptions download;
};

/// A command line with the options that every data set has.
class DownloadApp : public CLI::App {
 public:
  DownloadApp(const std::string& text, const std::string& data_set, Options& options)
      : CLI::App(text, "bert data download " + data_set) {
    footer(
        "A download that was cut or killed goes on where it stopped: run the command again. What has come so far is in "
        "NAME.part; NAME appears when the file is whole and has its published checksum. A proxy is taken from "
        "https_proxy, http_proxy and no_proxy, certificates from the system or CURL_CA_BUNDLE.");
    add_option("--output", options.output, "directory for the files")->required();
    add_option("--mirror", options.download.mirrors,
               "base URL in place of the usual server's; may be repeated, the first that has a file gives it. It has "
               "the paths of the usual server, or the files alone")
        ->check(CLI::Validator(
            [](std::string& url) {
              return host_of(url).empty() ? "want http://HOST... or https://HOST..., got " + url : std::string();
            },
            "URL"));
  }
};

Json file_json(const DownloadedFile& file) {
  Json json = {{"path", file.path},
               {"url", file.url.empty() ? Json() : Json(file.url)},
               {"bytes", file.bytes},
               {"bytes_received", file.bytes_received},
               {"resumed_at", file.resumed_at},
               {"verified", file.verified_by}};
  if (!file.digest.empty()) json[file.verified_by] = file.digest;
  return json;
}

/// Unpacks the archive. One whose bytes no published checksum has confirmed is removed if it is damaged.
Json unpack(const DataSetFile& file, const DownloadedFile& archive, const std::string& output) {
  UnpackedArchive unpacked;
  try {
    unpacked = unpack_zip(archive.path, (std::filesystem::path(output) / file.unpack_into).string(), file.members);
  } catch (const DataError& error) {
    if (!archive.digest.empty()) throw;
    std::filesystem::remove(archive.path);
    throw DataError(std::string(error.what()) +
                    ". The archive was removed; download it again, or name another server with --mirror URL");
  }
  Json files = Json::array();
  for (const UnpackedFile& each : unpacked.files) {
    Json json = {{"path", each.path}, {"bytes", each.bytes}, {"verified", each.verified_by}};
    if (!each.digest.empty()) json[each.verified_by] = each.digest;
    files.push_back(json);
  }
  return {{"files", files}, {"files_of_macos_left_out", unpacked.left_out}};
}

/// Downloads one file, and unpacks it if it is an archive.
Json get_file(const DataSetFile& file, const std::string& output, Downloader& downloader) {
  const std::filesystem::path own = std::filesystem::path(file.remote.name).parent_path();
  std::filesystem::create_directories(std::filesystem::path(output) / own);
  const DownloadedFile there = downloader.file(file.remote, output);
  Json json = file_json(there);
  if (!file.unpack_into.empty()) json["unpacked"] = unpack(file, there, output);
  return json;
}

/// Downloads the files that `list` gives and prints the summary; `finish` may add to it before. A file that no server
/// has, or that is damaged, does not keep the others from being downloaded. Its error is thrown at the end.
int download(
    const std::string& data_set, Options options, const std::function<std::vector<DataSetFile>(Downloader&)>& list,
    const std::function<void(Json& summary)>& finish = [](Json&) {}) {
  const auto start = std::chrono::steady_clock::now();
  TransferProgress progress;
  options.download.http.user_agent = fmt::format("bert/{} (bert data download)", BERT_VERSION);
  options.download.progress = [&](const std::string& name, int64_t bytes, std::optional<int64_t> of_bytes) {
    progress.update(name, bytes, of_bytes);
  };
  options.download.say = [&](const std::string& message) {
    progress.end_line();
    fmt::print(stderr, "bert data download: {}\n", printable(message));  // a server has written parts of it
  };
  std::filesystem::create_directories(options.output);
  Downloader downloader(options.download);
  Json files = Json::array(), failed = Json::array();
  std::exception_ptr first_error;
  const auto keep_error = [&](const DataSetFile& file, const std::string& message) {
    if (first_error) options.download.say(message);  // the first one is said at the end
    if (!first_error) first_error = std::current_exception();
    failed.push_back({{"file", file.remote.host + file.remote.path}, {"error", message}});
  };
  int64_t bytes = 0, received = 0;
  for (const DataSetFile& file : list(downloader)) {
    try {
      files.push_back(get_file(file, options.output, downloader));
      bytes += files.back()["bytes"].get<int64_t>();
      received += files.back()["bytes_received"].get<int64_t>();
    } catch (const InputMissing& error) {
      keep_error(file, error.what());
    } catch (const DataError& error) {
      keep_error(file, error.what());
    }
  }
  Json summary = {{"data_set", data_set}, {"files", files}, {"failed", failed}};
  summary["bytes"] = bytes;
  summary["bytes_received"] = received;
  finish(summary);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  summary["seconds"] = took.count();
  print_line(summary);
  if (first_error) std::rethrow_exception(first_error);
  return kOk;
}

/// Names the parts of other dumps of the same Wikipedia: since yesterday's call there may be a newer latest dump.
void tell_of_other_parts(const std::string& directory, const DataSetFile& dump) {
  const std::string name = std::filesystem::path(dump.remote.path).filename().string();
  const std::string wiki = name.substr(0, name.find('-') + 1);
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string other = entry.path().filename().string();
    if (!other.starts_with(wiki) || !other.ends_with(".xml.bz2.part") || other == name + ".part") continue;
    fmt::print(stderr, "bert data download: {} is of another dump than {}; --date {} continues it\n",
               printable(entry.path().string()), name,
               printable(other.substr(wiki.size(), other.find('-', wiki.size()) - wiki.size())));
  }
}

int download_wikipedia(int argc, char** argv) {
  Options options;
  std::string language = "en", date = "latest";
  DownloadApp app(
      "Downloads the dump of all articles of a Wikipedia, more than 20 GB for English, with the SHA-1 that Wikimedia "
      "publishes.\nExample: bert data download wikipedia --language simple --output dumps",
      "wikipedia", options);
  app.add_option("--language", language, "language as in the address: en for en.wikipedia.org, or simple, zh-min-nan")
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool name = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string::npos;
            return name ? std::string() : "want small letters and hyphens, got " + text;
          },
          ""))
      ->capture_default_str();
  app.add_option("--date", date, "latest, or the day of a dump as YYYYMMDD; https://dumps.wikimedia.org lists them")
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool day = text.size() == 8 && text.find_first_not_of("0123456789") == std::string::npos;
            return text == "latest" || day ? std::string() : "want latest or YYYYMMDD, got " + text;
          },
          ""))
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return kOk;
  return download("wikipedia", options, [&](Downloader& downloader) -> std::vector<DataSetFile> {
    const DataSetFile dump = wikipedia_file(downloader, language, date);
    tell_of_other_parts(options.output, dump);
    return {dump};
  });
}

int download_squad(int argc, char** argv) {
  Options options;
  std::vector<std::string> versions = {"1.1", "2.0"};
  DownloadApp app(
      "Downloads the questions and answers of SQuAD, 35 MB for version 1.1 and 46 MB for 2.0.\n"
      "Example: bert data download squad --version 1.1 --output squad",
      "squad", options);
  app.add_option("--version", versions, "1.1 or 2.0; may be repeated. Default: both")->check(CLI::IsMember(versions));
  if (!parse_command_line(app, argc, argv)) return kOk;
  return download("squad", options, [&](Downloader&) {
    std::vector<DataSetFile> files;
    for (const std::string& version : versions) {
      for (const DataSetFile& file : squad_files(version)) files.push_back(file);
    }
    return files;
  });
}

/// `name` without what people write in different ways: SST-2, sst2.
std::string plain(const std::string& name) {
  std::string letters;
  for (const char letter : name) {
    if (letter != '-' && letter != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return letters;
}

int download_glue(int argc, char** argv) {
  Options options;
  std::vector<std::string> names = glue_tasks();
  DownloadApp app(
      "Downloads tasks of GLUE and unpacks them: 375 MB, of which MNLI has 313. Each has its directory, with "
      "train.tsv, "
      "dev.tsv and test.tsv in most.\nExample: bert data download glue --task SST-2 --task MRPC --output glue",
      "glue", options);
  app.add_option("--task", names,
                 fmt::format("one of {}; may be repeated. Default: all", fmt::join(glue_tasks(), ", ")));
  if (!parse_command_line(app, argc, argv)) return kOk;
  std::vector<std::string> tasks;
  for (const std::string& name : names) {
    const auto task = std::find_if(glue_tasks().begin(), glue_tasks().end(),
                                   [&](const std::string& known) { return plain(known) == plain(name); });
    if (task == glue_tasks().end()) throw UsageError(unknown_word("task", name, glue_tasks(), app.get_name()));
    tasks.push_back(*task);
  }
  const auto list = [&](Downloader&) {
    std::vector<DataSetFile> files;
    for (const std::string& task : tasks) {
      for (const DataSetFile& file : glue_files(task)) files.push_back(file);
    }
    return files;
  };
  return download("glue", options, list, [&](Json& summary) {
    const auto of_mrpc = std::count_if(summary["files"].begin(), summary["files"].end(), [](const Json& file) {
      return std::filesystem::path(file["path"].get<std::string>()).parent_path().filename() == "MRPC";
    });
    if (of_mrpc == static_cast<int64_t>(glue_files("MRPC").size()))
      summary["made"] = split_mrpc((std::filesystem::path(options.output) / "MRPC").string());
  });
}

int download_google_bert(int argc, char** argv) {
  Options options;
  std::vector<std::string> models = {"uncased_L-12_H-768_A-12"};
  const std::vector<std::string> known = google_bert_models();
  DownloadApp app(
      "Downloads models that Google trained, TensorFlow checkpoints with their vocabulary, and unpacks them: 0.4 GB "
      "for "
      "BERT-base, 1.2 GB for BERT-large, and the archive beside it.\n"
      "Example: bert data download google-bert --model uncased_L-12_H-768_A-12 --output models",
      "google-bert", options);
  app.add_option("--model", models,
                 fmt::format("name of Google or of Hugging Face; may be repeated: {}", fmt::join(known, ", ")))
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return kOk;
  for (const std::string& model : models) {
    if (std::find(known.begin(), known.end(), model) == known.end())
      throw UsageError(unknown_word("model", model, known, app.get_name()));
  }
  return download("google-bert", options, [&](Downloader&) {
    std::vector<DataSetFile> files;
    files.reserve(models.size());
    for (const std::string& model : models) files.push_back(google_bert_file(model));
    return files;
  });
}

constexpr Action kDataSets[] = {
    {"wikipedia", download_wikipedia, "the dump of all articles of a Wikipedia"},
    {"squad", download_squad, "questions and answers, 1.1 and 2.0"},
    {"glue", download_glue, "GLUE's tasks"},
    {"google-bert", download_google_bert, "the models that Google trained"},
};

}  // namespace

int data_download(int argc, char** argv) {
  return run_action({.program = "bert data download",
                     .example = "bert data download squad --version 1.1 --output squad",
                     .actions = kDataSets},
                    argc, argv);
}

}  // namespace bert
