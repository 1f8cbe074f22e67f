#include <fmt/format.h>

#include <utility>

#include "app/benchmark/inference.h"
#include "app/benchmark/modes.h"
#include "app/cli/choice.h"
#include "app/cli/command_line.h"
#include "app/cli/description.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/threads.h"
#include "app/verbs/verbs.h"
#include "optim/config.h"

namespace bert {
namespace {

void add_machine_options(CLI::App& verb, BenchmarkOptions& options) {
  add_choice(verb, "--device", options.device, "device; auto is cuda if there is a GPU");
  verb.add_option("--threads", options.threads, "processor threads (default: all, or OMP_NUM_THREADS)")
      ->check(number_in<int64_t>(1, kMaxThreads));
}

void add_report_options(CLI::App& verb, BenchmarkOptions& options) {
  verb.add_flag("--json", options.json, "one JSON object on the last line");
  CLI::Option* compare = verb.add_option(
      "--compare", options.compare,
      "file with the output of an earlier --json; shows each figure's speed relative to the earlier one");
  constexpr double kLeast = 0.001, kMost = 1000;
  verb.add_option("--fail-below", options.fail_below,
                  "with --compare: exit code 1 if a figure's speed is below this share of the earlier one")
      ->needs(compare)
      ->check(number_in(kLeast, kMost));
}

CLI::Option* add_config(CLI::App& verb, BenchmarkOptions& options, const char* help) {
  CLI::Option* config = verb.add_option("--config", options.config, help);
  verb.add_option("overrides", options.overrides, "a.b=value sets a key of --config")
      ->type_name(kKeyValue)
      ->needs(config);
  return config;
}

void add_common_options(CLI::App& verb, BenchmarkOptions& options, const std::vector<std::string>& precisions,
                        const char* precision_help) {
  add_config(verb, options, "configuration; its model and optimizer are used (default: BERT-base)");
  add_machine_options(verb, options);
  verb.add_option("--precision", options.precision, precision_help)->check(CLI::IsMember(precisions));
  add_report_options(verb, options);
}

/// Adds --steps and --warmup. `steps` holds the default of --steps and receives its value.
void add_steps(CLI::App& verb, int64_t& steps, BenchmarkOptions& options) {
  verb.add_option("--steps", steps, "steps that are timed")
      ->check(number_in<int64_t>(1, kManyTimes))
      ->capture_default_str();
  verb.add_option("--warmup", options.warmup, "steps before the timed ones")
      ->check(number_in<int64_t>(0, kManyTimes))
      ->capture_default_str();
}

void add_shape_options(CLI::App& verb, BenchmarkOptions& options) {
  constexpr int64_t kLongest = 1 << 20;  // read_lengths() checks the limit of the model
  verb.add_option("--batch", options.batch, "sequences of a batch, on each rank")
      ->check(number_in<int64_t>(1, kManySequences))
      ->capture_default_str();
  verb.add_option("--length", options.length, "tokens of every sequence")
      ->check(number_in<int64_t>(1, kLongest))
      ->capture_default_str();
  add_steps(verb, options.steps, options);
}

void add_step_options(CLI::App& verb, BenchmarkOptions& options, const std::vector<std::string>& precisions,
                      const char* precision_help) {
  add_common_options(verb, options, precisions, precision_help);
  add_shape_options(verb, options);
  verb.add_option("--lengths", options.lengths,
                  "file with one length per line; the lengths are used in turn instead of --length");
}

std::vector<std::string> precisions_of_training() {
  const auto names = names_of(Precision());
  return {names.begin(), names.end()};
}

void add_inference_mode(CLI::App& app, BenchmarkOptions& options) {
  constexpr int64_t kLongest = 1 << 20;  // the verb checks the limit of the model
  CLI::App* inference = app.add_subcommand(
      "inference",
      "Encoder and pooler on random texts without padding: throughput and latency (average, percentiles) for each "
      "length and batch size");
  CLI::Option* config = add_config(*inference, options, "configuration; its model is used, with random weights");
  inference->add_option("--checkpoint", options.checkpoint, "checkpoint, run directory or export, instead of --config")
      ->excludes(config);
  CLI::Option* texts = inference->add_option("--input", options.input, "--task embedding: file with one text a line")
                           ->allow_extra_args(false);
  inference
      ->add_option_function<std::string>(
          "--task", [&options](const std::string&) { options.embedding = true; },
          "embedding: from the texts of --input to their vectors, in passes of 2 s or more; --batch texts at once")
      ->check(CLI::IsMember({"embedding"}))
      ->needs(texts, inference->get_option("--checkpoint"));
  add_machine_options(*inference, options);
  inference
      ->add_option("--precision", options.precision,
                   "precision of the weights and of the computation (default: fp32); int8: products of bytes, on the "
                   "CPU")
      ->check(CLI::IsMember(std::vector<std::string>(kInferencePrecisions.begin(), kInferencePrecisions.end())));
  inference
      ->add_option("--batch", options.batches,
                   "texts of a batch, one size or several (default: 8; with --task embedding that of predict)")
      ->delimiter(',')
      ->allow_extra_args(false)  // overrides may follow
      ->check(number_in<int64_t>(1, kManySequences));
  CLI::Option* length =
      inference->add_option("--length", options.text_lengths, "tokens of every text, one length or several")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->check(number_in<int64_t>(1, kLongest))
          ->capture_default_str();
  inference
      ->add_option("--lengths", options.lengths,
                   "file with one length per line; the lengths are used in turn instead of --length")
      ->excludes(length);
  add_steps(*inference, options.steps, options);
  add_report_options(*inference, options);
  inference->footer("Example: bert benchmark inference --batch 1,8 --length 128,384 --precision bf16");
}

/// `steps` holds the default of --steps and receives its value.
void add_data_mode(CLI::App& app, BenchmarkOptions& options, int64_t& steps) {
  CLI::App* data = app.add_subcommand(
      "data",
      "The preparation of data: WordPiece, extraction of a dump, the making of examples, each per second of one core; "
      "and the "
      "loader: the speed at which one process makes batches in a run's order, and the time that a step would wait for "
      "them. With --config the loader alone, on its examples");
  CLI::Option* config = add_config(*data, options, "pre-training configuration; its data and batch sizes are used");
  data->add_option("--input", options.input, "files of prose, of some megabytes; default: made-up text")
      ->excludes(config);
  data->add_option("--dump", options.dump, "MediaWiki dump, packed or not; default: a made-up one")->excludes(config);
  data->add_option("--vocab", options.vocab, "vocabulary of --input")->excludes(config);
  data->add_option("--masking", options.masking, "static or dynamic; default: as configured, dynamic without --config")
      ->check(CLI::IsMember({"static", "dynamic"}));
  add_steps(*data, steps, options);
  add_report_options(*data, options);
  data->footer("Example: bert benchmark data --input book.txt --vocab vocab.txt --dump articles.xml.bz2 --json");
}

bool parse(int argc, char** argv, BenchmarkOptions& options) {
  int64_t data_steps = 1000;
  CLI::App app("Times training, inference and the preparation of data.", "bert benchmark");
  app.require_subcommand(1);
  app.footer("Example: bert benchmark step --config configs/bert-base.json --batch 8 --length 128 --json");
  constexpr auto kPrecisionHelp = "precision of the matrix products (default: fp32)";

  CLI::App* step = app.add_subcommand("step", "Forward, backward and update, on random tokens without padding");
  add_step_options(*step, options, precisions_of_training(), kPrecisionHelp);
  step->add_flag("--breakdown", options.breakdown,
                 "also profile --steps steps: the share of each group of operators, and its time at measured limits");
  step->footer("Example: bert benchmark step --config configs/bert-base.json --batch 8 --length 128 --json");

  add_inference_mode(app, options);
  add_data_mode(app, options, data_steps);

  for (const auto& [gone, instead] :
       {std::pair{"kernels", "`bert benchmark step --breakdown` times groups of operators"},
        {"ablation", "`bert benchmark step --breakdown` times groups of operators"},
        {"precisions", "train with precision=P, in a run_directory each"},
        {"communication", "the key profile of a run shows the share of the reduction"}}) {
    CLI::App* mode = app.add_subcommand(gone)->group("")->prefix_command();
    mode->parse_complete_callback(
        [gone, instead] { throw UsageError(fmt::format("{}: this benchmark no longer exists; {}", gone, instead)); });
  }

  if (!parse_command_line(app, argc, argv)) return false;
  options.mode = app.get_subcommands().front()->get_name();
  if (options.mode == "data") options.steps = data_steps;
  return true;
}

}  // namespace

int benchmark_command(int argc, char** argv) {
  BenchmarkOptions options;
  if (!parse(argc, argv, options)) return kOk;
  use_threads(options.threads);
  return run_benchmark(options) ? kOk : kSlower;
}

}  // namespace bert
