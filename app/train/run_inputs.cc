#include "app/train/run_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/interop/open_tokenizer.h"
#include "app/system/errors.h"
#include "data/io/error.h"

namespace bert {
namespace {

/// Throws ConfigError if the shard was made with another setting of the tokenizer. Shards of other programs may lack the
/// settings.
void check_settings(const TokenizerConfig& tokenizer, const Shard& shard) {
  const Parameters parameters = parameters_of(tokenizer);
  TokenizerConfig::visit_fields(tokenizer, [&](const char* name, auto&&...) {
    const std::string made_with = tokenizer_parameter(shard.manifest().parameters, name),
                      configured = tokenizer_parameter(parameters, name);
    if (made_with.empty() || made_with == configured) return;
    throw ConfigError(fmt::format(
        "data.{0}: {1} was made with {0} {2}, the configuration says {3}; set data.{0}={2}, or make the shard anew",
        name, shard.path(), made_with, configured));
  });
}

Objective made_for(const PretrainingShards& shards) { return objective_of(shards.shards().front()->manifest()); }

/// Throws ConfigError if one of the shards of data.<key> does not serve the objective of the run. Masked tokens alone can
/// be trained on in any shard.
void check_objective(const PretrainConfig& config, const std::string& key, const PretrainingShards& shards) {
  const Objective wanted = objective_of(config, made_for(shards));
  if (config.objective == Objective::kMlm) return;
  for (const auto& shard : shards.shards()) {
    const Objective found = objective_of(shard->manifest());
    if (found == wanted) continue;
    throw ConfigError(fmt::format(
        "data.{}: {} was made for objective {}, {} {}; expected one objective: make the shards anew with `bert data "
        "create --objective {}`, or set objective=mlm, which trains on masked tokens alone in shards of any objective",
        key, shard->path(), name_of_value(found),
        config.objective ? "the configuration says" : shards.shards().front()->path() + " for", name_of_value(wanted),
        name_of_value(wanted)));
  }
}

/// The shards of each of data.sources.
std::vector<std::pair<const DataSourceConfig*, ShardSpan>> shards_of_sources(const PretrainConfig& config,
                                                                             const PretrainingShards& train) {
  if (config.data.sources.empty()) return {};
  std::vector<std::pair<const DataSourceConfig*, ShardSpan>> result;
  ShardSpan left = train.shards();
  for (const DataSourceConfig& source : config.data.sources) {
    const size_t files = std::min(shard_files(source.path).size(), left.size());
    result.emplace_back(&source, left.first(files));
    left = left.subspan(files);
  }
  if (!left.empty()) throw DataError(left.back()->path() + ": appeared or vanished while the shards were opened");
  return result;
}

}  // namespace

bool is_on_console(const RunConfig& config) {
  return std::ranges::find(config.report, "console") != config.report.end();
}

RunNote print_and_keep(const RunConfig& config, int rank, std::vector<std::string>& notes) {
  const bool prints = rank == 0 && is_on_console(config);
  return [prints, &notes](const std::string& sentence) {
    if (prints) std::fprintf(stderr, "%s\n", sentence.c_str());  // a console that nobody reads is no error
    notes.push_back(sentence);
  };
}

std::unique_ptr<Tokenizer> load_tokenizer(const PretrainConfig& config) {
  const std::string& path = config.data.vocab_file;
  if (path.empty()) throw ConfigError("data.vocab_file: names no file; `bert vocab` makes one");
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = open_tokenizer(path, config.data.tokenizer);
  } catch (const InputMissing& error) {
    throw InputMissing(fmt::format("data.vocab_file: {}; `bert vocab` makes one", error.what()));
  }
  if (const int64_t size = tokenizer->vocabulary().size(); size > config.model.vocab_size) {
    throw ConfigError(fmt::format("model.vocab_size {}: {} has {} tokens", config.model.vocab_size, path, size));
  }
  return tokenizer;
}

