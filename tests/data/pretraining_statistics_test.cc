// Statistics of pre-training examples, on text made here and on real text. A count of independent draws may differ from
// its mean by three standard deviations. The seeds are fixed, so a test that passes once passes always.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <unordered_map>

#include "data/creation/document_tokenizer.h"
#include "data/random/permutation.h"
#include "tests/support/examples_of_text.h"
#include "tests/support/mask_statistics.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::check_masks;
using testing::count;
using testing::create_examples;
using testing::is_binomial;
using testing::is_within_three_sigma;
using testing::restored;

constexpr int32_t kMask = 4, kCls = 2, kSep = 3, kFirstWord = 5;  // of toy_tokenizer

WordPieceTokenizer toy_tokenizer(int32_t words) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int32_t i = 0; i < words; ++i) tokens.push_back("w" + std::to_string(i));
  return WordPieceTokenizer(Vocabulary(tokens));
}

/// Tokens of all documents, to find pieces of text in.
class TextIndex {
 public:
  explicit TextIndex(const TokenizedDocuments& documents) {
    for (size_t document = 0; document < documents.size(); ++document) {
      begins_.push_back(ids_.size());
      documents.append(documents.first_token(documents.first_sentence(document)),
                       documents.first_token(documents.first_sentence(document + 1)), ids_);
      ids_.push_back(-1);  // no piece reaches into the next document
    }
    for (size_t i = 0; i + 1 < ids_.size(); ++i) places_[key(ids_.data() + i)].push_back(i);
  }

  /// True if a document contains `a`, and if `b` is not empty, `b` at or behind the end of `a`.
  [[nodiscard]] bool contains(std::span<const int32_t> a, std::span<const int32_t> b) const {
    for (const size_t at : places(a)) {
      if (b.empty()) return true;
      const auto end = *std::upper_bound(begins_.begin(), begins_.end() - 1, at);
      const size_t limit = end > at ? end : ids_.size();
      const auto found = std::search(ids_.begin() + static_cast<std::ptrdiff_t>(at + a.size()),
                                     ids_.begin() + static_cast<std::ptrdiff_t>(limit), b.begin(), b.end());
      if (found != ids_.begin() + static_cast<std::ptrdiff_t>(limit)) return true;
    }
    return false;
  }

 private:
  static uint64_t key(const int32_t* two) {
    return static_cast<uint64_t>(static_cast<uint32_t>(two[0])) << 32 | static_cast<uint32_t>(two[1]);
  }
  [[nodiscard]] std::vector<size_t> places(std::span<const int32_t> piece) const {
    std::vector<size_t> found;
    const auto matches = [&](size_t at) {
      return at + piece.size() <= ids_.size() &&
             std::equal(piece.begin(), piece.end(), ids_.begin() + static_cast<std::ptrdiff_t>(at));
    };
    if (piece.size() < 2) {
      for (size_t at = 0; at < ids_.size(); ++at) {
        if (matches(at)) found.push_back(at);
      }
    } else if (const auto known = places_.find(key(piece.data())); known != places_.end()) {
      std::copy_if(known->second.begin(), known->second.end(), std::back_inserter(found), matches);
    }
    return found;
  }

  std::vector<int32_t> ids_;
  std::vector<size_t> begins_;
  std::unordered_map<uint64_t, std::vector<size_t>> places_;
};

void check_text(const std::vector<PretrainingExample>& examples, const TextIndex& text) {
  for (const PretrainingExample& example : examples) {
    const std::vector<int32_t> ids = restored(example);
    const auto b = static_cast<size_t>(example.segment_b_start);
    const std::span<const int32_t> all(ids), first = all.subspan(1, b - 2), second = all.subspan(b, ids.size() - b - 1);
    if (example.is_random_next) {
      REQUIRE(text.contains(first, {}));
      REQUIRE(text.contains(second, {}));
    } else {
      REQUIRE(text.contains(first, second));
    }
  }
}

constexpr int64_t kSentenceTokens = 5, kSentences = 60;

