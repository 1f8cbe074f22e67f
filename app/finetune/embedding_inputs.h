// The training data and the modules of a run of sentence embeddings.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/finetune_config.h"
#include "app/config/sentence_encoder.h"
#include "app/finetune/embedding_objective.h"
#include "app/inference/pretrained.h"
#include "data/loader/row_loader.h"
#include "data/tasks/embedding_data.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// All data sets of a run, in the order of config.embedding.sets.
struct EmbeddingInputs {
  std::vector<EmbeddingSetShape> shapes;
  std::vector<RowSet> sets;
  std::vector<std::string> classes;  // of the sets with the loss softmax
  int64_t rows = 0;                  // of all sets
};

/// The checksum of a file with so many examples.
DataIdentity file_identity(const std::string& path, int64_t examples);

/// The modules behind the encoder: those of `start`, with the wishes and prompts of `config`; else the mean of the tokens.
SentenceEncoder sentence_encoder_for(const EmbeddingConfig& config, const ModelDescription& start);

/// The rows of a development or test file, with the columns of the first set. Throws as read_text_rows(), and DataError for
/// rows of one text, and for classes where the first set learns classes. Labels of three texts or more are not read.
TaskExamples read_evaluation_rows(const std::string& path, const EmbeddingConfig& config);

/// The prompts of such files: those of the first set.
std::vector<std::string> row_prompts(const EmbeddingConfig& config);

/// The beginnings of sequences with the prompts of `encoder` and of all sets, which its pooling does not read; empty if it
/// reads them.
std::vector<std::vector<int64_t>> unread_prompts(const SentenceEncoder& encoder, const EmbeddingConfig& config,
                                                 const Tokenizer& tokenizer);

/// Reads the training data. `default_file` stands for sets without a file. `identities` gets each file. Throws
/// DataError if a set does not fit its loss, and as read_text_rows().
EmbeddingInputs read_embedding_sets(const FinetuneConfig& config, const std::string& default_file,
                                    const Tokenizer& tokenizer, std::map<std::string, DataIdentity>& identities,
                                    const std::function<void(const std::string& message)>& note);

/// Reads config.distillation.teacher, whose vectors the loss mse compares with those of `size` dimensions. Throws
/// ConfigError if its vocabulary, its positions or the size of its vectors do not fit; as load_pretrained().
Pretrained read_embedding_teacher(const FinetuneConfig& config, const Tokenizer& tokenizer, int64_t size,
                                  const std::function<void(const std::string& message)>& note);

}  // namespace bert
