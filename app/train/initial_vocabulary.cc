#include "app/train/initial_vocabulary.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <memory>
#include <string>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/safetensors.h"
#include "app/interop/open_tokenizer.h"
#include "app/interop/vocabulary_change.h"
#include "app/system/errors.h"

namespace bert {

std::optional<VocabularyRows> initial_rows(const RunConfig& config, const InitialModel& start,
                                           const Tokenizer& tokenizer, const std::string& vocab_file) {
  const ModelDescription& model = start.model;
  const std::string& from = config.initial_vocabulary.from;
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(fmt::format("initial_checkpoint: {} {}", start.name, what));
  };
  if (!from.empty()) {
    const std::string other = vocabulary_difference(model.vocabulary, open_tokenizer(from)->vocabulary().tokens());
    if (!other.empty()) refuse(fmt::format("has not the vocabulary of initial_vocabulary.from, {}: {}", from, other));
  }
  const std::string other = vocabulary_difference(model.vocabulary, tokenizer.vocabulary().tokens());
  const std::string difference = fmt::format("was trained with another vocabulary than {}: {}", vocab_file, other);
  if (config.initial_vocabulary.rows == InitialRows::kNone) {
    if (other.empty()) return std::nullopt;
    refuse(difference +
           "; initial_vocabulary.rows=mean_of_pieces takes the rows of the tokens that both have, and "
           "makes those of the others of their pieces");
  }
  if (!model.tokenizer_model.empty() || dynamic_cast<const WordPieceTokenizer*>(&tokenizer) == nullptr)
    refuse(difference + "; initial_vocabulary expects WordPiece on both sides, and one is of SentencePiece");
  const WordPieceTokenizer old(Vocabulary(model.vocabulary, start.name, model.added_tokens), model.tokenizer);
  return vocabulary_rows(tokenizer.vocabulary().tokens(), old);
}

StateDict extend_embeddings(const StateDict& state, const VocabularyRows& plan, InitialRows rows,
                            const StateDict& initial) {
  const auto shared = std::make_shared<const VocabularyRows>(plan);
  const torch::Tensor new_ids = torch::tensor(plan.new_ids, torch::kInt64);
  StateDict extended;
  for (const auto& item : state) {
    const std::string& name = item.key();
    const std::string parameter = name.ends_with(kPredictionBias) ? kPredictionBias : kWordEmbeddings;
    if (!has_vocabulary_rows(name) || !initial.contains(parameter)) {
      extended.insert(name, item.value());
      continue;
    }
    const torch::Tensor& fresh = initial[parameter];
    if (item.value().is_meta()) {
      extended.insert(name, at::empty(fresh.sizes(), item.value().options()));
      continue;
    }
    const bool moment = name.starts_with("exp_avg");
    StateDict one;
    one.insert(name, item.value());
    const TensorSource source = with_rows(sources_of(one).front(), shared, fresh.size(0), {.mean_of_pieces = !moment});
    torch::Tensor tensor = read_tensors({source})[name];
    if (rows == InitialRows::kRandom && !moment)
      tensor.index_copy_(0, new_ids, fresh.detach().cpu().to(tensor.scalar_type()).index_select(0, new_ids));
    extended.insert(name, tensor);
  }
  return extended;
}

}  // namespace bert