std::shared_ptr<const PretrainingShards> open_shards(const PretrainConfig& config, const std::string& name,
                                                     const Tokenizer& tokenizer) {
  const bool training = name == "train";
  const std::vector<std::string> paths = training ? training_paths(config.data) : config.data.validation;
  const std::string key = training && !config.data.sources.empty() ? "sources" : name;
  if (paths.empty()) throw ConfigError(fmt::format("data.{}: names no shard; `bert data create` makes them", key));
  std::shared_ptr<PretrainingShards> shards;
  try {
    shards = std::make_shared<PretrainingShards>(paths);
  } catch (const InputMissing& error) {
    throw InputMissing(fmt::format("data.{}: {}; `bert data create` makes shards", key, error.what()));
  }
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  if (!shards->vocabulary_checksum().empty() && shards->vocabulary_checksum() != vocabulary.hash()) {
    throw ConfigError(fmt::format("data.{}: {} was made with another vocabulary than {}", key, paths.front(),
                                  config.data.vocab_file));
  }
  try {
    shards->assume_vocabulary(vocabulary.size());
  } catch (const DataError& error) {
    throw ConfigError(fmt::format("data.{}: {} in {}", key, error.what(), config.data.vocab_file));
  }
  if (shards->longest_row() > config.model.max_position_embeddings) {
    throw ConfigError(fmt::format("data.{}: has sequences of {} tokens, model.max_position_embeddings is {}", key,
                                  shards->longest_row(), config.model.max_position_embeddings));
  }
  check_objective(config, key, *shards);
  if (training && config.micro_batch_tokens > 0 && shards->longest_row() > config.micro_batch_tokens) {
    throw ConfigError(fmt::format("micro_batch_tokens {}: data.{} has sequences of {} tokens; expected room for these",
                                  config.micro_batch_tokens, key, shards->longest_row()));
  }
  if (config.data.masking == Masking::kStatic && lacks_masks(*shards)) {
    throw ConfigError(fmt::format(
        "data.{}: was made without masks (`bert data create --masking none`); set data.masking=dynamic", key));
  }
  if (shards->any_pairs() && config.model.type_vocab_size < 2) {
    throw ConfigError(fmt::format("data.{}: has pairs of segments, model.type_vocab_size is {}; set it to 2", key,
                                  config.model.type_vocab_size));
  }
  // A SentencePiece model has its own settings.
  if (dynamic_cast<const SentencePieceTokenizer*>(&tokenizer) == nullptr) {
    for (const auto& shard : shards->shards()) check_settings(config.data.tokenizer, *shard);
  }
  return shards;
}

std::string unknown_vocabulary(const PretrainingShards& shards) {
  for (const auto& shard : shards.shards()) {
    if (shard->manifest().vocabulary_checksum.empty()) {
      return shard->path() +
             " does not say which vocabulary it was made with: its ids are taken as those of data.vocab_file. `bert "
             "data convert --vocab` records the vocabulary.";
    }
  }
  return {};
}

PretrainConfig with_objective(PretrainConfig config, const PretrainingShards& train) {
  config.objective = objective_of(config, made_for(train));
  return config;
}

std::vector<ExampleSource> training_sources(const PretrainConfig& config, const PretrainingShards& train) {
  std::vector<ExampleSource> sources;
  for (const auto& [source, shards] : shards_of_sources(config, train)) {
    ExampleSource& added =
        sources.emplace_back(ExampleSource{.name = source_name(*source), .examples = 0, .weight = source->weight});
    for (const auto& shard : shards) added.examples += shard->size();
    if (added.examples == 0) throw DataError(fmt::format("{}: no examples to read", source->path));
  }
  return sources;
}

bool lacks_masks(const PretrainingShards& shards) {
  const std::pair<std::string, std::string> none = {"masking", "none"};  // a setting of `bert data create`
  return std::ranges::any_of(shards.shards(), [&](const auto& shard) {
    const auto& parameters = shard->manifest().parameters;
    return std::ranges::find(parameters, none) != parameters.end();
  });
}

DataIdentity identity_of(const PretrainingShards& shards) {
  return {.content_checksum = shards.content_checksum(), .examples = shards.size()};
}

std::map<std::string, DataIdentity> training_identities(const PretrainConfig& config, const PretrainingShards& train) {
  if (config.data.sources.empty()) return {{"train", identity_of(train)}};
  std::map<std::string, DataIdentity> identities;
  for (const auto& [source, shards] : shards_of_sources(config, train)) {
    DataIdentity& identity = identities["sources." + source_name(*source)];
    identity.content_checksum = content_checksum_of(shards);
    for (const auto& shard : shards) identity.examples += shard->size();
  }
  return identities;
}

std::string field_of_data(const std::string& key) {
  return key.starts_with("distillation.") || key.starts_with("embedding.") ? key : "data." + key;
}

std::string describe(const DataIdentity& identity) {
  const std::string examples = identity.examples > 0 ? fmt::format("{} examples, ", identity.examples) : "";
  return examples + "checksum " + identity.content_checksum;
}

std::vector<std::string> compare_data(const std::map<std::string, DataIdentity>& before,
                                      const std::map<std::string, DataIdentity>& now) {
  std::vector<std::string> differences;
  for (const auto& [key, identity] : before) {
    const auto same_key = now.find(key);
    if (same_key == now.end() || same_key->second == identity) continue;
    differences.push_back(fmt::format("the content of {}: was {}, now {}", field_of_data(key), describe(identity),
                                      describe(same_key->second)));
  }
  return differences;
}

}  // namespace bert
