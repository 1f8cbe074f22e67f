#include "app/cli/removed_options.h"

#include <array>
#include <string_view>

namespace bert {
namespace {

struct RemovedOption {
  std::string_view program, option, instead;
};

/// Of release 0.1.0. The next release removes the table.
constexpr RemovedOption kRemoved[] = {
    {"bert benchmark data", "--demand", "the wait is that of a step of 1,000,000 tokens a second"},
    {"bert benchmark data", "--micro-batch-tokens", "name a configuration with micro_batch_tokens by --config"},
    {"bert benchmark data", "--ranks", "the loader is that of one process"},
    {"bert benchmark data", "--shards", "name a configuration with data.train by --config"},
    {"bert config new", "--schema",
     "write `bert config schema --output FILE`, and \"$schema\": \"FILE\" in the configuration"},
    {"bert config", "--into", "redirect `bert config reference` to a file"},
    {"bert data download", "--retries", "a failed attempt is made again 5 times; then give the same command again"},
    {"bert data download", "--timeout", "a silence of 60 s ends an attempt"},
    {"bert evaluate", "--doc-stride", "write data.doc_stride=N"},
    {"bert evaluate", "--label-column", "write data.label_column=NAME"},
    {"bert evaluate", "--labels", "write data.labels=[\"A\",\"B\"]"},
    {"bert evaluate", "--max-seq-length", "write data.max_seq_length=N"},
    {"bert evaluate", "--tag-column", "the label is the last column"},
    {"bert evaluate", "--text-column", "write data.text_column=NAME"},
    {"bert evaluate", "--text-pair-column", "write data.text_pair_column=NAME"},
    {"bert evaluate", "--word-column", "the word is the first column"},
    {"bert plan", "--gpus-per-node", "write --gpus N"},
    {"bert plan", "--ports", "--network alone says what a node sends"},
    {"bert plan", "--sequences-per-second", "give the output of `bert benchmark step --json` by --measured"},
    {"bert predict", "--batch-tokens", "--batch-size limits what is computed together"},
    {"bert serve", "--max-answer-bytes", "an answer has at most 64 MiB"},
    {"bert serve", "--max-wait-ms", "a batch never waits for more texts"},
    {"bert serve", "--read-seconds", "a silence of 5 s ends a request; --request-seconds limits the whole"},
    {"bert watch", "--patience", "a failed run is over after ten looks without a process"},
};

}  // namespace

std::string removed_option(const std::string& program, const std::string& argument) {
  const std::string_view name = std::string_view(argument).substr(0, argument.find('='));
  for (const RemovedOption& removed : kRemoved) {
    if (removed.option == name && program.starts_with(removed.program))
      return std::string(name) + " no longer exists: " + std::string(removed.instead);
  }
  return "";
}

}  // namespace bert