/// Documents of 60 sentences of 5 words. `word(document)` gives a word.
template <class Word>
TokenizedDocuments made_up_documents(int64_t count, Word word) {
  TokenizedDocuments documents(kFirstWord);
  std::vector<int32_t> sentence(kSentenceTokens);
  for (int64_t document = 0; document < count; ++document) {
    for (int64_t i = 0; i < kSentences; ++i) {
      for (int32_t& id : sentence) id = word(document);
      documents.add_sentence(sentence);
    }
    documents.end_document();
  }
  return documents;
}

/// Documents of random words.
TokenizedDocuments random_documents(int64_t count, int32_t words) {
  return made_up_documents(count, [words, state = uint64_t{1}](int64_t /*document*/) mutable {
    return kFirstWord + static_cast<int32_t>(mix_bits(state++) % static_cast<uint64_t>(words));
  });
}

/// A statistic of an example: a function of its next sentence being random, and of the tokens of the sentences that it
/// was made of.
using Statistic = std::function<double(bool random, int64_t tokens)>;

/// The number of examples that a document gives, in the mean, and the sum of a statistic over these: mean and second
/// moment.
struct Moments {
  double examples = 0, sum = 0, squared = 0;
};

/// Moments of the document with sentences of these lengths, for one target length. The recursion follows
/// create_instances_from_document in Google's create_pretraining_data.py: sentences are taken until they reach the
/// target. A lone sentence always gets a random next one; else A has 1 to n - 1 sentences, and in half of the cases B
/// is random and the sentences behind A go back.
Moments moments_of_document(const std::vector<int64_t>& lengths, int64_t target, const Statistic& statistic) {
  std::vector<Moments> from(lengths.size() + 1);  // by the first sentence that is left
  for (size_t begin = lengths.size(); begin-- > 0;) {
    size_t end = begin;
    int64_t tokens = 0;
    while (end < lengths.size() && tokens < target) tokens += lengths[end++];
    Moments& moments = from[begin];
    const auto add = [&](double probability, bool random, size_t after) {
      const double step = statistic(random, tokens);
      moments.examples += probability * (1 + from[after].examples);
      moments.sum += probability * (step + from[after].sum);
      moments.squared += probability * (step * step + 2 * step * from[after].sum + from[after].squared);
    };
    const size_t taken = end - begin;
    if (taken == 1) {
      add(1, true, end);
      continue;
    }
    for (size_t a = 1; a < taken; ++a) add(0.5 / static_cast<double>(taken - 1), true, begin + a);
    add(0.5, false, end);
  }
  return from.front();
}

/// Expectation and variance of a statistic over all examples of a text. Documents are independent of each other. With
/// probability short_seq_prob the target of a document is shorter: 2 .. max_seq_length - 3, each with the same
/// probability.
struct Expectation {
  double examples = 0, sum = 0, variance = 0;
};
Expectation expectation(const std::vector<std::vector<int64_t>>& documents, const PretrainingDataConfig& config,
                        const Statistic& statistic) {
  const int64_t longest = config.max_seq_length - 3;
  Expectation all;
  for (const std::vector<int64_t>& lengths : documents) {
    Moments mixed;
    const auto add = [&](double probability, int64_t target) {
      if (probability == 0) return;
      const Moments moments = moments_of_document(lengths, target, statistic);
      mixed.examples += probability * moments.examples;
      mixed.sum += probability * moments.sum;
      mixed.squared += probability * moments.squared;
    };
    add(1 - config.short_seq_prob, longest);
    for (int64_t target = 2; target <= longest; ++target)
      add(config.short_seq_prob / static_cast<double>(longest - 1), target);
    all.examples += mixed.examples;
    all.sum += mixed.sum;
    all.variance += mixed.squared - mixed.sum * mixed.sum;
  }
  const auto copies = static_cast<double>(config.dupe_factor);
  return {copies * all.examples, copies * all.sum, copies * all.variance};
}

