#include "app/interop/original_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/parse/bounded_json.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kModelConfigFile = "config.json";
constexpr int64_t kMostBytes = int64_t{16} << 20;

/// True for the name of a text that belongs to a model, and is no list of its weights.
bool is_of_model(const std::string& name) {
  if (name.starts_with('.') || name.starts_with("adapter_") || name.ends_with(".index.json")) return false;
  for (const char* end : {".json", ".md", ".txt", ".csv", ".py"})
    if (name.ends_with(end)) return true;
  return name.starts_with("LICENSE") || name.starts_with("NOTICE");
}

void read_one(const std::string& path, const std::string& name, std::map<std::string, std::string>& originals,
              ImportReport& report) {
  std::error_code unseen;
  if (!fs::is_regular_file(path, unseen)) return;
  if (fs::file_size(path, unseen) > static_cast<uintmax_t>(kMostBytes)) {
    report.notes.push_back(fmt::format("{}: has more than 16 MB, and is left out", path));
    return;
  }
  std::string text = read_file(path, kMostBytes), valid = text;
  if (drop_invalid_utf8(valid) > 0) {
    report.notes.push_back(path + ": is not UTF-8, and is left out");
    return;
  }
  originals[name] = std::move(text);
}

/// Reads the texts of a folder.
void read_folder(const std::string& folder, std::map<std::string, std::string>& originals, ImportReport& report) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (is_of_model(name)) read_one(entry.path().string(), name, originals, report);
  }
  if (error) throw IoError(fmt::format("{}: cannot read this directory: {}", folder, error.message()));
}

}  // namespace

std::map<std::string, std::string> read_original_files(const std::string& directory, const SentenceModules& modules,
                                                       ImportReport& report) {
  std::map<std::string, std::string> originals;
  read_folder(directory, originals, report);
  bool same_folders = modules.transformer == directory;
  if (!same_folders) read_folder(modules.transformer, originals, report);
  for (const auto& [name, folder] : modules.folders) {
    same_folders = same_folders && folder == directory + "/" + name;
    const std::string config = std::string("/") + kModelConfigFile;
    read_one(folder + config, name + config, originals, report);
  }
  if (!same_folders) originals.erase(kModulesFile);
  return originals;
}

std::string originals_text(const std::map<std::string, std::string>& originals) {
  return ordered_json(originals).dump(1) + "\n";
}

std::map<std::string, std::string> parse_originals(const std::string& text, const std::string& path) {
  const nlohmann::json object = parse_bounded_json(text, path);
  if (!object.is_object()) throw DataError(path + ": want an object {...}, got " + object.type_name());
  std::map<std::string, std::string> originals;
  for (const auto& item : object.items()) {
    if (item.key().find("..") != std::string::npos || item.key().starts_with('/'))
      throw DataError(path + ": expected names of files in a directory, got " + as_text(nlohmann::json(item.key())));
    originals[item.key()] = string_member(object, item.key().c_str(), path);
  }
  return originals;
}

void drop_original_tokenizer(std::map<std::string, std::string>& originals) {
  for (const char* name :
       {"vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"})
    originals.erase(name);
}

void put_originals(const std::map<std::string, std::string>& originals, std::map<std::string, std::string>& files) {
  for (const auto& [name, text] : originals) {
    const auto written = files.find(name);
    if (name != kModelConfigFile || written == files.end()) {
      files[name] = text;
      continue;
    }
    static_cast<void>(parse_bounded_json(text, name));  // within the limits
    ordered_json config = ordered_json::parse(text);
    if (!config.is_object()) throw DataError(name + ": want an object {...}");
    const ordered_json own = ordered_json::parse(written->second);
    bool same = true;
    for (const char* key : {"architectures", "vocab_size"}) {
      same = same && config.contains(key) && config[key] == own[key];
      config[key] = own[key];
    }
    written->second = same ? text : config.dump(2) + "\n";
  }
}

}  // namespace bert
