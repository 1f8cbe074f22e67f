#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/interop/open_tokenizer.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/data/actions.h"
#include "app/verbs/output_paths.h"
#include "data/formats/example_set.h"
#include "data/io/error.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

struct ConvertOptions {
  std::vector<std::string> input;
  std::string output, format, vocab;
  std::optional<Objective> objective;  // of inputs that do not say theirs
};

/// A file to write, and the files whose examples go into it.
struct Conversion {
  std::string output;
  std::vector<std::string> inputs;
  ExampleFileInfo info{};  // of the output
};

/// One conversion, or one for each input if the output is a directory: one that is there, or a name that ends with '/'.
std::vector<Conversion> conversions(const ConvertOptions& options, const std::vector<std::string>& files) {
  std::error_code ignored;
  const bool into_directory = options.output.ends_with('/') || std::filesystem::is_directory(options.output, ignored);
  if (!into_directory) return {{options.output, files}};
  std::filesystem::create_directories(options.output);
  std::vector<Conversion> result;
  std::set<std::string> names;
  for (const std::string& file : files) {
    const std::string name = name_in_format(std::filesystem::path(file).filename().string(), options.format);
    if (!names.insert(name).second)
      throw UsageError(
          fmt::format("two inputs become {} in {}; convert them into two directories", name, options.output));
    result.push_back({(std::filesystem::path(options.output) / name).string(), {file}});
  }
  return result;
}

/// The facts of a file to write. Facts that the inputs do not know, and that the format needs, are counted. Passes the
/// share that is counted to `progress`.
ExampleFileInfo complete_info(const ConvertOptions& options, const std::vector<std::string>& inputs,
                              const Vocabulary* vocabulary, const std::function<void(double)>& progress) {
  ExampleFileInfo info = joint_info(inputs, vocabulary, options.objective);
  if (vocabulary != nullptr) {
    if (!info.vocabulary_checksum.empty() && info.vocabulary_checksum != vocabulary->hash()) {
      throw DataError(fmt::format("{}: is not the vocabulary that {} was made with: checksum {}, the file says {}",
                                  options.vocab, inputs.front(), vocabulary->hash(), info.vocabulary_checksum));
    }
    info.vocabulary_checksum = vocabulary->hash();
    info.vocab_size = vocabulary->size();
  }
  const auto unsaid = [&](const char* name) { return parameter(info.parameters, name).empty(); };
  const bool no_objective = unsaid("objective"), no_masking = unsaid("masking");
  // Only a shard needs the size of the vocabulary, the objective and the masking; only the others pad the masks.
  const bool is_shard = options.format == "shard";
  if (is_shard ? info.vocab_size > 0 && !no_objective && !no_masking : info.max_predictions_per_seq > 0) return info;
  ExampleCounts counts;
  for_each_example(
      inputs, vocabulary, [&](const PretrainingExample& example) { counts.add(example); }, progress);
  if (info.max_predictions_per_seq == 0) info.max_predictions_per_seq = counts.most_masked;
  if (!is_shard) return info;
  if (info.vocab_size == 0) info.vocab_size = counts.max_id + 1;
  if (no_objective && counts.pairs == 0) info.parameters.emplace_back("objective", name_of_value(Objective::kMlm));
  if (no_masking && counts.masked_tokens == 0)
    info.parameters.emplace_back("masking", name_of_value(StoredMasks::kNone));
  return info;
}

/// Adds the facts of a file to those of the whole: the largest lengths, and the vocabulary if all have the same.
void add_info(ExampleFileInfo& all, const ExampleFileInfo& info) {
  const bool first = all.max_seq_length == 0;
  all.max_seq_length = std::max(all.max_seq_length, info.max_seq_length);
  all.vocab_size = std::max(all.vocab_size, info.vocab_size);
  if (first || all.vocabulary_checksum == info.vocabulary_checksum) {
    all.vocabulary_checksum = info.vocabulary_checksum;
  } else {
    all.vocabulary_checksum.clear();
  }
}

/// Says on standard error what the outputs do not record, once for all files of a directory.
void say_unrecorded(const ConvertOptions& options, const std::vector<Conversion>& work) {
  const auto say = say_in("bert data convert");
  for (const Conversion& each : work) {
    const std::string unsaid = unsaid_objective(options.format, options.output, each.info.parameters);
    if (unsaid.empty()) continue;
    say(unsaid);
    break;
  }
  int64_t ids = 0;  // of files without a vocabulary
  for (const Conversion& each : work) {
    if (each.info.vocabulary_checksum.empty()) ids = std::max(ids, each.info.vocab_size);
  }
  if (ids == 0 || options.format != "shard") return;
  say(fmt::format(
      "the inputs do not say their vocabulary: {} holds ids below {}, of an unknown one; --vocab records it",
      options.output, ids));
}

}  // namespace

