#include "app/interop/hugging_face_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "app/config/model_rules_json.h"
#include "app/interop/hugging_face_files.h"
#include "app/parse/bounded_json.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tokenizer/vocabulary.h"

namespace bert {
namespace {

using nlohmann::json;

constexpr TokenizerConfig kTransformersTokenizer = {.max_input_chars_per_word = 100, .match_special_tokens = true};
constexpr int64_t kMaxBytes = int64_t{64} << 20;  // the largest tokenizer.json on the hub of a WordPiece has 10 MB

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
  bool has_lowercase = false;  // a Lowercase stands beside the BertNormalizer
  bool decides = false;        // of a BertTokenizer: what it does not say has its default, whatever tokenizer.json says
};

bool is_unused(const std::string& token) { return token.starts_with("[unused"); }

bool is_special_of_bert(const std::string& token) {
  return std::any_of(std::begin(kSpecialTokens), std::end(kSpecialTokens),
                     [&](const auto& known) { return token == known.second; });
}

/// The tokens of a tokenizer by id: the vocabulary of the model, then added tokens.
class TokensById {
 public:
  explicit TokensById(std::string path) : path_(std::move(path)) {}

  void add(const std::string& token, int64_t id) {
    if (token.find('\n') != std::string::npos)
      throw DataError(fmt::format("{}: token {} has a line feed, which no vocab.txt can hold", path_, as_text(token)));
    const auto [place, is_new] = tokens_.emplace(id, token);
    if (is_unused(place->second)) place->second = token;  // an added token may take the row of one
    if (place->second != token) {
      throw DataError(fmt::format("{}: tokens {} and {} have the id {}; expected one token for each id", path_,
                                  as_text(place->second), as_text(token), id));
    }
  }

  /// Adds a token that texts are searched for. `object` has its flags. BERT's special tokens have rules of their own.
  void add_searched(const std::string& token, int64_t id, const json& object) {
    add(token, id);
    if (!is_special_of_bert(token)) added_.push_back(read_added_token(object, id, path_));
  }

  /// Moves the tokens into `model`.
  void take(ModelDescription& model) {
    model.vocabulary.clear();
    for (auto& [id, token] : tokens_) {
      if (id != std::ssize(model.vocabulary))
        throw DataError(
            fmt::format("{}: no token has the id {}; expected ids without a gap", path_, model.vocabulary.size()));
      model.vocabulary.push_back(std::move(token));
    }
    model.added_tokens = std::move(added_);
  }

 private:
  const std::string path_;
  std::map<int64_t, std::string> tokens_;
  std::vector<AddedToken> added_;
};

void read_vocabulary(const json& tokenizer, const json& vocabulary, const std::string& path, ModelDescription& model) {
  TokensById tokens(path);
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_integer())
      throw DataError(fmt::format("{}: \"vocab\": the id of {} is no integer", path, as_text(json(token))));
    tokens.add(token, id.get<int64_t>());
  }
  if (optional_member(tokenizer, "added_tokens") != nullptr) {
    for (const json& added : member(tokenizer, "added_tokens", json::value_t::array, path)) {
      if (!added.is_object()) throw DataError(path + ": \"added_tokens\": want objects {...}");
      tokens.add_searched(string_member(added, "content", path), integer_member(added, "id", path), added);
    }
  }
  tokens.take(model);
}

/// Adds the tokens of added_tokens_decoder in tokenizer_config.json, or else of added_tokens.json, to those of vocab.txt.
/// Those of the latter two are special, and searched for, if additional_special_tokens of `special` lists them.
void read_added_tokens_beside(const std::string& directory, const json& config, const json& special,
                              ModelDescription& model) {
  const std::string file = directory + "/added_tokens.json";
  TokensById all(directory);
  for (size_t id = 0; id < model.vocabulary.size(); ++id) all.add(model.vocabulary[id], static_cast<int64_t>(id));
  if (const json* decoder = optional_member(config, "added_tokens_decoder")) {
    for (const auto& [id, object] : decoder->items()) {
      if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != std::string::npos)
        throw DataError(directory + ": \"added_tokens_decoder\": want ids, got " + as_text(json(id)));
      all.add_searched(string_member(object, "content", directory), std::stoll(id), object);
    }
  } else {
    std::set<std::string> marked;
    for (const json* object : {&config, &special}) {
      const json* list = optional_member(*object, "additional_special_tokens");
      if (list == nullptr || !list->is_array()) continue;
      for (const json& token : *list) {
        if (token.is_string()) marked.insert(token.get<std::string>());
        if (token.is_object()) marked.insert(string_member(token, "content", directory));
      }
    }
    for (size_t id = 0; id < model.vocabulary.size(); ++id) {
      const std::string& token = model.vocabulary[id];
      if (marked.contains(token))
        all.add_searched(token, static_cast<int64_t>(id), {{"special", true}, {"normalized", false}});
    }
    const json added = read_object(file).value_or(json::object());
    for (const auto& [token, id] : added.items()) {
      if (!id.is_number_integer())
        throw DataError(fmt::format("{}: the id of {} is no integer", file, as_text(json(token))));
      const bool is_special = marked.contains(token);
      all.add_searched(token, id.get<int64_t>(), {{"special", is_special}, {"normalized", !is_special}});
    }
  }
  all.take(model);
}

