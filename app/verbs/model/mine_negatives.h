// The command line of `bert data mine-negatives`.
#pragma once

#include <optional>
#include <string>

#include "app/config/device_choice.h"
#include "app/inference/answer_options.h"
#include "app/retrieval/hard_negatives.h"
#include "app/retrieval/mining_files.h"
#include "app/retrieval/retrieval_prompts.h"

namespace bert {

struct MineNegativesOptions {
  std::string input, corpus, checkpoint, output, anchor_column, positive_column, precision;
  DeviceChoice device = DeviceChoice::kCpu;
  bool trust = false, scores = false;
  std::optional<LongTexts> long_texts = {};
  TupleFormat format = TupleFormat::kTriplet;
  MiningOptions mining;
  RetrievalPrompts prompts;
};

/// Parses the command line. Returns false after --help. Throws UsageError.
bool parse_mine_negatives(int argc, char** argv, MineNegativesOptions& options);

}  // namespace bert
