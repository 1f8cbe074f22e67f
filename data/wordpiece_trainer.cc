#include "data/wordpiece_trainer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "data/basic_tokenizer.h"
#include "data/error.h"
#include "data/unicode.h"

namespace bert {
namespace {

constexpr std::string_view kWordBegin = "\xE2\x96\x81";  // U+2581, which sentencepiece puts where a word begins
constexpr int64_t kSentencePieceMeta = 3;                // <unk> <s> </s>

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

/// Whether a character can stand inside of a word: punctuation and ideographs are words by themselves.
bool can_continue(std::string_view character) {
  return FoldTable::shared(false)[decode_utf8(character).value].kind == CharacterKind::kLetter;
}

/// Words as sentencepiece reads them in its tsv format: word, tab, count.
class WordLines : public sentencepiece::SentenceIterator {
 public:
  explicit WordLines(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  [[nodiscard]] bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  [[nodiscard]] const std::string& value() const override { return lines_[at_]; }
  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  size_t at_ = 0;
};

}  // namespace

WordPieceTrainer::WordPieceTrainer(const WordPieceTrainerConfig& config) : config_(config) {}

int64_t WordPieceTrainer::add(std::string_view text) {
  return BasicTokenizer(config_.tokenizer).for_each_word<false>(text, [this](const Word& word) {
    if (word.overlong) return;
    const auto found = words_.find(word.text);
    if (found != words_.end()) {
      ++found->second;
    } else {
      words_.emplace(word.text, 1);
    }
  });
}

std::vector<std::string> WordPieceTrainer::covered_characters() const {
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
  std::vector<std::string> characters;
  int64_t covered = 0;
  for (const auto& [character, count] : sorted) {
    if (static_cast<double>(covered) >= config_.character_coverage * static_cast<double>(total)) break;
    characters.push_back(character);
    covered += count;
  }
  return characters;
}

std::vector<std::string> WordPieceTrainer::learn_pieces(const std::vector<std::string>& characters) const {
  const std::unordered_set<std::string_view> known(characters.begin(), characters.end());
  std::vector<Count> words;
  for (const auto& [word, count] : words_) {
    bool usable = word.find(kWordBegin) == std::string::npos;
    size_t length = 0;
    for_each_character(word, [&](std::string_view character) {
      usable = usable && known.contains(character);
      ++length;
    });
    if (usable && length > 1) words.emplace_back(word, count);
  }
  if (words.empty()) return {};
  sort_by_count(words);
  std::vector<std::string> lines;
  lines.reserve(words.size());
  for (const auto& [word, count] : words) lines.push_back(fmt::format("{}\t{}", word, count));

  // Its characters, and its pieces of U+2581 and one character, are ours already: so many more are asked for.
  const auto characters_twice = 2 * static_cast<int64_t>(characters.size());
  WordLines iterator(std::move(lines));
  std::string serialized;
  const auto trained = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", "bpe"},
       {"vocab_size", std::to_string(config_.vocab_size + characters_twice + kSentencePieceMeta + 1)},
       {"hard_vocab_limit", "false"},
       {"character_coverage", "1.0"},
       {"normalization_rule_name", "identity"},
       {"input_format", "tsv"},
       {"split_by_unicode_script", "false"},
       {"split_by_number", "false"},
       {"minloglevel", "2"}},
      &iterator, &serialized);
  if (!trained.ok()) throw DataError(fmt::format("sentencepiece cannot learn from this text: {}", trained.ToString()));
  sentencepiece::SentencePieceProcessor model;
  const auto loaded = model.LoadFromSerializedProto(serialized);
  if (!loaded.ok()) throw DataError(fmt::format("sentencepiece cannot read its own model: {}", loaded.ToString()));
  std::vector<std::string> pieces;
  for (int id = static_cast<int>(kSentencePieceMeta); id < model.GetPieceSize(); ++id) {
    std::string_view piece = model.IdToPiece(id);
    if (piece.starts_with(kWordBegin)) {
      pieces.emplace_back(piece.substr(kWordBegin.size()));
    } else {
      pieces.push_back("##" + std::string(piece));
    }
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
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) append(special);
  const size_t special_tokens = tokens.size();
  const std::vector<std::string> characters = covered_characters();
  for (const std::string& character : characters) append(character);
  for (const std::string& character : characters) {
    if (can_continue(character)) append("##" + character);
  }
  if (tokens.size() > size) {
    throw DataError(fmt::format(
        "{} tokens are too few: the {} characters of the text and the special tokens take {}. Ask for more tokens, or "
        "for a character coverage below {}.",
        size, characters.size(), tokens.size(), config_.character_coverage));
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
