#include "app/verbs/model/pretraining_examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>

#include "app/verbs/model/predict_input.h"
#include "data/examples/example_maker.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/random/counter_random.h"
#include "data/random/permutation.h"
#include "data/text/paragraphs.h"
#include "data/text/sentence_splitter.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

/// The share of each of `files` files in `most` examples.
int64_t share_of_file(int64_t most, size_t files) {
  if (most == 0) return INT64_MAX;
  const auto count = static_cast<int64_t>(files);
  return (most + count - 1) / count;
}

/// Collects words to pieces.
class PieceMaker {
 public:
  PieceMaker(const std::vector<std::shared_ptr<const Tokenizer>>& tokenizers, int64_t most_tokens, TextPieces& pieces)
      : tokenizers_(tokenizers), most_tokens_(most_tokens), tokens_(tokenizers.size()), pieces_(pieces) {}

  /// Begins a file, of which `most` pieces are made.
  void begin_file(size_t source, int64_t most) {
    source_ = source;
    left_ = most;
  }
  [[nodiscard]] bool is_full() const { return left_ <= 0; }

  void add(std::string_view paragraph) {
    if (is_full()) return;
    int64_t last_end = -1;  // of the last word in the paragraph
    for (const EncodedWord& word : tokenizers_.front()->encode_words(paragraph)) {
      const int64_t begin = word.spans.front().begin, end = word.spans.back().end;
      const auto part = [&](int64_t from, int64_t to) {
        return paragraph.substr(static_cast<size_t>(from), static_cast<size_t>(to - from));
      };
      std::vector<int64_t> counts = {std::ssize(word.ids)};
      for (size_t i = 1; i < tokenizers_.size(); ++i)
        counts.push_back(std::ssize(tokenizers_[i]->encode(part(begin, end))));
      if (std::ranges::max(counts) > most_tokens_) {
        ++pieces_.words_left_out;
        last_end = -1;  // or the text between its neighbours would have it
        continue;
      }
      for (size_t i = 0; i < counts.size(); ++i) {
        if (tokens_[i] + counts[i] <= most_tokens_) continue;
        end_piece();
        if (is_full()) return;
        break;
      }
      if (!piece_.text.empty()) piece_.text += last_end < 0 || last_end > begin ? " " : part(last_end, begin);
      piece_.text += part(begin, end);
      ++piece_.words;
      for (size_t i = 0; i < counts.size(); ++i) tokens_[i] += counts[i];
      last_end = end;
    }
  }

  void end_piece() {
    if (piece_.words > 0 && !is_full()) {
      piece_.source = source_;
      pieces_.pieces.push_back(std::move(piece_));
      --left_;
    }
    piece_ = {};
    std::ranges::fill(tokens_, 0);
  }

 private:
  const std::vector<std::shared_ptr<const Tokenizer>>& tokenizers_;
  int64_t most_tokens_;
  std::vector<int64_t> tokens_;  // of the open piece, by tokenizer
  TextPiece piece_;
  TextPieces& pieces_;
  size_t source_ = 0;
  int64_t left_ = 0;
};

void add_plain_text(const std::string& path, PieceMaker& maker) {
  const MappedFile file(path);
  check_is_plain_text(path, file.view());
  check_share_of_invalid(path, file.view(), count_invalid_utf8(file.view()));
  for_each_paragraph(file.view(), [&](std::string_view paragraph) { maker.add(paragraph); });
  file.expect_whole();
  maker.end_piece();
}

void add_json_lines(const std::string& path, PieceMaker& maker) {
  const InputTexts input = read_input_texts(path, "text");
  if (!input.bad.empty()) throw DataError(fmt::format("{}: {}", input.bad.front().place, input.bad.front().problem));
  for (const InputText& line : input.texts) {
    if (maker.is_full()) return;
    for_each_paragraph(line.text, [&](std::string_view paragraph) { maker.add(paragraph); });
    maker.end_piece();
  }
}

bool has_json_lines(const std::string& path) { return path.ends_with(".jsonl"); }

/// Adds the sentences of a file until there are `most` tokens of it.
void add_documents(const std::string& path, const Tokenizer& tokenizer, int64_t most, TokenizedDocuments& documents) {
  std::vector<int32_t> ids;
  const auto add = [&](std::string_view sentence) {
    if (most <= 0) return;
    ids.clear();
    tokenizer.encode(sentence, ids);
    if (!ids.empty()) documents.add_sentence(ids);
    most -= std::ssize(ids);
  };
  if (has_json_lines(path)) {
    const InputTexts input = read_input_texts(path, "text");
    for (const InputText& line : input.texts) {
      split_document(line.text, add);
      documents.end_document();
    }
    return;
  }
  const MappedFile file(path);
  split_prose(file.view(), [&](std::string_view line) { line.empty() ? documents.end_document() : add(line); });
  file.expect_whole();
}

}  // namespace

std::vector<std::string> pretraining_files(const std::string& path) {
  std::error_code unseen;
  if (!std::filesystem::is_directory(path, unseen)) return {path};
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".shard") return shard_files(path);
  }
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file() && !entry.path().filename().string().starts_with('.'))
      files.push_back(entry.path().string());
  }
  if (files.empty()) throw InputMissing(path + ": has no file; expected shards or texts");
  std::ranges::sort(files);
  return files;
}

