#include "data/tokenizer/vocabulary_extension.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "data/text/unicode.h"

namespace bert {
namespace {

constexpr char kEnd = '\n';  // of a word in the text of all words; no word has it

/// A part of a word that may become a piece.
struct Part {
  std::string_view text;
  bool continues = false;  // it does not begin a word

  bool operator==(const Part&) const = default;
  [[nodiscard]] std::string token() const { return (continues ? "##" : "") + std::string(text); }
  [[nodiscard]] bool starts(std::string_view rest, bool inside) const {
    return inside == continues && rest.starts_with(text);
  }
};

struct PartHash {
  size_t operator()(const Part& part) const {
    return std::hash<std::string_view>()(part.text) * 2 + static_cast<size_t>(part.continues);
  }
};

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

int64_t characters_in(std::string_view text) { return std::ranges::count_if(text, begins_character); }

/// The search of Note [Greedy extension].
class Extension {
 public:
  Extension(const WordPieceTokenizer& old, const CountedWords& words, int64_t min_frequency)
      : old_(old), min_frequency_(min_frequency) {
    for (const auto& [word, count] : words) add_word(word, count);
    sort_suffixes();
    for (size_t word = 0; word < words_.size(); ++word) weigh(word, 1);
    push_touched();
  }

  /// Takes the best piece. Returns an empty token if none saves one.
  NewPiece take() {
    while (!best_.empty()) {
      const Entry top = best_.top();
      best_.pop();
      Gain& gain = gains_.at(top.part);
      if (gain.tokens != top.tokens) {
        gain.pushed = std::numeric_limits<int64_t>::min();
        touched_.insert(top.part);
        push_touched();
        continue;
      }
      const bool added = old_.vocabulary().find(top.part.token()) >= 0;  // a token that texts are searched for
      if (added || gain.frequency < min_frequency_) continue;
      accept(top.part);
      return {top.part.token(), top.tokens};
    }
    return {};
  }

 private:
  struct CountedWord {
    size_t begin = 0, end = 0;  // in text_
    int64_t count = 0;
  };
  struct Gain {
    int64_t tokens = 0;     // that the part saves
    int64_t frequency = 0;  // of the words that it shortens
    int64_t pushed = std::numeric_limits<int64_t>::min();
  };
  struct Entry {
    int64_t tokens = 0;
    Part part;
    bool operator<(const Entry& other) const {  // the best one is the largest
      return std::tuple(tokens, part.text.size(), other.part.text, other.part.continues) <
             std::tuple(other.tokens, other.part.text.size(), part.text, part.continues);
    }
  };

  [[nodiscard]] std::string_view rest_of(const CountedWord& word, size_t at) const {
    return std::string_view(text_).substr(at, word.end - at);
  }

  void add_word(const std::string& word, int64_t count) {
    const size_t begin = text_.size();
    if (old_.longest_piece(word, false).bytes == word.size()) return;  // one token already
    words_.push_back({begin, begin + word.size(), count});
    text_ += word;
    for (size_t at = 0; at < word.size(); ++at) {
      const bool starts = begins_character(word[at]);
      const size_t longest = starts ? old_.longest_piece(std::string_view(word).substr(at), at > 0).bytes : 0;
      longest_.push_back(static_cast<uint16_t>(longest));
    }
    text_ += kEnd;
    longest_.push_back(0);
  }

  /// Sorts the places of all words by the text from there to the end of the word, and finds how much of it stands
  /// elsewhere too.
  void sort_suffixes() {
    for (size_t word = 0; word < words_.size(); ++word) {
      for (size_t at = words_[word].begin; at < words_[word].end; ++at) {
        if (begins_character(text_[at])) places_.push_back({at, word});
      }
    }
    const auto suffix = [&](const Place& place) { return rest_of(words_[place.word], place.at); };
    std::ranges::sort(places_, [&](const Place& a, const Place& b) {
      const int order = suffix(a).compare(suffix(b));
      return order != 0 ? order < 0 : a.at < b.at;
    });
    shared_.resize(text_.size());
    for (size_t i = 1; i < places_.size(); ++i) {
      const std::string_view a = suffix(places_[i - 1]), b = suffix(places_[i]);
      const auto equal = static_cast<uint16_t>(std::ranges::mismatch(a, b).in1 - a.begin());
      shared_[places_[i - 1].at] = std::max(shared_[places_[i - 1].at], equal);
      shared_[places_[i].at] = std::max(shared_[places_[i].at], equal);
    }
  }

  /// The tokens of the word from `at` on, with `part` as another piece. Infinite (kUnknown) if it is [UNK].
  [[nodiscard]] int64_t tokens_from(const CountedWord& word, size_t at, const Part* part) const {
    int64_t tokens = 0;
    while (at < word.end) {
      size_t longest = longest_[at];
      if (part != nullptr && part->text.size() > longest && part->starts(rest_of(word, at), at > word.begin))
        longest = part->text.size();
      if (longest == 0) return kUnknown;
      at += longest;
      ++tokens;
    }
    return tokens;
  }