/// True if the number of examples with a property differs from its share of all examples by what chance explains. The
/// share is the expectation of the number divided by that of the number of examples.
bool has_expected_share(int64_t count, size_t examples, const std::vector<std::vector<int64_t>>& documents,
                        const PretrainingDataConfig& config, const Statistic& property) {
  const Expectation whole = expectation(documents, config, property);
  const double share = whole.sum / whole.examples;
  const Expectation excess =
      expectation(documents, config, [&](bool random, int64_t tokens) { return property(random, tokens) - share; });
  REQUIRE(std::abs(excess.sum) < 1e-6 * whole.examples);
  return is_within_three_sigma(static_cast<double>(count) - share * static_cast<double>(examples), 0, excess.variance);
}

/// 1 if the next sentence is random.
double is_random(bool random, int64_t /*tokens*/) { return random ? 1 : 0; }

/// 1 if the next sentence is not random, and the sentences do not fill the example. Such an example is at the end of a
/// document, or of a document with a shorter target. What a random next sentence adds is not known to the recursion.
Statistic is_short(const PretrainingDataConfig& config) {
  return
      [room = config.max_seq_length - 3](bool random, int64_t tokens) { return !random && tokens < room ? 1.0 : 0.0; };
}

int64_t count_random(const std::vector<PretrainingExample>& examples) {
  return std::ranges::count_if(examples, [](const auto& e) { return e.is_random_next; });
}

int64_t count_short(const std::vector<PretrainingExample>& examples, const PretrainingDataConfig& config) {
  return std::ranges::count_if(examples, [&](const auto& e) {
    return !e.is_random_next && static_cast<int64_t>(e.input_ids.size()) < config.max_seq_length;
  });
}

/// The lengths of the sentences of each document.
std::vector<std::vector<int64_t>> sentence_lengths(const TokenizedDocuments& documents) {
  std::vector<std::vector<int64_t>> lengths(documents.size());
  for (size_t document = 0; document < documents.size(); ++document) {
    for (auto i = documents.first_sentence(document); i < documents.first_sentence(document + 1); ++i)
      lengths[document].push_back(static_cast<int64_t>(documents.first_token(i + 1) - documents.first_token(i)));
  }
  return lengths;
}

TEST_CASE("Statistics of examples from made-up text are those of BERT's recipe", "[unit][statistics]") {
  constexpr int32_t kWords = 995;
  constexpr int64_t kDocuments = 3000;
  const WordPieceTokenizer tokenizer = toy_tokenizer(kWords);
  REQUIRE(tokenizer.vocabulary().mask_id() == kMask);
  REQUIRE(tokenizer.vocabulary().cls_id() == kCls);
  REQUIRE(tokenizer.vocabulary().sep_id() == kSep);
  const TokenizedDocuments documents = random_documents(kDocuments, kWords);
  PretrainingDataConfig config;
  config.max_seq_length = 64;
  config.dupe_factor = 1;

  SECTION("masks, and labels that restore the text") {
    const auto examples = create_examples(documents, tokenizer, config);
    check_masks(count(examples, tokenizer, config), tokenizer.vocabulary().size());
    check_text(examples, TextIndex(documents));
  }
  SECTION("the share of random next sentences") {
    config.short_seq_prob = 0;
    const auto examples = create_examples(documents, tokenizer, config);
    const auto lengths = sentence_lengths(documents);
    const Expectation random = expectation(lengths, config, is_random);
    CHECK(random.sum > 0.5 * random.examples);  // for the lone sentences at the ends of documents
    CHECK(random.sum < 0.55 * random.examples);
    CHECK(has_expected_share(count_random(examples), examples.size(), lengths, config, is_random));
    // The twin: a tenth fewer would be another share.
    CHECK_FALSE(has_expected_share(count_random(examples) * 9 / 10, examples.size(), lengths, config, is_random));
  }
  SECTION("the share of swapped segments, with the objective of sentence order") {
    config.objective = Objective::kSop;
    const auto examples = create_examples(documents, tokenizer, config);
    check_masks(count(examples, tokenizer, config), tokenizer.vocabulary().size());
    const auto swapped = std::ranges::count_if(examples, [](const auto& e) { return e.is_random_next; });
    CHECK(is_binomial(swapped, static_cast<int64_t>(examples.size()), 0.5));
  }
  SECTION("the share of documents with a shorter target") {
    // A document's examples are found by the first word of A, which names the document here.
    const TokenizedDocuments named = made_up_documents(
        kDocuments, [](int64_t document) { return kFirstWord + kWords + static_cast<int32_t>(document); });
    const WordPieceTokenizer more = toy_tokenizer(kWords + static_cast<int32_t>(kDocuments));
    std::map<int32_t, size_t> longest;
    for (const PretrainingExample& example : create_examples(named, more, config)) {
      size_t& length = longest[restored(example)[1]];
      length = std::max(length, example.input_ids.size());
    }
    REQUIRE(longest.size() == named.size());
    // The shorter target is one of 2 .. 61. With a target of up to 56, chunks have up to 60 tokens, with a longer
    // one 65.
    const auto short_documents = std::ranges::count_if(longest, [](const auto& l) { return l.second < 64; });
    CHECK(is_binomial(short_documents, kDocuments, config.short_seq_prob * 55 / 60));
    CHECK_FALSE(is_binomial(short_documents, kDocuments, 2 * config.short_seq_prob * 55 / 60));
  }
}

