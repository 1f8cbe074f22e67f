#include "app/interop/hugging_face_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "app/interop/foreign_checkpoint.h"
#include "app/parse/bounded_json.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tokenizer/vocabulary.h"

namespace bert {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBytes = int64_t{64} << 20;  // the largest tokenizer.json on the hub of a WordPiece has 10 MB

constexpr std::pair<const char*, const char*> kSpecialTokens[] = {{"pad_token", "[PAD]"},
                                                                  {"unk_token", "[UNK]"},
                                                                  {"cls_token", "[CLS]"},
                                                                  {"sep_token", "[SEP]"},
                                                                  {"mask_token", "[MASK]"}};

/// A JSON object of a file; nothing if the file is absent.
std::optional<json> read_object(const std::string& path) {
  std::error_code unseen;
  if (!std::filesystem::exists(path, unseen)) return std::nullopt;
  json object = parse_bounded_json(read_file(path, kMaxBytes), path);
  if (!object.is_object()) throw DataError(path + ": want an object {...}, got " + object.type_name());
  return object;
}

/// The member `key`, which may be absent or null: nullptr then.
const json* optional_member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> optional_boolean(const json& object, const char* key, const std::string& path) {
  if (optional_member(object, key) == nullptr) return std::nullopt;
  return boolean_member(object, key, path);
}

void expect_string(const json& object, const char* key, const std::string& want, const std::string& path) {
  if (const std::string& got = string_member(object, key, path); got != want)
    throw DataError(fmt::format("{}: \"{}\" is {}; expected {}", path, key, as_text(json(got)), want));
}

/// The settings of a tokenizer that one file states.
struct Settings {
  std::optional<bool> lower_case, strip_accents, chinese, clean_text;
};

/// The tokens of tokenizer.json by id: the vocabulary of the model, then added tokens.
class TokensById {
 public:
  explicit TokensById(const std::string& path) : path_(path) {}

  void add(const std::string& token, int64_t id) {
    if (token.find('\n') != std::string::npos)
      throw DataError(fmt::format("{}: token {} has a line feed, which no vocab.txt can hold", path_, as_text(token)));
    const auto [place, is_new] = tokens_.emplace(id, token);
    if (!is_new && place->second != token) {
      throw DataError(fmt::format("{}: tokens {} and {} have the id {}; expected one token for each id", path_,
                                  as_text(place->second), as_text(token), id));
    }
  }