  /// Adds what every part of the word would save of it to gains_, `sign` times.
  void weigh(size_t index, int64_t sign) {
    const CountedWord& word = words_[index];
    const std::string_view text = rest_of(word, word.begin);
    const int64_t cost_of_unknown = characters_in(text) + 1;
    const int64_t known = tokens_from(word, word.begin, nullptr);
    const int64_t cost = known == kUnknown ? cost_of_unknown : known;
    begins_.clear();
    for (size_t at = word.begin; at < word.end;) {
      begins_.push_back(at);
      const auto character = static_cast<size_t>(decode_utf8(rest_of(word, at)).bytes);
      at += longest_[at] > 0 ? longest_[at] : character;
    }
    const bool rare = word.count < min_frequency_;
    for (size_t token = 0; token < begins_.size(); ++token) {
      const size_t begin = begins_[token];
      const size_t most = rare ? std::min(word.end, begin + shared_[begin]) : word.end;
      for (size_t end = begin + longest_[begin] + 1; end <= most; ++end) {
        if (end < word.end && !begins_character(text_[end])) continue;
        const Part part{std::string_view(text_).substr(begin, end - begin), begin > word.begin};
        const auto counts_earlier = [&](size_t earlier) {
          return part.text.size() > longest_[earlier] && part.starts(rest_of(word, earlier), earlier > word.begin);
        };
        if (std::any_of(begins_.begin(), begins_.begin() + static_cast<std::ptrdiff_t>(token), counts_earlier))
          continue;
        int64_t rest = tokens_from(word, begin, &part);
        for (size_t i = 0; i < token && rest != kUnknown; ++i) {
          if (longest_[begins_[i]] == 0) rest = kUnknown;
        }
        const int64_t now = rest == kUnknown ? cost_of_unknown : static_cast<int64_t>(token) + rest;
        if (now == cost) continue;
        Gain& gain = gains_[part];
        gain.tokens += sign * word.count * (cost - now);
        if (now < cost) gain.frequency += sign * word.count;
        touched_.insert(part);
      }
    }
  }

  void push_touched() {
    for (const Part& part : touched_) {
      Gain& gain = gains_.at(part);
      if (gain.tokens <= 0 || gain.tokens <= gain.pushed) continue;
      gain.pushed = gain.tokens;
      best_.push({gain.tokens, part});
    }
    touched_.clear();
  }

  /// Makes `part` a piece.
  void accept(const Part& part) {
    const auto before = [&](const Place& place) { return rest_of(words_[place.word], place.at) < part.text; };
    const auto with = [&](const Place& place) { return rest_of(words_[place.word], place.at).starts_with(part.text); };
    const auto first = std::partition_point(places_.begin(), places_.end(), before);
    const auto last = std::partition_point(first, places_.end(), with);
    std::vector<Place> longer;  // where it is the longest piece now
    for (auto place = first; place != last; ++place) {
      const bool inside = place->at > words_[place->word].begin;
      if (inside == part.continues && longest_[place->at] < part.text.size()) longer.push_back(*place);
    }
    std::ranges::sort(longer, {}, &Place::at);
    for (size_t i = 0; i < longer.size();) {
      const size_t word = longer[i].word;
      weigh(word, -1);
      for (; i < longer.size() && longer[i].word == word; ++i)
        longest_[longer[i].at] = static_cast<uint16_t>(part.text.size());
      weigh(word, 1);
    }
    push_touched();
  }

  static constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  struct Place {
    size_t at = 0, word = 0;
  };

  const WordPieceTokenizer& old_;
  const int64_t min_frequency_;
  std::string text_;  // of all words that have several tokens
  std::vector<CountedWord> words_;
  std::vector<uint16_t> longest_;  // bytes of the longest piece at each place of text_; 0: none
  std::vector<Place> places_;
  std::vector<uint16_t> shared_;
  std::vector<size_t> begins_;  // of the tokens of the word that is weighed
  std::unordered_map<Part, Gain, PartHash> gains_;
  std::unordered_set<Part, PartHash> touched_;
  std::priority_queue<Entry> best_;
};

bool is_unused(const std::string& token) {
  constexpr std::string_view kBegin = "[unused";
  return token.starts_with(kBegin) && token.size() > kBegin.size() + 1 && token.back() == ']' &&
         std::all_of(token.begin() + kBegin.size(), token.end() - 1, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<NewPiece> pieces_to_add(const WordPieceTokenizer& old, const CountedWords& words, int64_t pieces,
                                    int64_t min_frequency) {
  Extension extension(old, words, min_frequency);
  std::vector<NewPiece> taken;
  while (static_cast<int64_t>(taken.size()) < pieces) {
    NewPiece piece = extension.take();
    if (piece.token.empty()) break;
    taken.push_back(std::move(piece));
  }
  return taken;
}

TokenCount count_tokens(const WordPieceTokenizer& tokenizer, const CountedWords& words) {
  TokenCount sum;
  std::vector<int32_t> ids;
  for (const auto& [word, count] : words) {
    ids.clear();
    tokenizer.encode(word, ids);
    sum.words += count;
    sum.tokens += count * static_cast<int64_t>(ids.size());
    if (ids == std::vector<int32_t>{tokenizer.vocabulary().unk_id()}) sum.unknown += count;
  }
  return sum;
}

std::vector<std::string> extended_vocabulary(std::vector<std::string> tokens, const std::vector<NewPiece>& pieces,
                                             bool use_unused, int64_t reserve) {
  auto unused = tokens.begin();
  const std::vector<std::string> old = tokens;
  std::vector<std::string> appended;
  for (const NewPiece& piece : pieces) {
    if (use_unused) unused = std::find_if(unused, tokens.end(), is_unused);
    if (use_unused && unused != tokens.end()) {
      *unused++ = piece.token;
    } else {
      appended.push_back(piece.token);
    }
  }
  tokens.insert(tokens.end(), appended.begin(), appended.end());
  const std::unordered_set<std::string> names(old.begin(), old.end());
  for (int64_t number = 0, added = 0; added < reserve; ++number) {
    const std::string name = "[unused" + std::to_string(number) + "]";
    if (names.contains(name)) continue;
    tokens.push_back(name);
    ++added;
  }
  return tokens;
}

}  // namespace bert