/// The part of tokenizer.json, or the members of a Sequence, whose list has the name `list`, in their order.
std::vector<const json*> members_of(const json& part, const char* list, const std::string& path) {
  if (string_member(part, "type", path) != "Sequence") return {&part};
  std::vector<const json*> all;
  for (const json& each : member(part, list, json::value_t::array, path)) {
    for (const json* inner : members_of(each, list, path)) all.push_back(inner);
  }
  return all;
}

/// The only one of `parts`. Throws DataError unless it is there and has the type `want`.
const json& only_part(const std::vector<const json*>& parts, const char* want, const std::string& path) {
  for (const json* part : parts) expect_string(*part, "type", want, path);
  if (parts.size() != 1)
    throw DataError(fmt::format("{}: a Sequence has {} {}; expected one", path, parts.size(), want));
  return *parts.front();
}

/// The settings of a BertNormalizer, or of a Sequence of one and of Lowercase, which sentence-transformers writes for
/// do_lower_case. The two give the same text in any order (tests/golden/lowercase_normalizer.py).
Settings read_normalizer(const json& normalizer, const std::string& path) {
  const std::string place = path + ": \"normalizer\"";
  std::vector<const json*> parts = members_of(normalizer, "normalizers", place);
  const auto is_lowercase = [&](const json* part) { return string_member(*part, "type", place) == "Lowercase"; };
  const bool has_lowercase = parts.size() > 1 && std::erase_if(parts, is_lowercase) > 0;
  const json& part = only_part(parts, "BertNormalizer", place);
  return {.lower_case = optional_boolean(part, "lowercase", path),
          .strip_accents = optional_boolean(part, "strip_accents", path),
          .chinese = optional_boolean(part, "handle_chinese_chars", path),
          .clean_text = optional_boolean(part, "clean_text", path),
          .has_lowercase = has_lowercase};
}

/// Throws DataError unless model and pre_tokenizer of tokenizer.json are BERT's.
void check_parts(const json& tokenizer, const std::string& path) {
  const json& model = member(tokenizer, "model", json::value_t::object, path);
  // tokenizers before 0.9 wrote no type; of its models WordPiece alone has max_input_chars_per_word.
  const bool old = optional_member(model, "type") == nullptr && optional_member(model, "max_input_chars_per_word");
  if (!old) expect_string(model, "type", "WordPiece", path + ": \"model\"");
  expect_string(model, "unk_token", "[UNK]", path + ": \"model\"");
  if (optional_member(model, "continuing_subword_prefix") != nullptr)
    expect_string(model, "continuing_subword_prefix", "##", path + ": \"model\"");
  const std::string place = path + ": \"pre_tokenizer\"";
  only_part(members_of(member(tokenizer, "pre_tokenizer", json::value_t::object, path), "pretokenizers", place),
            "BertPreTokenizer", place);
}

