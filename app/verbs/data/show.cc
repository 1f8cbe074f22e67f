#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/command_line.h"
#include "app/interop/open_tokenizer.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/data/actions.h"
#include "data/formats/example_set.h"
#include "data/io/error.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

/// The example at a place of a set, and the number of examples of the set, 0 if that is unknown.
struct Found {
  PretrainingExample example;
  Objective objective = Objective::kNsp;
  int64_t of = 0;
};

Found find_example(const std::string& path, int64_t row, const Vocabulary* vocabulary) {
  Found found;
  int64_t before = 0;  // examples of earlier files
  for (const std::string& file : example_files(path)) {
    const auto reader = open_examples(file, vocabulary);
    int64_t skipped = 0;
    if (found.example.input_ids.empty()) {
      skipped = reader->skip(row - before);
      if (before + skipped == row && reader->next(found.example))
        found.objective = objective_of(reader->info().parameters);
    }
    const bool is_found = !found.example.input_ids.empty();
    if (is_found && reader->size() < 0) return found;
    before += is_found || reader->size() >= 0 ? reader->size() : skipped;
  }
  found.of = before;
  return found;
}

/// Shows an example as text.
class Page {
 public:
  Page(const PretrainingExample& example, const Tokenizer* tokenizer) : example_(example), tokenizer_(tokenizer) {}

  /// The tokens [begin, end), joined to words, with "(original)" behind each masked one.
  [[nodiscard]] std::string words(size_t begin, size_t end) const {
    std::string text;
    for (size_t i = begin; i < end; ++i) {
      const int32_t original = original_at(i);
      const bool masked = is_masked(i);
      const bool joined = tokenizer_ != nullptr && i > begin && tokenizer_->is_continuation(masked ? original : id(i));
      if (!joined) text += ' ';
      text += joined ? piece(id(i)) : name(id(i));
      if (masked) text += fmt::format("({})", joined ? piece(original) : name(original));
    }
    return text;
  }

  /// A line for each mask: its position, the original token, and what stands there.
  [[nodiscard]] std::string masks() const {
    std::string text;
    for (size_t i = 0; i < example_.masked_ids.size(); ++i) {
      const int32_t position = example_.masked_positions[i], original = example_.masked_ids[i],
                    shown = id(static_cast<size_t>(position));
      text += fmt::format("  {:>5}  {}{}\n", position, name(original),
                          shown == original ? " (kept)" : fmt::format(" -> {}", name(shown)));
    }
    return text;
  }

 private:
  [[nodiscard]] int32_t id(size_t i) const { return example_.input_ids[i]; }
  [[nodiscard]] bool is_masked(size_t i) const {
    return std::binary_search(example_.masked_positions.begin(), example_.masked_positions.end(),
                              static_cast<int32_t>(i));
  }
  [[nodiscard]] int32_t original_at(size_t i) const {
    const auto& positions = example_.masked_positions;
    const auto found = std::lower_bound(positions.begin(), positions.end(), static_cast<int32_t>(i));
    if (found == positions.end() || *found != static_cast<int32_t>(i)) return id(i);
    return example_.masked_ids[static_cast<size_t>(found - positions.begin())];
  }
  [[nodiscard]] std::string name(int32_t id) const {
    return tokenizer_ != nullptr ? tokenizer_->vocabulary().token(id) : std::to_string(id);
  }
  /// A token without the mark that it continues a word.
  [[nodiscard]] std::string piece(int32_t id) const {
    const std::string token = name(id);
    return token.starts_with("##") ? token.substr(2) : token;
  }

  const PretrainingExample& example_;
  const Tokenizer* tokenizer_;
};

std::string relation(const Found& found) {
  const PretrainingExample& example = found.example;
  if (example.segment_b_start == static_cast<int32_t>(example.input_ids.size())) return "no B";
  if (found.objective == Objective::kSop) return example.is_random_next ? "B stands before A" : "B follows A";
  return example.is_random_next ? "B does not follow A" : "B follows A";
}

}  // namespace

int data_show(int argc, char** argv) {
  CLI::App app(
      "Shows one example: its segments as text, then its masks, each with its position and original token. In the text "
      "a masked token is shown as [MASK](original).\nExample: bert data show train.shard --vocab vocab.txt --row 7",
      "bert data show");
  std::string path, vocab;
  int64_t row = 0;
  app.add_option("PATH", path, "file of examples in any format, or a directory of them")->required();
  app.add_option("--vocab", vocab, "vocabulary that the examples were made with; without it, ids are shown");
  app.add_option("--row", row, "number of the example, from 0")
      ->check(number_in<int64_t>(0, INT64_MAX))
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return kOk;
  const auto tokenizer = vocab.empty() ? nullptr : open_tokenizer(vocab);
  const Vocabulary* const vocabulary = tokenizer ? &tokenizer->vocabulary() : nullptr;
  if (vocabulary != nullptr) {
    const std::string made_with = common_info(example_files(path), vocabulary).vocabulary_checksum;
    if (!made_with.empty() && vocabulary->hash() != made_with) {
      throw DataError(fmt::format("{}: is not the vocabulary that {} was made with: checksum {}, the file says {}",
                                  vocab, path, vocabulary->hash(), made_with));
    }
  }
  const Found found = find_example(path, row, vocabulary);
  const PretrainingExample& example = found.example;
  if (example.input_ids.empty())
    throw UsageError(fmt::format("--row {}: {} has the rows 0 to {}", row, path, found.of - 1));
  const Page page(example, tokenizer.get());
  const size_t tokens = example.input_ids.size(), second = static_cast<size_t>(example.segment_b_start);
  std::cout << fmt::format("row {}{}: {} tokens, {} masked, {}\n", row,
                           found.of > 0 ? fmt::format(" of {}", found.of) : "", tokens, example.masked_ids.size(),
                           relation(found))
            << "A:" << page.words(0, second) << '\n';
  if (second < tokens) std::cout << "B:" << page.words(second, tokens) << '\n';
  if (!example.masked_ids.empty()) std::cout << "masks:\n" << page.masks();
  std::cout << std::flush;
  return kOk;
}

}  // namespace bert
