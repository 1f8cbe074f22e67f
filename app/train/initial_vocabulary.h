// An initial_checkpoint with another vocabulary than that of the run.
#pragma once

#include <optional>
#include <string>

#include "app/config/model_description.h"
#include "app/config/run_config.h"
#include "cuda_ext/state_dict.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary_rows.h"

namespace bert {

/// The model of initial_checkpoint, and its path for messages.
struct InitialModel {
  const ModelDescription& model;
  const std::string& name;
};

/// The rows of the run's tokens, those of `vocab_file`, in the model that it starts from; none if
/// config.initial_vocabulary allows no other vocabulary and both have one. Throws ConfigError with the first other
/// token if they have two, for one of SentencePiece, and if config.initial_vocabulary.from is not that of the model.
std::optional<VocabularyRows> initial_rows(const RunConfig& config, const InitialModel& start,
                                           const Tokenizer& tokenizer, const std::string& vocab_file);

/// `state`, weights or the state of an optimizer of an old vocabulary, for the new one of `plan`: word embeddings [V,
/// H] and decoder bias [V], their masters, averages and moments get a row for each new token, and the rest stays as it
/// is. Rows of tokens of both vocabularies keep their bits. New rows are means of rows (kMeanOfPieces), or those of
/// `initial` (kRandom), the weights that the run has initialised, which also has the number of rows; moments begin at
/// 0. Tensors of device meta stay there.
StateDict extend_embeddings(const StateDict& state, const VocabularyRows& plan, InitialRows rows,
                            const StateDict& initial);

}  // namespace bert
