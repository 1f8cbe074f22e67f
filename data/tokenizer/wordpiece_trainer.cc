#include "data/tokenizer/wordpiece_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <unordered_set>
#include <utility>

#include "data/io/error.h"
#include "data/io/text_parts.h"
#include "data/text/unicode.h"
#include "data/tokenizer/basic_tokenizer.h"
#include "data/tokenizer/sentencepiece_library.h"

namespace bert {
namespace {

constexpr std::string_view kWordStart = "\xE2\x96\x81";  // U+2581, which sentencepiece puts at the beginning of a word
constexpr int64_t kSentencePieceMeta = 3;                // <unk> <s> </s>
constexpr const char* kSpecialTokens[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr int64_t kCountedBytes = 32, kLearntCharacters = 16;  // of a word that counts as one

using Count = std::pair<std::string, int64_t>;

/// Most frequent first, then by bytes.
void sort_by_count(std::vector<Count>& counts) {
  std::ranges::sort(counts, [](const Count& a, const Count& b) {
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

int64_t characters_of(std::string_view word) {
  int64_t characters = 0;
  for_each_character(word, [&](std::string_view) { ++characters; });
  return characters;
}

/// The room that a word takes of `most_words`.
int64_t room_of(std::string_view word) { return 1 + static_cast<int64_t>(word.size()) / kCountedBytes; }

/// True if a character can stand inside of a word. Punctuation is a word by itself, and so may be an ideograph.
bool can_continue(std::string_view character, const TokenizerConfig& tokenizer) {
  const FoldTable& kinds = FoldTable::shared({.lower_case = false, .strip_accents = false});
  const CharacterKind kind = kinds[decode_utf8(character).value].kind;
  return kind == CharacterKind::kLetter || (kind == CharacterKind::kCjk && !tokenizer.tokenize_chinese_chars);
}

// Note [Characters of sentencepiece]
// sentencepiece reads U+2581 as the beginning of a word and skips words with U+2585, its sign for unknown text. BERT
// reads both as letters. So sentencepiece gets private-use characters in their place, chosen so that the text does not
// contain them.
class StandIns {
 public:
  explicit StandIns(const std::unordered_set<std::string_view>& taken) {
    char32_t candidate = 0xF0000;  // plane 15 has 65,534 characters of private use
    for (const std::string_view reserved : {kWordStart, std::string_view("\xE2\x96\x85")}) {
      std::string stand_in;
      do {
        stand_in.clear();
        append_utf8(candidate++, stand_in);
      } while (taken.contains(stand_in));
      pairs_.emplace_back(reserved, std::move(stand_in));
    }
  }

  void put(std::string& word) const {
    for (const auto& [reserved, stand_in] : pairs_) word = replaced(std::move(word), reserved, stand_in);
  }
  void take_back(std::string& piece) const {
    for (const auto& [reserved, stand_in] : pairs_) piece = replaced(std::move(piece), stand_in, reserved);
  }

 private:
  std::vector<std::pair<std::string_view, std::string>> pairs_;
};

}  // namespace

WordPieceTrainer::WordPieceTrainer(const WordPieceTrainerConfig& config) : config_(config) {}

int64_t WordPieceTrainer::add(std::string_view text) {
  return BasicTokenizer(config_.tokenizer).for_each_word<false>(text, [this](const Word& word) {
    if (word.overlong) {
      ++overlong_words_;
    } else {
      count(word.text);
    }
  });
}

void WordPieceTrainer::count(std::string_view word) {
  ++all_words_;
  const auto found = words_.find(word);
  if (found != words_.end()) {
    ++found->second.count;
    return;
  }
  words_.emplace(word, Counted{.count = 1, .error = forgotten_});
  room_ += room_of(word);
  if (room_ > config_.most_words) forget_rare_words();
}

void WordPieceTrainer::forget_rare_words() {
  std::map<int64_t, int64_t> room_by_count;
  for (const auto& [word, counted] : words_) room_by_count[counted.count + counted.error] += room_of(word);
  for (auto least = room_by_count.begin(); least != room_by_count.end() && room_ > config_.most_words / 2; ++least) {
    forgotten_ = std::max(forgotten_, least->first);
    room_ -= least->second;
  }
  std::erase_if(words_, [this](const auto& entry) {
    const auto& counted = entry.second;
    if (counted.count + counted.error > forgotten_) return false;
    for_each_character(entry.first, [&](std::string_view character) {
      auto found = forgotten_characters_.find(character);
      if (found == forgotten_characters_.end()) found = forgotten_characters_.emplace(character, 0).first;
      found->second += counted.count;
    });
    ++left_out_words_;
    left_out_count_ += counted.count;
    return true;
  });
}

std::vector<std::pair<std::string, int64_t>> WordPieceTrainer::counts() const {
  std::vector<Count> counts;
  for (const auto& [word, counted] : words_) counts.emplace_back(word, counted.count);
  sort_by_count(counts);
  return counts;
}

WordsLeftOut WordPieceTrainer::left_out() const {
  const double share = all_words_ == 0 ? 0 : static_cast<double>(left_out_count_) / static_cast<double>(all_words_);
  return {.words = left_out_words_, .share = share};
}

WordPieceTrainer::ChosenCharacters WordPieceTrainer::choose_characters(const WordPieceTrainerConfig& config) const {
  ByText<int64_t> counts = forgotten_characters_;
  int64_t total = 0;
  for (const auto& [character, count] : counts) total += count;
  for (const auto& [word, counted] : words_) {
    for_each_character(word, [&, n = counted.count](std::string_view character) {
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
    tokens += can_continue(character, config.tokenizer) ? 2 : 1;
    if (config.allow_fewer_characters && tokens > config.vocab_size) break;
    chosen.characters.push_back(character);
    covered += count;
  }
  chosen.statistics = {.in_text = static_cast<int64_t>(sorted.size()),
                       .in_vocabulary = static_cast<int64_t>(chosen.characters.size()),
                       .coverage = total == 0 ? 1 : static_cast<double>(covered) / static_cast<double>(total)};
  return chosen;
}

/// Moves the words out of words_ that consist of `characters`, and have more than one. Most frequent first.
std::vector<WordPieceTrainer::Count> WordPieceTrainer::take_words(const std::vector<std::string>& characters) {
  const std::unordered_set<std::string_view> known(characters.begin(), characters.end());
  const StandIns stand_ins(known);
  std::vector<Count> words;
  while (!words_.empty()) {
    auto node = words_.extract(words_.begin());
    bool usable = characters_of(node.key()) > 1;
    for_each_character(node.key(), [&](std::string_view one) { usable = usable && known.contains(one); });
    if (!usable) continue;
    words.emplace_back(std::move(node.key()), node.mapped().count);
    stand_ins.put(words.back().first);
  }
  sort_by_count(words);
  return words;
}

std::vector<std::string> WordPieceTrainer::learn_pieces(const std::vector<std::string>& characters) {
  const StandIns stand_ins({characters.begin(), characters.end()});
  std::vector<std::string> lines;  // in the tsv format of sentencepiece: word, tab, count
  int64_t room = 0;
  for (auto& [word, count] : take_words(characters)) {
    if (room < config_.most_learnt_words) {
      room += 1 + characters_of(word) / kLearntCharacters;
      lines.push_back(std::move(word.append(fmt::format("\t{}", count))));
    } else {
      ++left_out_words_;
      left_out_count_ += count;
    }
  }
  if (lines.empty()) return {};

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
    pieces.push_back(piece.starts_with(kWordStart) ? std::string(piece.substr(kWordStart.size()))
                                                   : "##" + std::string(piece));
    stand_ins.take_back(pieces.back());
  }
  return pieces;
}

std::vector<std::string> WordPieceTrainer::train() {
  const auto size = static_cast<size_t>(config_.vocab_size);
  std::vector<std::string> tokens;
  std::unordered_set<std::string> seen;
  const auto append = [&](const std::string& token) {
    if (!token.empty() && token != "##" && seen.insert(token).second) tokens.push_back(token);
  };
  for (const char* special : kSpecialTokens) append(special);
  const size_t special_tokens = tokens.size();
  const auto [characters, statistics] = choose_characters(config_);
  characters_ = statistics;
  for (const std::string& character : characters) append(character);
  for (const std::string& character : characters) {
    if (can_continue(character, config_.tokenizer)) append("##" + character);
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
