#include <csignal>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/description.h"
#include "app/config/finetune_config.h"
#include "app/finetune/finetuning_run.h"
#include "app/finetune/seed_series.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"

namespace bert {

int finetune_command(int argc, char** argv) {
  CLI::App app(
      "Fine-tunes a pre-trained model on the task that CONFIG.json names, from the newest valid checkpoint of the run "
      "directory if there is one; evaluates it with the task's official metrics, and writes files of predictions.\n"
      "a.b=value sets a key of the configuration. Signals and exit codes are those of bert pretrain.\n"
      "Example: bert finetune configs/sst2.json initial_checkpoint=runs/phase2 data.directory=glue/SST-2",
      "bert finetune");
  app.footer(
      "Tasks: squad-v1, squad-v2; GLUE's cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli; xnli; ner (CoNLL columns, "
      "or spans in JSON lines), swag; text-classification, multi-label-classification, text-regression, rerank and "
      "embedding on CSV, TSV or "
      "JSON "
      "lines of one's own. Each has its recipe in configs/.\n"
      "Example: bert finetune configs/sst2.json optimizer.lr=3e-5 --seeds 3");
  std::string path;
  std::vector<std::string> overrides;
  bool allow_config_change = false;
  app.add_option("config", path, "CONFIG.json")->required();
  app.add_option("overrides", overrides, "a.b=value")->type_name(kKeyValue);
  app.add_flag("--allow-config-change", allow_config_change,
               "resume even if the configuration differs from the checkpoint's");
  int64_t seeds = 0;
  app.add_option("--seeds", seeds,
                 "fine-tunes so many times, with the seeds from that of the configuration on, each in "
                 "run_directory/seed-NUMBER; prints mean and standard deviation of the metrics")
      ->check(number_in<int64_t>(1, 1000));
  if (!parse_command_line(app, argc, argv)) return kOk;
  std::signal(SIGPIPE, SIG_IGN);  // as bert pretrain: the result is the run directory
  const FinetuneConfig config = load_finetune_config(path, overrides);
  return seeds > 0 ? finetune_seeds(config, seeds, allow_config_change) : finetune(config, allow_config_change);
}

}  // namespace bert
