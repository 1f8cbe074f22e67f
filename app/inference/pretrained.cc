#include "app/inference/pretrained.h"

#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/checkpoint/torch_archive.h"
#include "app/config/pretrain_config.h"
#include "app/inference/export_config.h"
#include "app/system/errors.h"
#include "app/system/torch_errors.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "model/torchscript.h"

namespace bert {
namespace {

/// The tokenizer of a SentencePiece model, or of WordPiece tokens if `model` is empty.
std::shared_ptr<const Tokenizer> tokenizer_of(std::string model, std::vector<std::string> tokens,
                                              TokenizerConfig config, const std::string& name) {
  if (!model.empty()) return std::make_shared<SentencePieceTokenizer>(std::move(model), name);
  config.match_special_tokens = true;
  return std::make_shared<WordPieceTokenizer>(Vocabulary(std::move(tokens), name), config);
}

Pretrained load_checkpoint(const std::string& path, WeightsKind weights,
                           const std::function<void(const std::string& message)>& note) {
  Checkpoint checkpoint = load_model(path, weights, note);
  const std::string& directory = checkpoint.directory;
  PretrainConfig config;
  try {
    config = parse_pretrain_config(checkpoint.state.config, directory + "/" + kStateFile);
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
  return {.name = {},
          .config = config.model,
          .objective = checkpoint.state.objective,
          .weights = std::move(checkpoint.model),
          .tokenizer = tokenizer_of(std::move(checkpoint.tokenizer_model), std::move(checkpoint.state.vocabulary),
                                    config.data.tokenizer, directory)};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Pretrained load_export(const std::string& file) {
  std::istringstream bytes(read_file(file));
  if (!bytes.view().starts_with("PK")) {  // the first bytes of a zip archive
    throw DataError(file +
                    ": is no TorchScript file. Name one that `bert export` wrote, or a checkpoint or run directory; "
                    "safetensors have no vocabulary");
  }
  verify_torch_archive(bytes.view(), file);  // LibTorch does not check the checksums
  ExtraFiles inside = {{kExportConfigFile, ""}, {kExportVocabularyFile, ""}, {kTokenizerFile, ""}};
  Pretrained result;
  with_data_errors(file + ": LibTorch cannot read it as TorchScript", [&] {
    for (const auto& parameter : load_torchscript(bytes, inside).named_parameters())
      result.weights.insert(parameter.name, parameter.value);
  });
  if (inside[kExportConfigFile].empty() || inside[kExportVocabularyFile].empty()) {
    throw DataError(file +
                    ": has no config.json and vocab.txt inside; `bert export` writes such files. Export the checkpoint "
                    "again");
  }
  const ExportConfig config = read_export_config(inside[kExportConfigFile], file + ": " + kExportConfigFile);
  result.config = config.model;
  result.objective = config.objective;
  result.tokenizer =
      tokenizer_of(std::move(inside[kTokenizerFile]), lines_of(inside[kExportVocabularyFile]), config.tokenizer, file);
  return result;
}

}  // namespace

Pretrained load_pretrained(const std::filesystem::path& path, WeightsKind weights,
                           const std::function<void(const std::string& message)>& note) {
  const std::string name = path.string();
  std::error_code unseen;  // load_export() says what is wrong with such a path
  Pretrained result =
      std::filesystem::is_directory(path, unseen) ? load_checkpoint(name, weights, note) : load_export(name);
  result.name = name;
  const int64_t tokens = result.tokenizer->vocabulary().size(), rows = result.config.vocab_size;
  if (tokens > rows) {
    throw DataError(name + ": its tokenizer has " + std::to_string(tokens) + " tokens, and its model has " +
                    std::to_string(rows) + " (vocab_size); expected at most as many");
  }
  return result;
}

}  // namespace bert
