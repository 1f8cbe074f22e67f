// Times the preparation of data: the verbs of this program, as users call them.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/formats/shard.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

struct PreparationOptions {
  std::vector<std::string> input;  // files of prose in UTF-8; empty: made-up text
  std::string vocab;               // needed for `input`; empty: that of the made-up text
  std::string dump;                // of MediaWiki; empty: a made-up one, XML that is not packed
};

struct PreparationBenchmark {
  // "text", "wordpiece", "extraction" and "examples". Speeds are per second of processor time of the whole process and
  // of its children, so they hold for one core, also on a busy machine.
  nlohmann::ordered_json figures;
  // The examples that were made, of up to 128 tokens, and their tokenizer. The file is deleted already.
  std::shared_ptr<const PretrainingShards> shards;
  std::shared_ptr<const Tokenizer> tokenizer;
};

/// Runs `bert tokenize`, `bert data extract wikipedia` and `bert data create` of the program that calls it, on temporary
/// files, and says on standard error what runs. "examples" begin with tokens: the difference of two runs with different
/// --dupe-factor has no reading and no tokenizing in it. Throws UsageError if `input` has no vocabulary; InputMissing,
/// DataError, IoError or std::runtime_error with the message of a verb that failed.
PreparationBenchmark benchmark_preparation(const PreparationOptions& options);

}  // namespace bert