  [[nodiscard]] std::vector<std::string> take() {
    std::vector<std::string> tokens;
    for (auto& [id, token] : tokens_) {
      if (id != static_cast<int64_t>(tokens.size()))
        throw DataError(fmt::format("{}: no token has the id {}; expected ids without a gap", path_, tokens.size()));
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

 private:
  const std::string& path_;
  std::map<int64_t, std::string> tokens_;
};

/// Notes that `token` is not BERT's, so that this program's tokenizer does not look for it in texts.
void note_added(const std::string& token, const std::string& path, HuggingFaceTokenizer& result) {
  const bool special = std::any_of(std::begin(kSpecialTokens), std::end(kSpecialTokens),
                                   [&](const auto& known) { return token == known.second; });
  if (special) return;
  result.notes.push_back(fmt::format("{}: the added token {} has its row in the model, but is not matched in texts",
                                     path, as_text(token)));
}

std::vector<std::string> read_vocabulary(const json& tokenizer, const json& model, const std::string& path,
                                         HuggingFaceTokenizer& result) {
  TokensById tokens(path);
  for (const auto& [token, id] : member(model, "vocab", json::value_t::object, path).items()) {
    if (!id.is_number_integer())
      throw DataError(fmt::format("{}: \"vocab\": the id of {} is no integer", path, as_text(json(token))));
    tokens.add(token, id.get<int64_t>());
  }
  if (optional_member(tokenizer, "added_tokens") == nullptr) return tokens.take();
  for (const json& added : member(tokenizer, "added_tokens", json::value_t::array, path)) {
    if (!added.is_object()) throw DataError(path + ": \"added_tokens\": want objects {...}");
    const std::string& content = string_member(added, "content", path);
    tokens.add(content, integer_member(added, "id", path));
    note_added(content, path, result);
  }
  return tokens.take();
}

/// `tokens` and those of added_tokens.json, which belongs to a vocab.txt.
std::vector<std::string> with_added_tokens(const std::vector<std::string>& tokens, const std::string& path,
                                           HuggingFaceTokenizer& result) {
  const std::optional<json> added = read_object(path);
  if (!added) return tokens;
  TokensById all(path);
  for (size_t id = 0; id < tokens.size(); ++id) all.add(tokens[id], static_cast<int64_t>(id));
  for (const auto& [token, id] : added->items()) {
    if (!id.is_number_integer())
      throw DataError(fmt::format("{}: the id of {} is no integer", path, as_text(json(token))));
    all.add(token, id.get<int64_t>());
    note_added(token, path, result);
  }
  return all.take();
}

/// Throws DataError unless tokenizer.json has the parts of BERT's tokenizer.
void check_parts(const json& tokenizer, const std::string& path) {
  const auto part = [&](const char* key) -> const json& { return member(tokenizer, key, json::value_t::object, path); };
  expect_string(part("model"), "type", "WordPiece", path + ": \"model\"");
  expect_string(part("model"), "unk_token", "[UNK]", path + ": \"model\"");
  if (optional_member(part("model"), "continuing_subword_prefix") != nullptr)
    expect_string(part("model"), "continuing_subword_prefix", "##", path + ": \"model\"");
  expect_string(part("normalizer"), "type", "BertNormalizer", path + ": \"normalizer\"");
  expect_string(part("pre_tokenizer"), "type", "BertPreTokenizer", path + ": \"pre_tokenizer\"");
}

/// Reads tokenizer.json, if there is one.
Settings read_tokenizer_json(const std::string& path, HuggingFaceTokenizer& result) {
  const std::optional<json> tokenizer = read_object(path);
  if (!tokenizer) return {};
  check_parts(*tokenizer, path);
  const json &model = tokenizer->at("model"), &normalizer = tokenizer->at("normalizer");
  if (optional_member(model, "max_input_chars_per_word") != nullptr) {
    constexpr int64_t kMost = 10000;  // TokenizerConfig::visit_fields
    const int64_t characters = integer_member(model, "max_input_chars_per_word", path);
    if (characters < 1 || characters > kMost) {
      throw DataError(
          fmt::format("{}: \"max_input_chars_per_word\": want an integer in [1, {}], got {}", path, kMost, characters));
    }
    result.config.max_input_chars_per_word = characters;
  }
  result.vocabulary = read_vocabulary(*tokenizer, model, path, result);
  return {.lower_case = optional_boolean(normalizer, "lowercase", path),
          .strip_accents = optional_boolean(normalizer, "strip_accents", path),
          .chinese = optional_boolean(normalizer, "handle_chinese_chars", path),
          .clean_text = optional_boolean(normalizer, "clean_text", path)};
}

/// Throws DataError if `object` names another special token than BERT's.
void check_special_tokens(const json& object, const std::string& path) {
  for (const auto& [key, token] : kSpecialTokens) {
    const json* value = optional_member(object, key);
    if (value == nullptr) continue;
    if (value->is_object()) {
      expect_string(*value, "content", token, path + ": \"" + key + "\"");
    } else {
      expect_string(object, key, token, path);
    }
  }
}

/// Reads tokenizer_config.json, if there is one.
Settings read_tokenizer_config(const std::string& path) {
  const std::optional<json> object = read_object(path);
  if (!object) return {};
  check_special_tokens(*object, path);
  if (optional_member(*object, "tokenizer_class") != nullptr) {
    static const std::set<std::string> kKnown = {"BertTokenizer", "BertTokenizerFast", "BertTokenizerLegacy",
                                                 "PreTrainedTokenizerFast", "TokenizersBackend"};
    const std::string& name = string_member(*object, "tokenizer_class", path);
    if (!kKnown.contains(name)) {
      throw DataError(fmt::format("{}: \"tokenizer_class\" is {}; expected BertTokenizer, which splits at white space",
                                  path, as_text(json(name))));
    }
  }
  if (optional_boolean(*object, "do_basic_tokenize", path) == false) {
    throw DataError(path +
                    ": \"do_basic_tokenize\" is false; expected true: texts are split at white space and "
                    "punctuation first");
  }
  return {.lower_case = optional_boolean(*object, "do_lower_case", path),
          .strip_accents = optional_boolean(*object, "strip_accents", path),
          .chinese = optional_boolean(*object, "tokenize_chinese_chars", path),
          .clean_text = std::nullopt};
}

/// The settings of the two files together. Throws DataError for settings that data/tokenizer does not have.
void merge_settings(const std::string& directory, const Settings& tokenizer, const Settings& config,
                    HuggingFaceTokenizer& result) {
  const auto first = [](std::optional<bool> a, std::optional<bool> b) { return a ? a : b; };
  const std::optional<bool> lower_case = first(config.lower_case, tokenizer.lower_case);
  if (config.lower_case && tokenizer.lower_case && config.lower_case != tokenizer.lower_case) {
    result.notes.push_back(
        fmt::format("{}: tokenizer.json says lowercase {}, tokenizer_config.json do_lower_case {}: the latter is taken",
                    directory, *tokenizer.lower_case, *config.lower_case));
  }
  result.states_case = lower_case.has_value();
  result.config.do_lower_case = lower_case.value_or(true);
  result.config.strip_accents = first(config.strip_accents, tokenizer.strip_accents);
  result.config.tokenize_chinese_chars = first(config.chinese, tokenizer.chinese).value_or(true);
  if (tokenizer.clean_text == false) throw DataError(directory + ": the tokenizer has clean_text false; expected true");
}

}  // namespace

HuggingFaceTokenizer read_hugging_face_tokenizer(const std::string& directory) {
  HuggingFaceTokenizer result;
  const Settings tokenizer = read_tokenizer_json(directory + "/tokenizer.json", result);
  const Settings config = read_tokenizer_config(directory + "/tokenizer_config.json");
  if (const auto map = read_object(directory + "/special_tokens_map.json"))
    check_special_tokens(*map, directory + "/special_tokens_map.json");
  merge_settings(directory, tokenizer, config, result);
  std::error_code unseen;
  if (const std::string lines = directory + "/vocab.txt"; std::filesystem::exists(lines, unseen)) {
    const Vocabulary vocabulary = Vocabulary::load(lines);
    if (result.vocabulary.empty()) {
      result.vocabulary = with_added_tokens(vocabulary.tokens(), directory + "/added_tokens.json", result);
    } else if (vocabulary.size() > static_cast<int64_t>(result.vocabulary.size()) ||
               !std::equal(vocabulary.tokens().begin(), vocabulary.tokens().end(), result.vocabulary.begin())) {
      throw DataError(fmt::format("{}: is not the vocabulary of tokenizer.json beside it: {}", lines,
                                  vocabulary_difference(result.vocabulary, vocabulary.tokens())));
    }
  }
  if (!result.vocabulary.empty()) static_cast<void>(Vocabulary(result.vocabulary, directory));  // has special tokens
  return result;
}

}  // namespace bert