int data_convert(int argc, char** argv) {
  CLI::App app(
      "Writes the examples of files in any format into another format. Prints a line of JSON.\n"
      "Example: bert data convert train.tfrecord --vocab vocab.txt --output train.shard --format shard",
      "bert data convert");
  app.footer(
      "The inputs' content tells their formats. A directory stands for its files of examples. All inputs become one "
      "file; an --output that is a directory, or ends with '/', gets one file for each input. Formats: shard, which "
      "training reads; tfrecord (Google), plain or gzip; hdf5 (NVIDIA); parquet (LDDL) and arrow (Hugging Face), which "
      "need `app/setup.sh --arrow`. TFRecord has no place for the vocabulary's checksum and the parameters of "
      "creation: --objective records the objective of its examples if that is not nsp. Inputs of two objectives, of "
      "static masks and none, or of two settings of the tokenizer do not become one file. "
      "A shard of unknown vocabulary is trained on with any vocabulary that has its ids.");
  ConvertOptions options;
  app.add_option("IN", options.input, "files of examples, or directories of them")->required();
  app.add_option("--output", options.output, "file or directory to write")->required();
  app.add_option("--format", options.format, "format of the output")
      ->required()
      ->check(CLI::IsMember(example_formats()));
  app.add_option("--vocab", options.vocab,
                 "vocabulary of the examples: a shard records it, and Parquet (LDDL) holds its tokens");
  const auto objectives = names_of(Objective{});
  app.add_option_function<std::string>(
         "--objective", [&](const std::string& name) { options.objective = value_named<Objective>(name); },
         "of the examples in files that do not say theirs, as TFRecord; default: nsp, or mlm if no example has two "
         "segments")
      ->check(CLI::IsMember(std::vector<std::string>(objectives.begin(), objectives.end())));
  if (!parse_command_line(app, argc, argv)) return kOk;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> files = all_example_files(options.input);
  std::vector<Conversion> work = conversions(options, files);
  std::vector<NamedPath> outputs, inputs = named_paths("IN", files);
  for (const Conversion& each : work) outputs.push_back({"--output", each.output});
  inputs.push_back({"--vocab", options.vocab});
  check_outputs(outputs, inputs);
  require_format(options.format);

  const auto tokenizer = options.vocab.empty() ? nullptr : open_tokenizer(options.vocab);
  const Vocabulary* const vocabulary = tokenizer ? &tokenizer->vocabulary() : nullptr;
  FileProgress progress(files);
  const auto share_of_all = [&](size_t i, double share) {
    return (static_cast<double>(i) + share) / static_cast<double>(work.size());
  };
  ExampleFileInfo all;
  for (size_t i = 0; i < work.size();
       ++i) {  // of all before the first is written: inputs that do not fit are found here
    work[i].info = complete_info(options, work[i].inputs, vocabulary,
                                 [&](double share) { progress.update("counting", share_of_all(i, share)); });
    add_info(all, work[i].info);
  }
  ExampleCounts counts;
  for (size_t i = 0; i < work.size(); ++i) {
    const auto writer = create_examples_file(options.format, work[i].output, work[i].info, vocabulary);
    for_each_example(
        work[i].inputs, vocabulary,
        [&](const PretrainingExample& example) {
          writer->add(example);
          counts.add(example);
        },
        [&](double share) { progress.update("converting", share_of_all(i, share)); });
    writer->commit();
  }
  say_unrecorded(options, work);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  print_line(Json{{"output", options.output},
                  {"format", options.format},
                  {"inputs", files.size()},
                  {"outputs", work.size()},
                  {"examples", counts.examples},
                  {"example_tokens", counts.tokens},
                  {"masked_tokens", counts.masked_tokens},
                  {"longest", counts.longest},
                  {"max_seq_length", all.max_seq_length},
                  {"vocab_size", all.vocab_size},
                  {"vocabulary_checksum", all.vocabulary_checksum},
                  {"seconds", took.count()}});
  return kOk;
}

}  // namespace bert
