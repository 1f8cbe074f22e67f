// The inputs of a run beside its configuration: the vocabulary and the shards. Each is checked against the other and
// against the configuration before the first step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"
#include "data/formats/shard.h"
#include "data/loader/example_order.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// True if the run tells its progress on standard error.
bool is_on_console(const RunConfig& config);

/// Takes a sentence for people.
using RunNote = std::function<void(const std::string& sentence)>;

/// Returns what takes the sentences of a run that has no log yet: rank 0 prints them on standard error, if the run tells
/// its progress there, and all ranks append them to `notes`.
RunNote print_and_keep(const RunConfig& config, int rank, std::vector<std::string>& notes);

/// Makes the tokenizer of data.vocab_file. Throws ConfigError if it has more tokens than the model, InputMissing with
/// the key, IoError, DataError.
std::unique_ptr<Tokenizer> load_tokenizer(const PretrainConfig& config);

/// Opens the shards of data.<key>, "train" or "validation"; for "train" those of data.sources if these are given. Throws
/// ConfigError if they were made with another vocabulary or other tokenizer settings, have sequences that are too long
/// for the model or a micro-batch, lack the masks that are to be trained on, or were made for an objective that does not
/// serve config.objective (with auto: for several objectives); InputMissing with the key, IoError,
/// DataError.
std::shared_ptr<const PretrainingShards> open_shards(const PretrainConfig& config, const std::string& key,
                                                     const Tokenizer& tokenizer);

/// A sentence that names the first shard that does not say its vocabulary; empty if all do.
std::string unknown_vocabulary(const PretrainingShards& shards);

/// `config` with the objective of the run, which trains on `train`, in place of "auto".
PretrainConfig with_objective(PretrainConfig config, const PretrainingShards& train);

/// data.sources as parts of the shards that open_shards() has opened for "train"; empty if the configuration has none.
std::vector<ExampleSource> training_sources(const PretrainConfig& config, const PretrainingShards& train);

/// True if `bert data create` has left the masks of one of the shards to be drawn.
bool lacks_masks(const PretrainingShards& shards);

/// The identity of shards that a checkpoint keeps, from their headers.
DataIdentity identity_of(const PretrainingShards& shards);

/// The same for the shards to train on: the key "train", or a key "sources.NAME" for each source.
std::map<std::string, DataIdentity> training_identities(const PretrainConfig& config, const PretrainingShards& train);

/// The field of a configuration that the examples with this key come from: data.KEY; a teacher's key is its field.
std::string field_of_data(const std::string& key);

/// "N examples, checksum C", without examples "checksum C".
std::string describe(const DataIdentity& identity);

/// Returns a line for each key whose examples have changed. Keys that one side lacks are left out.
std::vector<std::string> compare_data(const std::map<std::string, DataIdentity>& before,
                                      const std::map<std::string, DataIdentity>& now);

}  // namespace bert