/// Reads tokenizer.json, if there is one.
Settings read_tokenizer_json(const std::string& path, ModelDescription& result) {
  const std::optional<json> tokenizer = read_object(path);
  if (!tokenizer) return {};
  check_parts(*tokenizer, path);
  const json& model = tokenizer->at("model");
  const Settings settings = read_normalizer(member(*tokenizer, "normalizer", json::value_t::object, path), path);
  if (optional_member(model, "max_input_chars_per_word") != nullptr) {
    constexpr int64_t kMost = 10000;  // TokenizerConfig::visit_fields
    const int64_t characters = integer_member(model, "max_input_chars_per_word", path);
    if (characters < 1 || characters > kMost) {
      throw DataError(
          fmt::format("{}: \"max_input_chars_per_word\": want an integer in [1, {}], got {}", path, kMost, characters));
    }
    result.tokenizer.max_input_chars_per_word = characters;
  }
  result.tokenizer.final_sigma = false;
  read_vocabulary(*tokenizer, member(model, "vocab", json::value_t::object, path), path, result);
  return settings;
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

/// Reads the object of tokenizer_config.json.
Settings read_tokenizer_config(const std::string& path, const json& object) {
  check_special_tokens(object, path);
  if (optional_member(object, "tokenizer_class") != nullptr) {
    static const std::set<std::string> kKnown = {"BertTokenizer", "BertTokenizerFast", "BertTokenizerLegacy",
                                                 "PreTrainedTokenizerFast", "TokenizersBackend"};
    const std::string& name = string_member(object, "tokenizer_class", path);
    if (!kKnown.contains(name)) {
      throw DataError(fmt::format("{}: \"tokenizer_class\" is {}; expected BertTokenizer, which splits at white space",
                                  path, as_text(json(name))));
    }
  }
  if (optional_boolean(object, "do_basic_tokenize", path) == false) {
    throw DataError(path +
                    ": \"do_basic_tokenize\" is false; expected true: texts are split at white space and "
                    "punctuation first");
  }
  const json* name = optional_member(object, "tokenizer_class");
  return {.lower_case = optional_boolean(object, "do_lower_case", path),
          .strip_accents = optional_boolean(object, "strip_accents", path),
          .chinese = optional_boolean(object, "tokenize_chinese_chars", path),
          .clean_text = std::nullopt,
          .decides = name != nullptr && name->get<std::string>().starts_with("Bert")};
}

/// Lower case before the tokenizer's own normalizer, which keeps accents as they are.
void add_lower_case(TokenizerConfig& settings) {
  if (settings.do_lower_case) return;
  settings.do_lower_case = true;
  if (!settings.strip_accents) settings.strip_accents = false;
}

/// The settings of the two files together. Throws DataError for settings that data/tokenizer does not have.
void merge_settings(const std::string& directory, const Settings& tokenizer, const Settings& config,
                    ForeignCheckpoint& result) {
  const auto first = [&](std::optional<bool> a, std::optional<bool> b) { return a || config.decides ? a : b; };
  const std::optional<bool> lower_case = first(config.lower_case, tokenizer.lower_case);
  if (tokenizer.lower_case && lower_case.value_or(true) != tokenizer.lower_case) {
    result.report.notes.push_back(
        fmt::format("{}: tokenizer.json says lowercase {}, tokenizer_config.json do_lower_case {}: the latter is taken",
                    directory, *tokenizer.lower_case, lower_case.value_or(true)));
  }
  TokenizerConfig& settings = result.model.tokenizer;
  result.states_case = config.lower_case || tokenizer.lower_case;
  settings.do_lower_case = lower_case.value_or(true);
  settings.strip_accents = first(config.strip_accents, tokenizer.strip_accents);
  settings.tokenize_chinese_chars = first(config.chinese, tokenizer.chinese).value_or(true);
  if (tokenizer.has_lowercase) add_lower_case(settings);
  if (tokenizer.clean_text == false) throw DataError(directory + ": the tokenizer has clean_text false; expected true");
}

/// Sets the most tokens of a text, of which sentence-transformers' file decides, and its lower case, which keeps accents.
void read_sentence_settings(const std::string& directory, const json& config, ModelDescription& model) {
  model.max_tokens = read_max_length(config, "model_max_length", directory + "/tokenizer_config.json");
  const std::string path = directory + "/sentence_bert_config.json";
  const auto sentences = read_object(path);
  if (!sentences) return;
  const int64_t other = read_max_length(*sentences, "max_seq_length", path);
  if (other > 0) model.max_tokens = other;
  if (optional_boolean(*sentences, "do_lower_case", path) == true) add_lower_case(model.tokenizer);
}

/// Reads vocab.txt, or compares it with the vocabulary of tokenizer.json.
void read_vocab_txt(const std::string& directory, const json& config, const json& special, ModelDescription& model) {
  const std::string lines = directory + "/vocab.txt";
  std::error_code unseen;
  if (!std::filesystem::exists(lines, unseen)) return;
  const Vocabulary vocabulary = Vocabulary::load(lines);
  if (model.vocabulary.empty()) {
    model.vocabulary = vocabulary.tokens();
    return read_added_tokens_beside(directory, config, special, model);
  }
  const auto same = [](const std::string& mine, const std::string& other) { return mine == other || is_unused(mine); };
  if (vocabulary.size() > std::ssize(model.vocabulary) ||
      !std::equal(vocabulary.tokens().begin(), vocabulary.tokens().end(), model.vocabulary.begin(), same)) {
    throw DataError(fmt::format("{}: is not the vocabulary of tokenizer.json beside it: {}", lines,
                                vocabulary_difference(model.vocabulary, vocabulary.tokens())));
  }
}

}  // namespace

void read_tokenizer_file(const std::string& file, ForeignCheckpoint& checkpoint) {
  ModelDescription& model = checkpoint.model;
  model.tokenizer = kTransformersTokenizer;
  const Settings settings = read_tokenizer_json(file, model);
  merge_settings(file, settings, read_tokenizer_config(file, json::object()), checkpoint);
  if (!model.vocabulary.empty()) static_cast<void>(Vocabulary(model.vocabulary, file, model.added_tokens));
}

void read_hugging_face_tokenizer(const std::string& directory, ForeignCheckpoint& checkpoint) {
  ModelDescription& model = checkpoint.model;
  model.tokenizer = kTransformersTokenizer;
  const Settings tokenizer = read_tokenizer_json(directory + "/tokenizer.json", model);
  const std::string config_path = directory + "/tokenizer_config.json", map = directory + "/special_tokens_map.json";
  const json config = read_object(config_path).value_or(json::object());
  const json special = read_object(map).value_or(json::object());
  check_special_tokens(special, map);
  merge_settings(directory, tokenizer, read_tokenizer_config(config_path, config), checkpoint);
  read_vocab_txt(directory, config, special, model);
  read_sentence_settings(directory, config, model);
  if (optional_member(config, "truncation_side") != nullptr)
    model.cut_at_begin = string_member(config, "truncation_side", config_path) == "left";
  if (!model.vocabulary.empty())  // throws unless it has the special tokens
    static_cast<void>(Vocabulary(model.vocabulary, directory, model.added_tokens));
}

}  // namespace bert
