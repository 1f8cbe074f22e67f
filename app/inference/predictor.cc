#include "app/inference/predictor.h"

#include <torch/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/checkpoint/torch_archive.h"
#include "app/config/pretrain_config.h"
#include "app/inference/tokenizer_settings.h"
#include "app/parse/bounded_json.h"
#include "app/system/errors.h"
#include "app/system/torch_errors.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "model/torchscript.h"

namespace bert {
namespace {

constexpr std::string_view kMask = "[MASK]";
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, which stands for a space in SentencePiece

std::unique_ptr<Tokenizer> make_wordpiece(std::vector<std::string> tokens, TokenizerConfig config,
                                          const std::string& name) {
  config.match_special_tokens = true;  // [MASK] in the text is the token
  return std::make_unique<WordPieceTokenizer>(Vocabulary(std::move(tokens), name), config);
}

/// The beginning of `text` as a JSON string, so that a message has no control characters.
std::string shown(const std::string& text) {
  constexpr size_t kMaxBytes = 60;
  const bool whole = text.size() <= kMaxBytes;
  const nlohmann::json beginning = whole ? text : text.substr(0, kMaxBytes) + "...";
  return beginning.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::ignore);
}

}  // namespace

Predictor::Predictor(const std::string& path, WeightsKind weights,
                     const std::function<void(const std::string& message)>& note) {
  if (std::filesystem::is_directory(path)) {
    load_checkpoint_directory(path, weights, note);
  } else {
    load_export(path);
  }
}

void Predictor::load_checkpoint_directory(const std::string& path, WeightsKind weights,
                                          const std::function<void(const std::string& message)>& note) {
  const VerifiedCheckpoint verified = find_valid_checkpoint(path, note);
  const std::string& directory = verified.directory;
  Checkpoint checkpoint = load_model(verified, weights);
  const PretrainConfig config = parse_pretrain_config(checkpoint.state.config, directory + "/state.json");
  config_ = config.model;
  sentencepiece_ = !checkpoint.tokenizer_model.empty();
  if (sentencepiece_) {
    tokenizer_ = std::make_unique<SentencePieceTokenizer>(std::move(checkpoint.tokenizer_model), directory);
  } else {
    tokenizer_ = make_wordpiece(std::move(checkpoint.state.vocabulary), config.data.tokenizer, directory);
  }
  const NoInitWeights no_init;
  model_ = BertForPreTraining(config_);
  load_state_dict(*model_, checkpoint.model);
  model_->eval();
}

void Predictor::load_export(const std::string& file) {
  export_file_ = file;
  std::istringstream bytes(read_file(file));
  if (!bytes.view().starts_with("PK")) {  // the first bytes of a zip archive
    throw DataError(file +
                    ": is no TorchScript file. Name one that `bert export` wrote, or a checkpoint or run directory; "
                    "safetensors have no vocabulary");
  }
  ExtraFiles extra = {{"config.json", ""}, {"vocab.txt", ""}, {kTokenizerFile, ""}};
  verify_torch_archive(bytes.view(), file);  // LibTorch does not check the checksums
  with_data_errors(file + ": LibTorch cannot read it as TorchScript",
                   [&] { script_ = load_torchscript(bytes, extra); });
  if (extra["config.json"].empty() || extra["vocab.txt"].empty()) {
    throw DataError(file + ": has no config.json and vocab.txt inside; `bert export` writes such files");
  }
  const std::string config_name = file + ": config.json";
  const nlohmann::json config = parse_bounded_json(extra["config.json"], config_name);
  if (!config.is_object()) throw DataError(config_name + ": want an object, got " + config.type_name());
  sentencepiece_ = !extra[kTokenizerFile].empty();
  if (sentencepiece_) {
    tokenizer_ = std::make_unique<SentencePieceTokenizer>(extra[kTokenizerFile], file);
  } else {
    std::vector<std::string> tokens;
    std::istringstream lines(extra["vocab.txt"]);
    for (std::string line; std::getline(lines, line);) tokens.push_back(line);
    tokenizer_ = make_wordpiece(std::move(tokens), read_tokenizer_settings(config, config_name), file);
  }
  constexpr const char* kLongest = "max_position_embeddings";
  if (config.contains(kLongest)) config_.max_position_embeddings = integer_member(config, kLongest, config_name);
}

