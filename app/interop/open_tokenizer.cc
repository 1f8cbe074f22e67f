#include "app/interop/open_tokenizer.h"

#include <filesystem>

#include "app/interop/hugging_face_tokenizer.h"
#include "data/io/error.h"

namespace bert {

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path, const TokenizerConfig& config) {
  std::error_code unseen;
  const bool is_json = std::filesystem::path(path).extension() == ".json";
  if (!is_json && !std::filesystem::is_directory(path, unseen)) return make_tokenizer(path, config);
  if (!std::filesystem::exists(path, unseen)) throw InputMissing(path + ": no such file");
  ForeignCheckpoint source;
  const std::filesystem::path file(path), parent = file.parent_path();
  if (is_json && file.filename() != "tokenizer.json") {
    read_tokenizer_file(path, source);
  } else {
    read_hugging_face_tokenizer(!is_json ? path : parent.empty() ? "." : parent.string(), source);
  }
  const ModelDescription& model = source.model;
  if (model.vocabulary.empty()) throw InputMissing(path + ": has neither tokenizer.json nor vocab.txt");
  return std::make_unique<WordPieceTokenizer>(Vocabulary(model.vocabulary, path, model.added_tokens), model.tokenizer);
}

}  // namespace bert
