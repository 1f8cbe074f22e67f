#include "data/tokenizer/wordpiece_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <unordered_set>
#include <utility>

#include "data/io/error.h"
#include "data/text/unicode.h"
#include "data/tokenizer/basic_tokenizer.h"
#include "data/tokenizer/sentencepiece_library.h"

namespace bert {
namespace {

constexpr std::string_view kWordBegin = "\xE2\x96\x81";  // U+2581, which sentencepiece puts at the beginning of a word
constexpr int64_t kSentencePieceMeta = 3;                // <unk> <s> </s>
constexpr const char* kSpecialTokens[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

using Count = std::pair<std::string, int64_t>;

/// Most frequent first, then by bytes.
void sort_by_count(std::vector<Count>& counts) {
  std::sort(counts.begin(), counts.end(), [](const Count& a, const Count& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
}

/// Calls handle(character as UTF-8) for each character of valid UTF-8.
template <class Handle>
void for_each_character(std::string_view text, Handle&& handle) {
  while (!text.empty()) {
    const auto bytes = static_cast<size_t>(decode_utf8(text).bytes);
    handle(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
}

/// True if a character can stand inside of a word. Punctuation and ideographs are words by themselves.
bool can_continue(std::string_view character) {
  return FoldTable::shared(false)[decode_utf8(character).value].kind == CharacterKind::kLetter;
}

// Note [Characters of sentencepiece]
// sentencepiece reads U+2581 as the beginning of a word and skips words with U+2585, its sign for unknown text. BERT
// reads both as letters. So sentencepiece gets private-use characters in their place, chosen so that the text does not
// contain them.
class StandIns {
 public:
  explicit StandIns(const std::unordered_set<std::string_view>& taken) {
    char32_t candidate = 0xF0000;  // plane 15 has 65,534 characters of private use
    for (const std::string_view reserved : {kWordBegin, std::string_view("\xE2\x96\x85")}) {
      std::string stand_in;
      do {
        stand_in.clear();
        append_utf8(candidate++, stand_in);
      } while (taken.contains(stand_in));
      pairs_.emplace_back(reserved, std::move(stand_in));
    }
  }

  void put(std::string& word) const {
    for (const auto& [reserved, stand_in] : pairs_) replace_all(word, reserved, stand_in);
  }
  void take_back(std::string& piece) const {
    for (const auto& [reserved, stand_in] : pairs_) replace_all(piece, stand_in, reserved);
  }

 private:
  static void replace_all(std::string& text, std::string_view from, std::string_view to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  }

  std::vector<std::pair<std::string_view, std::string>> pairs_;
};

}  // namespace

WordPieceTrainer::WordPieceTrainer(const WordPieceTrainerConfig& config) : config_(config) {}

int64_t WordPieceTrainer::add(std::string_view text) {
  return BasicTokenizer(config_.tokenizer).for_each_word<false>(text, [this](const Word& word) {
    if (word.overlong) {
      ++overlong_words_;
      return;
    }
    const auto found = words_.find(word.text);
    if (found != words_.end()) {
      ++found->second;
    } else {
      words_.emplace(word.text, 1);
    }
  });
}

WordPieceTrainer::ChosenCharacters WordPieceTrainer::choose_characters(const WordPieceTrainerConfig& config) const {
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts;
  int64_t total = 0;
  for (const auto& [word, count] : words_) {
    for_each_character(word, [&, n = count](std::string_view character) {
      auto found = counts.find(character);
      if (found == counts.end()) found = counts.emplace(character, 0).first;
      found->second += n;
      total += n;
    });
  }
  std::vector<Count> sorted(counts.begin(), counts.end());
  sort_by_count(sorted);
  ChosenCharacters chosen;
  int64_t covered = 0, tokens = std::size(kSpecialTokens);
  for (const auto& [character, count] : sorted) {
    if (static_cast<double>(covered) >= config.character_coverage * static_cast<double>(total)) break;
    tokens += can_continue(character) ? 2 : 1;
    if (config.allow_fewer_characters && tokens > config.vocab_size) break;
    chosen.characters.push_back(character);
    covered += count;
  }
  chosen.statistics = {.in_text = static_cast<int64_t>(sorted.size()),
                       .in_vocabulary = static_cast<int64_t>(chosen.characters.size()),
                       .coverage = total == 0 ? 1 : static_cast<double>(covered) / static_cast<double>(total)};
  return chosen;
}

std::vector<std::string> WordPieceTrainer::learn_pieces(const std::vector<std::string>& characters) const {
  const std::unordered_set<std::string_view> known(characters.begin(), characters.end());
  const StandIns stand_ins(known);
  std::vector<Count> words;
  for (const auto& [word, count] : words_) {
    bool usable = true;
    size_t length = 0;
    for_each_character(word, [&](std::string_view character) {
      usable = usable && known.contains(character);
      ++length;
    });
    if (!usable || length < 2) continue;
    words.emplace_back(word, count);
    stand_ins.put(words.back().first);
  }
  if (words.empty()) return {};
  sort_by_count(words);
  std::vector<std::string> lines;  // in the tsv format of sentencepiece: word, tab, count
  lines.reserve(words.size());
  for (const auto& [word, count] : words) lines.push_back(fmt::format("{}\t{}", word, count));

  // sentencepiece's vocabulary includes each character, and U+2581 with each character, which are counted already. So
  // as many more tokens are asked for.
  const auto characters_twice = 2 * static_cast<int64_t>(characters.size());
  std::string serialized, error;
  const auto into = [](std::string& text) { return [&text](std::string_view given) { text = given; }; };
  const SentencePieceLibrary& library = sentencepiece_library();
  const bool trained =
      library.train({{"model_type", "bpe"},
                     {"vocab_size", std::to_string(config_.vocab_size + characters_twice + kSentencePieceMeta + 1)},
                     {"hard_vocab_limit", "false"},
                     {"character_coverage", "1.0"},
                     {"normalization_rule_name", "identity"},
                     {"input_format", "tsv"},
                     {"split_by_unicode_script", "false"},
                     {"split_by_number", "false"},
                     {"minloglevel", "2"}},
                    lines, into(serialized), into(error));
  if (!trained) throw DataError(fmt::format("sentencepiece cannot learn from this text: {}", error));
  const auto model = library.load(serialized, into(error));
  if (model == nullptr) throw DataError(fmt::format("sentencepiece cannot read its own model: {}", error));
  std::vector<std::string> pieces;
  for (int id = static_cast<int>(kSentencePieceMeta); id < model->size(); ++id) {
    const std::string_view piece = model->piece(id);
    pieces.push_back(piece.starts_with(kWordBegin) ? std::string(piece.substr(kWordBegin.size()))
                                                   : "##" + std::string(piece));
    stand_ins.take_back(pieces.back());
  }
  return pieces;
}

std::vector<std::string> WordPieceTrainer::train() const {
  const auto size = static_cast<size_t>(config_.vocab_size);
  std::vector<std::string> tokens;
  std::unordered_set<std::string> seen;
  const auto append = [&](const std::string& token) {
    if (!token.empty() && token != "##" && seen.insert(token).second) tokens.push_back(token);
  };
  for (const char* special : kSpecialTokens) append(special);
  const size_t special_tokens = tokens.size();
  const std::vector<std::string> characters = choose_characters(config_).characters;
  for (const std::string& character : characters) append(character);
  for (const std::string& character : characters) {
    if (can_continue(character)) append("##" + character);
  }
  if (tokens.size() > size) {
    WordPieceTrainerConfig fitting = config_;
    fitting.allow_fewer_characters = true;
    constexpr double kDigits = 1e4;  // rounded down, so that the tokens fit
    const double coverage = std::floor(kDigits * choose_characters(fitting).statistics.coverage) / kDigits;
    throw DataError(fmt::format(
        "{} tokens are too few: the {} characters of the text and the special tokens take {}. Ask for more tokens{}.",
        size, characters.size(), tokens.size(),
        coverage < kLeastCharacterCoverage ? ""
                                           : fmt::format(", or for a character coverage of at most {}", coverage)));
  }
  for (const std::string& piece : learn_pieces(characters)) append(piece);
  if (tokens.size() < size && (!config_.allow_fewer || tokens.size() == special_tokens)) {
    throw DataError(fmt::format("the text gives {} tokens, not {}. Give more text, or ask for at most {}.",
                                tokens.size(), size, tokens.size()));
  }
  tokens.resize(std::min(size, tokens.size()));
  return tokens;
}

}  // namespace bert
