// The sources of a configuration: files that extend each other, the environment, the command line.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "app/config/fields_impl.h"
#include "app/parse/json_tree.h"
#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/files.h"

extern "C" char** environ;  // NOLINT(readability-redundant-declaration)

namespace bert {
namespace {

/// The parts of "optimizer.lr" between separators.
std::vector<std::string> split_keys(std::string_view text, std::string_view separator = ".") {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + separator.size());
  }
}

/// An object with `value` under `keys`, outermost first. `place` is that of the objects.
JsonNode nested(const std::vector<std::string>& keys, const JsonPlace& place, JsonNode value) {
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    JsonNode object;
    object.kind = JsonNode::Kind::kObject;
    object.text = "an object";
    object.place = place;
    object.members.push_back({*key, place, std::move(value)});
    value = std::move(object);
  }
  return value;
}

namespace fs = std::filesystem;

constexpr size_t kMaxExtends = 16;
constexpr std::string_view kEnvironmentPrefix = "BERT_CONFIG_";

/// The identity of a file, for the search for cycles. A pipe has no canonical name; its identity is `path`.
fs::path identity(const std::string& path) {
  std::error_code unnamed;
  const fs::path canonical = fs::weakly_canonical(path, unnamed);
  return unnamed ? fs::absolute(path) : canonical;
}

/// The directory from which paths in the configuration at `path` count: that of the file; for a pipe the current
/// directory.
fs::path directory_of(const std::string& path) {
  return fs::is_regular_file(path) ? fs::path(path).parent_path() : fs::path();
}

/// Takes "$schema" out of a file: it names the JSON Schema that an editor reads (`bert config schema`).
void ignore_schema(JsonNode& tree, JsonProblems& problems) {
  constexpr const char* kSchema = "$schema";
  const JsonNode* const schema = tree.find(kSchema);
  if (schema == nullptr) return;
  if (schema->kind != JsonNode::Kind::kString)
    problems.list.push_back(
        {schema->place.str(), "/$schema", "want the address of a JSON Schema, got " + schema->got()});
  std::erase_if(tree.members, [](const JsonMember& member) { return member.key == kSchema; });
}

/// Parses `text`, the content of `path`, and merges it into the files that it extends. `chain` has the files that lead
/// here.
JsonNode resolve(const std::string& text, const std::string& path, std::vector<fs::path>& chain,
                 JsonProblems& problems) {
  chain.push_back(identity(path));
  auto source = std::make_shared<JsonSource>();
  source->name = path;
  source->directory = fs::current_path() / directory_of(path);
  JsonNode tree = parse_json(text, source, problems);
  ignore_schema(tree, problems);
  const JsonNode* const extends = tree.find("extends");
  if (extends == nullptr) return tree;

  const JsonNode value = *extends;
  std::erase_if(tree.members, [](const JsonMember& member) { return member.key == "extends"; });
  const auto refuse = [&](const std::string& message) {
    problems.list.push_back({value.place.str(), "/extends", message});
    problems.incomplete = true;
    return tree;
  };
  if (value.kind != JsonNode::Kind::kString || value.text.empty())
    return refuse("want the path of a configuration, got " + value.got());
  const std::string base_path = without_dots(directory_of(path) / value.text).string();
  if (std::find(chain.begin(), chain.end(), identity(base_path)) != chain.end()) {
    return refuse(base_path + " extends itself through this file; break the circle");
  }
  if (chain.size() >= kMaxExtends)
    return refuse("more than " + std::to_string(kMaxExtends) + " files extend each other");
  std::string base_text;
  try {
    base_text = read_file(base_path, kMaxJsonBytes);
  } catch (const std::runtime_error& error) {
    return refuse(std::string("cannot read it: ") + error.what());
  }
  JsonNode base = resolve(base_text, base_path, chain, problems);
  base.place = tree.place;
  merge_json(base, std::move(tree));
  return base;
}