torch::Tensor Predictor::encode(const std::string& text) const {
  const Vocabulary& vocabulary = tokenizer_->vocabulary();
  std::vector<int32_t> ids = {vocabulary.cls_id()};
  for (size_t begin = 0;;) {
    // A SentencePiece model does not recognise [MASK] in the text, so the text is split there.
    const size_t mask = sentencepiece_ ? text.find(kMask, begin) : std::string::npos;
    tokenizer_->encode(std::string_view(text).substr(begin, mask - begin), ids);
    if (mask == std::string::npos) break;
    ids.push_back(vocabulary.mask_id());
    begin = mask + kMask.size();
  }
  ids.push_back(vocabulary.sep_id());
  if (static_cast<int64_t>(ids.size()) > config_.max_position_embeddings) {
    throw DataError("text of " + std::to_string(ids.size()) + " tokens: the model takes at most " +
                    std::to_string(config_.max_position_embeddings) + "; shorten it: " + shown(text));
  }
  return torch::tensor(std::vector<int64_t>(ids.begin(), ids.end())).unsqueeze(0);
}

torch::Tensor Predictor::mlm_logits(const torch::Tensor& input_ids) {
  const torch::Tensor types = torch::zeros_like(input_ids), mask = torch::ones_like(input_ids);
  if (!script_) return model_->forward(input_ids, types, mask).mlm_logits;
  torch::Tensor logits;
  with_data_errors(export_file_ + ": cannot be run", [&] {
    const auto output = script_->forward({input_ids, types, mask});
    TORCH_CHECK(output.isTuple() && output.toTupleRef().elements().size() == 2,
                "fill-mask needs an export of the pre-training model: (mlm_logits, nsp_logits)");
    logits = output.toTupleRef().elements()[0].toTensor();
    const int64_t tokens = tokenizer_->vocabulary().size();
    TORCH_CHECK(logits.dim() == 3 && logits.size(1) == input_ids.size(1) && logits.size(2) >= tokens,
                "mlm_logits must be [1, ", input_ids.size(1), ", ", tokens, " or more], got ", logits.sizes());
  });
  return logits;
}

std::string Predictor::word(int64_t token) const {
  const std::string& text = tokenizer_->vocabulary().token(token);
  return sentencepiece_ && text.starts_with(kSpaceMark) ? text.substr(kSpaceMark.size()) : text;
}

MaskFilling Predictor::fill_mask(const std::string& text, int64_t top_k) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor input_ids = encode(text);
  const int64_t mask_id = tokenizer_->vocabulary().mask_id();
  const torch::Tensor masked = input_ids[0].eq(mask_id).nonzero().flatten();
  if (masked.numel() == 0) throw DataError("no [MASK] in the text: " + shown(text));
  // The vocabulary may be smaller than the table of the model; the other rows are padding.
  const torch::Tensor logits =
      mlm_logits(input_ids)[0].index_select(0, masked).slice(-1, 0, tokenizer_->vocabulary().size());
  const torch::Tensor probabilities = logits.to(torch::kFloat32).softmax(-1);
  const auto [scores, tokens] = probabilities.topk(std::min(top_k, probabilities.size(-1)), -1);
  MaskFilling result{.text = text, .masks = {}};
  size_t place = 0;
  for (int64_t mask = 0; mask < masked.numel(); ++mask, ++place) {
    place = text.find(kMask, place);
    std::vector<Filler>& fillers = result.masks.emplace_back();
    for (int64_t i = 0; i < scores.size(-1); ++i) {
      const auto token = tokens[mask][i].item<int64_t>();
      std::string filler = word(token);
      std::string sequence = text;
      sequence.replace(place, kMask.size(), filler);
      fillers.push_back({scores[mask][i].item<double>(), token, std::move(filler), std::move(sequence)});
    }
  }
  return result;
}

Predictor::Features Predictor::features(const std::string& text) {
  if (script_) throw UsageError("features need a checkpoint: an exported pre-training model returns logits only");
  const torch::NoGradGuard no_grad;
  const torch::Tensor input_ids = encode(text);
  const BertModelOutput output =
      model_->bert->forward(input_ids, torch::zeros_like(input_ids), torch::ones_like(input_ids));
  Features result{
      .tokens = {}, .last_hidden_state = output.last_hidden_state[0], .pooler_output = output.pooler_output[0]};
  for (int64_t i = 0; i < input_ids.size(1); ++i)
    result.tokens.push_back(tokenizer_->vocabulary().token(input_ids[0][i].item<int64_t>()));
  return result;
}

}  // namespace bert