EvaluatedExamples examples_of_shards(const PretrainingShards& shards, const Tokenizer& tokenizer,
                                     int64_t max_examples) {
  EvaluatedExamples result;
  const int64_t share = share_of_file(max_examples, shards.shards().size());
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto stands_alone = [&](int32_t id) { return vocabulary.is_special(id) && id != vocabulary.unk_id(); };
  for (size_t source = 0; source < shards.shards().size(); ++source) {
    const Shard& shard = *shards.shards()[source];
    const Objective objective = objective_of(shard.manifest());
    if (source == 0) result.objective = objective;
    if (result.objective != objective) result.objective = std::nullopt;
    for (int64_t number = 0; number < std::min(shard.size(), share); ++number) {
      const ShardRow row = shard.row(number);
      EvaluatedExample& example = result.examples.emplace_back();
      example.source = source;
      example.segment_b_start = row.segment_b_start;
      example.is_random_next = row.is_random_next;
      example.masked_ids.resize(static_cast<size_t>(row.length));
      row.copy_input_ids(example.masked_ids.data());
      example.ids = example.masked_ids;
      row.restore_masked_ids(example.ids.data());
      for (int64_t i = 0; i < row.num_masked; ++i) {
        const int64_t position = row.masked_position(i);
        example.masked.push_back({static_cast<int32_t>(position), example.ids[static_cast<size_t>(position)]});
      }
      for (const int32_t id : example.ids) {
        const bool continues = !example.word.empty() && example.word.back() >= 0 && tokenizer.is_continuation(id);
        const bool special = stands_alone(id);
        if (!special && !continues) ++example.words;
        example.word.push_back(special ? -1 : static_cast<int32_t>(example.words) - 1);
      }
    }
  }
  if (result.objective && !has_pairs(*result.objective)) result.objective = std::nullopt;
  return result;
}

TextPieces pieces_of_files(const std::vector<std::string>& files,
                           const std::vector<std::shared_ptr<const Tokenizer>>& tokenizers, int64_t max_tokens,
                           int64_t max_pieces) {
  TextPieces result;
  PieceMaker maker(tokenizers, max_tokens - 2, result);  // without [CLS] and [SEP]
  for (size_t source = 0; source < files.size(); ++source) {
    maker.begin_file(source, share_of_file(max_pieces, files.size()));
    has_json_lines(files[source]) ? add_json_lines(files[source], maker) : add_plain_text(files[source], maker);
  }
  if (result.pieces.empty()) throw DataError(files.front() + ": has no text with a word");
  return result;
}

EvaluatedExamples examples_of_pieces(std::span<const TextPiece> pieces, const Tokenizer& tokenizer,
                                     int64_t max_tokens) {
  EvaluatedExamples result;
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  for (const TextPiece& piece : pieces) {
    EvaluatedExample& example = result.examples.emplace_back();
    example.source = piece.source;
    example.words = piece.words;
    example.ids = {vocabulary.cls_id()};
    example.word = {-1};
    for (int32_t number = 0; const EncodedWord& word : tokenizer.encode_words(piece.text)) {
      example.ids.insert(example.ids.end(), word.ids.begin(), word.ids.end());
      example.word.resize(example.ids.size(), number++);
    }
    // SentencePiece may cut words otherwise when they stand together.
    const auto most = static_cast<size_t>(max_tokens) - 1;
    example.ids.resize(std::min(example.ids.size(), most));
    example.word.resize(example.ids.size());
    example.ids.push_back(vocabulary.sep_id());
    example.word.push_back(-1);
    example.segment_b_start = std::ssize(example.ids);
    example.masked_ids = example.ids;
  }
  return result;
}

std::vector<EvaluatedExample> pairs_of_files(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                                             const PairOptions& options) {
  TokenizedDocuments documents(tokenizer.vocabulary().size());
  const int64_t share = share_of_file(options.most, files.size());
  const int64_t tokens = share > INT64_MAX / options.max_tokens ? INT64_MAX : share * options.max_tokens;
  for (const std::string& file : files) add_documents(file, tokenizer, tokens, documents);
  std::vector<EvaluatedExample> pairs;
  if (documents.size() < (options.objective == Objective::kNsp ? 2 : 1)) return pairs;
  std::vector<uint32_t> which(documents.size());
  std::iota(which.begin(), which.end(), 0);
  const PretrainingDataConfig config{.max_seq_length = options.max_tokens,
                                     .dupe_factor = 1,
                                     .short_seq_prob = 0,
                                     .objective = options.objective,
                                     .masking = StoredMasks::kNone};
  ExampleMaker maker(documents, which, std::make_shared<const MaskingVocabulary>(tokenizer), config, options.seed);
  maker.make();
  PretrainingExample drawn;
  for (size_t i = 0; i < maker.size() && (options.most == 0 || std::ssize(pairs) < options.most); ++i) {
    maker.get(i, drawn);
    EvaluatedExample& pair = pairs.emplace_back();
    pair.ids = pair.masked_ids = drawn.input_ids;
    pair.segment_b_start = drawn.segment_b_start;
    pair.is_random_next = drawn.is_random_next;
  }
  return pairs;
}

void draw_masks(std::vector<EvaluatedExample>& examples, const Tokenizer& tokenizer, uint64_t seed) {
  MaskingConfig config;
  config.max_predictions_per_seq = INT32_MAX;  // as many as 15 % are
  Masker masker(std::make_shared<const MaskingVocabulary>(tokenizer), config);
  for (size_t i = 0; i < examples.size(); ++i) {
    EvaluatedExample& example = examples[i];
    CounterRandom random(mix_bits(mix_bits(seed) ^ i));
    example.masked_ids = example.ids;
    example.masked = masker.mask(example.masked_ids, random);
  }
}

}  // namespace bert