/// Puts one value under `keys` (outermost first) into the tree.
void put(JsonNode& tree, const std::vector<std::string>& keys, const std::string& value,
         const std::shared_ptr<const JsonSource>& source, JsonProblems& problems) {
  std::string pointer;
  for (const std::string& key : keys) pointer.append("/").append(pointer_part(key));
  if (std::any_of(keys.begin(), keys.end(), [](const std::string& key) { return key.empty(); })) {
    problems.list.push_back({source->name, "", "want a.b.c=value, got an empty key"});
    return;
  }
  if (keys.size() > kMaxJsonDepth) {
    problems.list.push_back({source->name, "", "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels"});
    return;
  }
  merge_json(tree, nested(keys, {source, 0, 0}, parse_json_word(value, source, pointer, problems)));
}

void apply_environment(JsonNode& tree, JsonProblems& problems) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string_view(*variable).substr(0, kEnvironmentPrefix.size()) == kEnvironmentPrefix)
      variables.emplace_back(*variable);
  }
  std::sort(variables.begin(), variables.end());  // the order of variables in the environment is arbitrary
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    std::string name = variable.substr(0, equals);
    auto source = std::make_shared<JsonSource>();
    source->name = "environment variable " + name;
    source->directory = fs::current_path();
    source->words = true;
    std::string keys = name.substr(kEnvironmentPrefix.size());
    std::transform(keys.begin(), keys.end(), keys.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    put(tree, split_keys(keys, "__"), variable.substr(equals + 1), source, problems);
  }
}

void apply_overrides(JsonNode& tree, const std::vector<std::string>& overrides, JsonProblems& problems) {
  auto source = std::make_shared<JsonSource>();
  source->name = "command line";
  source->directory = fs::current_path();
  source->words = true;
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      problems.list.push_back({source->name, "", "want a.b.c=value, got \"" + text + "\""});
      continue;
    }
    put(tree, split_keys(std::string_view(text).substr(0, equals)), text.substr(equals + 1), source, problems);
  }
}

/// The files, the environment and `overrides` as one tree.
JsonNode read_tree(const std::string& path, const std::vector<std::string>& overrides, ConfigReport& report) {
  JsonProblems problems;
  std::vector<fs::path> chain;
  std::string text;
  try {
    text = read_file(path, kMaxJsonBytes);
  } catch (const DataError&) {
    throw ConfigError({{path, "", "larger than 16 MB; this is not a configuration"}});
  }
  JsonNode tree = resolve(text, path, chain, problems);
  apply_environment(tree, problems);
  apply_overrides(tree, overrides, problems);
  report.impl().take(std::move(problems));
  return tree;
}

}  // namespace

fs::path without_dots(const fs::path& path) {
  fs::path result;
  for (const fs::path& part : path) {
    if (part == "." || (part == ".." && result.has_root_directory() && result == result.root_path())) continue;
    const bool removes = part == ".." && result.has_filename() && result.filename() != "..";
    if (!removes) {
      result /= part;
      continue;
    }
    std::error_code unresolved;
    if (!fs::is_symlink(result, unresolved)) {
      result = result.parent_path();
    } else if (const fs::path target = fs::canonical(result, unresolved); !unresolved) {
      result = target.parent_path();
    } else {
      result /= part;
    }
  }
  return result.empty() ? "." : result;
}

void read_config(const ConfigFields& fields, const std::string& path, const std::vector<std::string>& overrides,
                 ConfigReport& report) {
  bind_config(fields, read_tree(path, overrides, report), report);
}

void read_overrides(const ConfigFields& fields, const std::vector<std::string>& overrides, ConfigReport& report) {
  JsonProblems problems;
  JsonNode tree;
  tree.kind = JsonNode::Kind::kObject;
  tree.text = "an object";
  apply_overrides(tree, overrides, problems);
  report.impl().take(std::move(problems));
  bind_config(fields, tree, report);
}

void read_config_text(const ConfigFields& fields, const std::string& text, const std::string& name,
                      ConfigReport& report) {
  auto source = std::make_shared<JsonSource>();
  source->name = name;
  source->saved = true;
  JsonProblems problems;
  const JsonNode tree = parse_json(text, source, problems);
  report.impl().take(std::move(problems));
  bind_config(fields, tree, report);
}

}  // namespace bert
