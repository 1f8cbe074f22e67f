// The files that sentence-transformers puts beside those of transformers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/safetensors.h"
#include "app/config/sentence_encoder.h"
#include "app/interop/foreign_checkpoint.h"

namespace bert {

/// The modules of a directory.
struct SentenceModules {
  std::string transformer;  // directory with the files of transformers
  SentenceEncoder encoder;
  std::vector<TensorSource> tensors;           // of the dense layers: kSentencePrefix
  std::map<std::string, std::string> folders;  // of pooling and dense layers, by their names in what is written
};

/// Reads modules.json of `directory` and what it names: Transformer, then Pooling, Dense (any number), Normalize.
/// Nothing if there is no modules.json, or if it is that of a CrossEncoder, which has a Transformer alone. Throws
/// DataError for other modules, another order, and sizes that do not fit; IoError; RefusedError for a pickle without
/// options.trust.
std::optional<SentenceModules> read_sentence_modules(const std::string& directory, const ForeignOptions& options,
                                                     ImportReport& report);

/// True if the scores of the CrossEncoder in `directory` are its logits. Throws DataError, IoError.
bool cross_encoder_gives_logits(const std::string& directory);

/// The file that lists the modules of a directory.
inline constexpr const char* kModulesFile = "modules.json";

/// Throws DataError, which names `place`, unless each dense layer takes what the pooling or the layer before it gives.
void expect_fitting_sizes(const SentenceEncoder& encoder, int64_t hidden_size, const std::string& place);

/// Name, with its folder, to content: the files with which sentence-transformers (2.0 and later) opens a directory of
/// transformers, but for the weights of dense layers. `model` has `sentence`.
std::map<std::string, std::string> sentence_transformers_files(const ModelDescription& model);

/// The folder of dense layer `index`, whose model.safetensors has linear.weight and linear.bias.
std::string sentence_dense_folder(size_t index);

}  // namespace bert
