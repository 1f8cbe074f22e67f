#include "app/interop/vocabulary_change.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "app/checkpoint/tensor_diff.h"
#include "data/io/error.h"
#include "data/io/mapping_guard.h"
#include "data/random/counter_random.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

/// Appends the mean of rows of `width` elements.
void append_mean(const TensorSource& tensor, std::string_view bytes, int64_t width, const std::vector<int32_t>& rows,
                 std::string& result) {
  for (int64_t column = 0; column < width; ++column) {
    double sum = 0;
    for (const int32_t row : rows) sum += tensor_element(tensor.dtype, bytes, row * width + column);
    append_element(tensor.dtype, sum / static_cast<double>(rows.size()), result);
  }
}

/// Appends `width` normal numbers (the transform of Box and Muller) with the standard deviation of `rows`.
void append_random(const TensorSource& tensor, int64_t width, const NewRows& rows, size_t id, std::string& result) {
  CounterRandom random(mix_bits(rows.seed) ^ id);
  for (int64_t column = 0; column < width; ++column) {
    const double radius = std::sqrt(-2 * std::log1p(-random.random()));
    append_element(tensor.dtype, rows.deviation * radius * std::cos(2 * std::numbers::pi * random.random()), result);
  }
}

}  // namespace

bool has_vocabulary_rows(std::string_view entry) {
  return entry.ends_with(kWordEmbeddings) || entry.ends_with(kPredictionBias);
}

TensorSource with_rows(TensorSource tensor, std::shared_ptr<const VocabularyRows> plan, int64_t rows,
                       const NewRows& new_rows) {
  int64_t width = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i) width *= tensor.shape[i];
  TensorSource result{tensor.name, tensor.dtype, tensor.shape, {}, nullptr};
  result.shape.front() = rows;
  result.bytes = [tensor = std::move(tensor), plan = std::move(plan), rows, width, new_rows,
                  filled = std::make_shared<std::string>()] {
    const std::string_view before = tensor.bytes();
    const auto row_bytes = static_cast<size_t>(width * element_bytes(tensor.dtype));
    filled->clear();
    filled->reserve(static_cast<size_t>(rows) * row_bytes);
    auto next_new = plan->new_ids.begin();
    for (size_t id = 0; id < plan->sources.size(); ++id) {
      const std::vector<int32_t>& sources = plan->sources[id];
      const bool is_new = next_new != plan->new_ids.end() && *next_new == static_cast<int32_t>(id);
      if (is_new) ++next_new;
      if (is_new && !new_rows.mean_of_pieces && new_rows.deviation == 0) {
        filled->append(row_bytes, '\0');
      } else if (is_new && !new_rows.mean_of_pieces) {
        append_random(tensor, width, new_rows, id, *filled);
      } else if (sources.size() == 1) {
        filled->append(before.substr(static_cast<size_t>(sources.front()) * row_bytes, row_bytes));
      } else {
        append_mean(tensor, before, width, sources, *filled);
      }
    }
    expect_whole_mapping(before.data());
    filled->resize(static_cast<size_t>(rows) * row_bytes, '\0');
    return std::string_view(*filled);
  };
  return result;
}

VocabularyRows change_vocabulary(ForeignCheckpoint& checkpoint, const Vocabulary& vocabulary, const NewRows& new_rows) {
  ModelDescription& model = checkpoint.model;
  if (!model.tokenizer_model.empty())
    throw DataError(checkpoint.path + ": has a SentencePiece model; expected a WordPiece vocabulary to change");
  const WordPieceTokenizer old(Vocabulary(model.vocabulary, checkpoint.path, model.added_tokens), model.tokenizer);
  const auto plan = std::make_shared<const VocabularyRows>(vocabulary_rows(vocabulary.tokens(), old));
  for (TensorSource& tensor : checkpoint.tensors) {
    if (!has_vocabulary_rows(tensor.name)) continue;
    NewRows rows = new_rows;
    if (tensor.name == kPredictionBias) rows.deviation = 0;  // as a new model has it
    tensor = with_rows(std::move(tensor), plan, vocabulary.size(), rows);
  }
  std::vector<AddedToken> added;
  for (AddedToken token : model.added_tokens) {
    token.id = vocabulary.find(model.vocabulary[static_cast<size_t>(token.id)]);
    if (token.id >= 0) added.push_back(token);
  }
  model.added_tokens = std::move(added);
  model.vocabulary = vocabulary.tokens();
  model.config.vocab_size = vocabulary.size();
  return *plan;
}

}  // namespace bert