TEST_CASE("Statistics of examples from real text are those of BERT's recipe", "[unit][statistics]") {
  const std::string data = testing::shared_data();
  if (data.empty()) BERT_SKIP("the novel and the vocabulary are in ../shared/data, which is absent");
  const auto tokenizer = make_tokenizer(data + "/vocab/bert-base-uncased-vocab.txt");
  const Corpus corpus = read_documents({data + "/text/novels/Burnett_Garden_1911.txt"}, *tokenizer,
                                       {.reader = {.layout = Layout::kProse}, .num_threads = 2, .progress = {}});
  PretrainingDataConfig config;
  config.dupe_factor = 5;
  const auto examples = create_examples(corpus.documents, *tokenizer, config);
  REQUIRE(examples.size() > 3000);
  check_masks(count(examples, *tokenizer, config), tokenizer->vocabulary().size());
  check_text(examples, TextIndex(corpus.documents));
}

TEST_CASE("Next sentences and short targets of real text have the shares of BERT's recipe", "[unit][statistics]") {
  const std::string data = testing::shared_data();
  if (data.empty()) BERT_SKIP("the novels and the vocabulary are in ../shared/data, which is absent");
  const auto tokenizer = make_tokenizer(data + "/vocab/bert-base-uncased-vocab.txt");
  const std::string novels = data + "/text/novels/";
  const Corpus corpus =
      read_documents({novels + "Burnett_Garden_1911.txt", novels + "Chesterton_Thursday_1908.txt"}, *tokenizer,
                     {.reader = {.layout = Layout::kProse}, .num_threads = 2, .progress = {}});
  PretrainingDataConfig config;
  config.dupe_factor = 40;
  const auto examples = create_examples(corpus.documents, *tokenizer, config);
  const auto lengths = sentence_lengths(corpus.documents);
  CHECK(has_expected_share(count_random(examples), examples.size(), lengths, config, is_random));
  CHECK(has_expected_share(count_short(examples, config), examples.size(), lengths, config, is_short(config)));
  // The twins: half of all examples, which leaves out the lone sentences; twice as many short targets.
  const auto half = static_cast<int64_t>(examples.size()) / 2;
  CHECK_FALSE(has_expected_share(half, examples.size(), lengths, config, is_random));
  PretrainingDataConfig more_short = config;
  more_short.short_seq_prob *= 2;
  CHECK_FALSE(
      has_expected_share(count_short(examples, config), examples.size(), lengths, more_short, is_short(config)));
}

}  // namespace
}  // namespace bert
