#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/text_parts.h"
#include "tests/places.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;
using testing::write_text;

/// The required fields of every case. A case adds lines after them; its first line is line 2.
const std::string kStart = R"({"run_directory": "r", "data": {"train": ["t"], "validation": ["v"], "vocab_file": "w"},)"
                           "\n";

struct Broken {
  const char* name;
  std::string text;                    // content of c.json
  std::vector<std::string> overrides;  // arguments of the command line
  std::vector<std::string> problems;   // all expected problems, in order; DIR stands for the directory
};

std::string in(const std::string& members) { return kStart + members + "}"; }

std::vector<Broken> broken_configs() {
  const std::string at = "DIR/c.json:";
  return {
      // ---- JSON ----
      {"empty file",
       "",
       {},
       {at + "1:1: syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal"}},
      {"a list", "[1]", {}, {at + "1:1: want an object {...}, got a list"}},
      {"a string", "\"x\"", {}, {at + "1:1: want an object {...}, got \"x\""}},
      {"comma at the end",
       in("\"seed\": 1,\n"),
       {},
       {at + "3:1: syntax error while parsing object key - unexpected '}'; expected string literal"}},
      {"no end",
       "{\"seed\": 1",
       {},
       {at + "1:11: syntax error while parsing object - unexpected end of input; expected '}'"}},
      {"a comma too many",
       in("\"seed\": 1,\n,\n\"log_every\": 2"),
       {},
       {at + "3:1: syntax error while parsing object key - unexpected ','; expected string literal"}},
      {"a colon too many",
       in("\"seed\":: 1"),
       {},
       {at + "2:8: /seed: syntax error while parsing value - unexpected ':'; expected '[', '{', or a literal"}},
      {"a comma after the brace",
       "{,}",
       {},
       {at + "1:2: syntax error while parsing object key - unexpected ','; expected string literal"}},
      {"zeros behind the end",
       std::string("\xEF\xBB\xBF{\"run_directory\": \"r\",\n \"seed\": 1}") + std::string(3, '\0'),
       {},
       {at + "2:12: a NUL character, which no JSON has: the file is damaged, or is none"}},
      {"zeros alone",
       "\xEF\xBB\xBF" + std::string(9, '\0'),
       {},
       {at + "1:1: a NUL character, which no JSON has: the file is damaged, or is none"}},
      {"no quotes",
       in("seed: 1"),
       {},
       {at + "2:1: syntax error while parsing object key - invalid literal; expected string "
             "literal"}},
      {"a leading zero",
       in("\"log_every\": 5,\n  \"seed\": 010"),
       {},
       {at + "3:11: /seed: syntax error: a number does not begin with 0 and another digit: \"010\""}},
      {"a leading zero in a list",
       in("\"optimizer\": {\"no_decay\": [\"a\", -00.5]"),
       {},
       {at + "2:33: /optimizer/no_decay/1: syntax error: a number does not begin with 0 and another digit: \"-00.5\""}},
      {"more behind a number",
       in("\"seed\": 1.5x, \"log_every\": -1"),
       {},
       {at + "2:9: /seed: syntax error: this is no value of JSON: \"1.5x\""}},
      {"more behind a literal",
       in("\"initial_optimizer_state\": falsely"),
       {},
       {at + "2:28: /initial_optimizer_state: syntax error: this is no value of JSON: \"falsely\""}},
      {"more behind a number and a space",
       in("\"seed\": 1 2"),
       {},
       {at + "2:11: syntax error while parsing object - unexpected number literal; expected '}'"}},
      {"a comment without end",
       in("\"seed\": 1,\n  /* log_every: 2\n"),
       {},
       {at +
        "3:3: syntax error while parsing object key - invalid comment; missing closing '*/'; expected string literal"}},
      {"a comment without end, which looks closed",
       in("\"seed\": /*/ 1"),
       {},
       {at + "2:9: /seed: syntax error while parsing value - invalid comment; missing closing '*/'"}},
      {"no comment",
       in("\"seed\": 1 / 2"),
       {},
       {at + "2:11: syntax error while parsing object - invalid comment; "
             "expecting '/' or '*' after '/'; expected '}'"}},
      {"number beyond double",
       in("\"optimizer\": {\"lr\": 1e999}"),
       {},
       {at + "2:21: /optimizer/lr: number does not fit a double: 1e999"}},
      {"nesting",
       "{\"model\": " + std::string(100, '['),
       {},
       {at + "1:74: nested deeper than 64 levels", at + "1:11: /model: want an object {...}, got a list"}},
      {"nesting without end", std::string(100000, '['), {}, {at + "1:65: nested deeper than 64 levels"}},
      {"duplicate key",
       in("\"seed\": 1,\n  \"seed\": 2"),
       {},
       {at + "3:3: /seed: duplicate key; the first is at DIR/c.json:2:9; keep one of them"}},
      {"duplicate key in an object",
       in("\"optimizer\": {\"lr\": 1, \"lr\": 1}"),
       {},
       {at + "2:24: /optimizer/lr: duplicate key; the first is at DIR/c.json:2:21; keep one of them"}},
      // ---- keys ----
      {"unknown key, near",
       in("\"max_stepz\": 10"),
       {},
       {at + "2:1: /max_stepz: unknown key; did you mean \"max_steps\"?"}},
      {"unknown key, letters swapped",
       in("\"sede\": 10"),
       {},
       {at + "2:1: /sede: unknown key; did you mean \"seed\"?"}},
      {"unknown key, elsewhere", in("\"lr\": 10"), {}, {at + "2:1: /lr: unknown key; did you mean optimizer.lr?"}},
      {"unknown key, far",
       in("\"distributed\": {\"color\": 10}"),
       {},
       {at + "2:17: /distributed/color: unknown key; known here: backend, compression, init_method, "
             "shard_optimizer_state, timeout_seconds"}},
      {"removed keys, also at the values that they had",
       in("\"initial_parts\": \"all\", \"distributed\": {\"debug\": false},\n\"report_layers\": true"),
       {"optimizer.eps_inside_sqrt=false"},
       {at + "2:1: /initial_parts: is no key any more: all parts of initial_checkpoint that the run has are loaded",
        at +
            "2:41: /distributed/debug: is no key any more: set the environment variable TORCH_DISTRIBUTED_DEBUG=DETAIL",
        at + "3:1: /report_layers: is no key any more: add \"layers\" to report",
        "command line: /optimizer/eps_inside_sqrt: is no key any more: eps is added to the root"}},
      {"unknown key with a slash",
       in("\"a/b~c\": 1, \"amp\": {\"d\\ne\": 2}"),
       {},
       {at + "2:1: /a~1b~0c: unknown key; known here: amp, batch_size_schedule, checkpoint_every, "
             "checkpoint_every_minutes, cuda_graphs, data, device, "
             "distributed, "
             "evaluate_every, first_last_layers_bf16, from_step, global_batch_size, gradient_checkpointing, "
             "initial_checkpoint, initial_optimizer_state, initial_positions, initial_vocabulary, keep_checkpoints, "
             "log_every, max_hours, "
             "max_steps, max_tokens, "
             "micro_batch_size, "
             "micro_batch_tokens, model, num_threads, num_train_epochs, objective, "
             "optimizer, precision, profile, report, report_port, "
             "run_directory, schedule, seed, stop_at_step, trust_initial_checkpoint",
        at + "2:21: /amp/d?e: unknown key; known here: dynamic, init_scale, max_consecutive_skips"}},
      {"extends below the top",
       in("\"model\": {\"extends\": \"x\"}"),
       {},
       {at + "2:11: /model/extends: unknown key; known here: attention_probs_dropout_prob, hidden_act, "
             "hidden_dropout_prob, hidden_size, init, "
             "initializer_range, intermediate_size, layer_norm_eps, max_position_embeddings, num_attention_heads, "
             "num_hidden_layers, "
             "type_vocab_size, vocab_size"}},
      // ---- types ----
      {"fraction for an integer", in("\"seed\": 3.5"), {}, {at + "2:9: /seed: want an integer of at least 0, got 3.5"}},
      {"bytes that are no UTF-8",
       in("\"seed\": 1"),
       {"device=\xff"},
       {"command line: /device: want one of auto, cpu, cuda, got \"\uFFFD\""}},
      {"string for an integer",
       in("\"max_steps\": \"10\""),
       {},
       {at + "2:14: /max_steps: want an integer in [1, 1099511627776], got \"10\""}},
      {"null",
       in("\"max_steps\": null"),
       {},
       {at + "2:14: /max_steps: want an integer in [1, 1099511627776], got null"}},
      {"number for a string", in("\"device\": 0"), {}, {at + "2:11: /device: want one of auto, cpu, cuda, got 0"}},
      {"number for a path",
       in("\"initial_checkpoint\": 7"),
       {},
       {at + "2:23: /initial_checkpoint: want a string, got 7"}},
      {"NUL in a path",
       in("\"initial_checkpoint\": \"a\\u0000b\""),
       {},
       {at + "2:23: /initial_checkpoint: want a string without NUL characters"}},
      {"1 for true",
       in("\"initial_optimizer_state\": 1"),
       {},
       {at + "2:28: /initial_optimizer_state: want true or false, got 1"}},
      {"object for a number",
       in("\"seed\": {}"),
       {},
       {at + "2:9: /seed: want an integer of at least 0, got an object"}},
      {"list for an object", in("\"model\": [1]"), {}, {at + "2:10: /model: want an object {...}, got a list"}},
      {"a number and null in a list of paths",
       "{\"run_directory\": \"r\", \"data\": {\"train\": [\"t\", 1, null], \"vocab_file\": \"w\"}}",
       {"data.validation=[{}]"},
       {at + "1:48: /data/train/1: want a string, got 1", at + "1:51: /data/train/2: want a string, got null",
        "command line: /data/validation/0: want a string, got an object"}},
      // ---- ranges ----
      {"above the range",
       in("\"model\": {\n  \"hidden_dropout_prob\": 1.5}"),
       {},
       {at + "3:26: /model/hidden_dropout_prob: want a number in [0, 0.99], got 1.5"}},
      {"below the range",
       in("\"optimizer\": {\"lr\": -1}"),
       {},
       {at + "2:21: /optimizer/lr: want a number in [0, 10], got -1"}},
      {"an optimizer's options",
       in("\"optimizer\": {\"eps\": 0, \"beta1\": 1, \"beta2\": -0.1, \"weight_decay\": -1, \"ema_decay\": 1,\n"
          "\"layer_lr_decay\": 0}, \"schedule\": {\"warmup_proportion\": 1.5, \"degree\": -1}"),
       {"optimizer.max_grad_norm=nan", "amp.max_consecutive_skips=-1"},
       {at + "2:22: /optimizer/eps: want a number in [1e-20, 1], got 0",
        at + "2:34: /optimizer/beta1: want a number in [0, 0.999999], got 1",
        at + "2:46: /optimizer/beta2: want a number in [0, 0.99999999], got -0.1",
        at + "2:68: /optimizer/weight_decay: want a number in [0, 10], got -1",
        at + "2:85: /optimizer/ema_decay: want a number in [0, 0.99999999], got 1",
        at + "3:19: /optimizer/layer_lr_decay: want a number in [0.001, 1], got 0",
        at + "3:57: /schedule/warmup_proportion: want a number in [0, 1], got 1.5",
        at + "3:72: /schedule/degree: want a number in [0, 10], got -1",
        "command line: /optimizer/max_grad_norm: want a number in [0, 1000000000], got \"nan\"",
        "command line: /amp/max_consecutive_skips: want an integer in [0, 1000000000], got -1"}},
      {"numbers that a double takes for 0",
       in("\"optimizer\": {\"lr\": 1e-400, \"weight_decay\": 0e-400, \"ema_decay\": 0.0}"),
       {"optimizer.beta1=0.3e-500"},
       {at + "2:21: /optimizer/lr: want a number in [0, 10], got 1e-400, which does not fit a double",
        "command line: /optimizer/beta1: want a number in [0, 0.999999], got 0.3e-500, which does not fit a double"}},
      {"negative integer", in("\"seed\": -1"), {}, {at + "2:9: /seed: want an integer of at least 0, got -1"}},
      {"integer beyond 64 bits",
       in("\"seed\": 9223372036854775808"),
       {},
       {at + "2:9: /seed: want an integer of at least 0, got 9223372036854775808, which does not fit 64 bits"}},
      {"integer beyond all",
       in("\"seed\": 99999999999999999999999"),
       {},
       {at + "2:9: /seed: want an integer of at least 0, got 99999999999999999999999, which does not fit 64 bits"}},
      {"unknown word, near",
       in("\"precision\": \"fp23\""),
       {},
       {at +
        "2:14: /precision: want one of fp32, tf32, bf16, fp16, bf16-weights, fp16-weights, fp8, got \"fp23\"; did you "
        "mean \"fp32\"?"}},
      {"a word in upper case",
       in("\"precision\": \"FP16\""),
       {},
       {at +
        "2:14: /precision: want one of fp32, tf32, bf16, fp16, bf16-weights, fp16-weights, fp8, got \"FP16\"; did you "
        "mean \"fp16\"?"}},
      {"unknown word",
       in("\"model\": {\"hidden_act\": \"swish\"}"),
       {},
       {at + "2:25: /model/hidden_act: want one of gelu_new, gelu_pytorch_tanh, gelu, got \"swish\""}},
      // ---- across fields ----
      {"what is required",
       "{}",
       {},
       {at + "1:1: /run_directory: required, but not given; for example \"runs/first\"",
        at + "1:1: /data/train: required, but not given; for example [\"train.shard\"]",
        at + "1:1: /data/vocab_file: required, but not given; for example \"vocab.txt\""}},
      {"heads",
       in("\"model\": {\"num_attention_heads\": 7}"),
       {},
       {at + "2:34: /model/num_attention_heads: want a divisor of model.hidden_size 768, got 7"}},
      {"batches",
       in("\"micro_batch_size\": 48, \"global_batch_size\": 64"),
       {},
       {at + "2:21: /micro_batch_size: want a divisor of global_batch_size 64, got 48"}},
      {"a word that is not auto",
       in("\"micro_batch_size\": \"all\""),
       {},
       {at + "2:21: /micro_batch_size: want auto or an integer in [1, 1048576], got \"all\""}},
      {"auto where a number is wanted",
       in("\"global_batch_size\": \"auto\""),
       {},
       {at + "2:22: /global_batch_size: want an integer in [1, 16777216], got \"auto\""}},
      {"auto beside what takes its place",
       in("\"micro_batch_size\": \"auto\", \"micro_batch_tokens\": 4096"),
       {"optimizer.average=masked_tokens"},
       {at + "2:21: /micro_batch_size: want no auto with micro_batch_tokens, which takes its place; leave it out"}},
      {"empty names",
       in("\"seed\": 1,\n\"optimizer\": {\"no_decay\": [\"bias\", \"\"]}"),
       {"data.validation=[\"v\", \"\"]"},
       {at + "3:27: /optimizer/no_decay: want parts of parameters' names, got an empty one",
        "command line: /data/validation: want names of files, got an empty one"}},
      {"packed micro-batches with a mean of means",
       in("\"micro_batch_tokens\": 4096"),
       {},
       {at +
        "2:23: /optimizer/average: want masked_tokens with micro_batch_tokens, as micro-batches then differ in their "
        "numbers of sequences, got micro_batches"}},
      {"packed micro-batches of one length",
       in("\"micro_batch_tokens\": 4096"),
       {"optimizer.average=masked_tokens", "data.length_bin_size=64"},
       {"command line: /data/length_bin_size: want 0 with micro_batch_tokens, which mixes lengths to fill "
        "micro-batches, "
        "got 64"}},
      {"settings of masks that are not drawn",
       in("\"seed\": 1"),
       {"data.masked_lm_prob=0.3", "data.max_ngram=3"},
       {"command line: /data/masked_lm_prob: data.masking static takes the masks in the shards; leave it at 0.15 or "
        "set "
        "data.masking=dynamic",
        "command line: /data/max_ngram: data.masking static takes the masks in the shards; leave it at 1 or set "
        "data.masking=dynamic"}},
      {"training data twice",
       in("\"seed\": 1"),
       {"data.sources=[{\"path\": \"a\"}]"},
       {"command line: /data/sources: want data.train or data.sources, got both; set data.train=[] to mix sources"}},
      {"sources that are not told apart",
       in("\"seed\": 1"),
       {"data.train=[]",
        "data.sources=[{\"path\": \"x/wiki\"}, {\"path\": \"y/wiki/\", \"weight\": 1e-7}, {\"weight\": 2}]"},
       {"command line: /data/sources/1/name: want another name for each source, got \"wiki\" again",
        "command line: /data/sources/2/path: required, but not given; for example \"wikipedia/\"",
        "command line: /data/sources/1/weight: want at least 1/65536 of all weights, which are 3, got 1e-07"}},
      {"sources of another form",
       in("\"seed\": 1"),
       {"data.train=[]", "data.sources=[\"a\", {\"path\": \"b\", \"wieght\": 1, \"weight\": -1}]"},
       {"command line: /data/sources/0: want an object {...}, got \"a\"",
        "command line: /data/sources/1/wieght: unknown key; did you mean \"weight\"?",
        "command line: /data/sources/1/weight: want a number in [1e-09, 1000000000], got -1"}},
      {"a single source",
       in("\"seed\": 1"),
       {"data.sources=a"},
       {"command line: /data/sources: want a list of objects [{...}], got \"a\""}},
      {"a batch that the default does not divide",
       in("\"seed\": 1,\n\"global_batch_size\": 12"),
       {},
       {at + "3:22: /micro_batch_size: want a divisor of global_batch_size 12, got 8"}},
      {"stop beyond the end",
       in("\"max_steps\": 10, \"stop_at_step\": 11"),
       {},
       {at + "2:34: /stop_at_step: want at most max_steps 10, got 11"}},
      {"a profile of no steps",
       in("\"max_steps\": 10, \"profile\": {\"steps\": \"5-4\"}"),
       {},
       {at + "2:39: /profile/steps: want FIRST-LAST with 1 <= FIRST <= LAST, as 10-15, got 5-4"}},
      {"a profile beyond the end",
       in("\"max_steps\": 10"),
       {"profile.steps=9-11"},
       {"command line: /profile/steps: want steps up to max_steps 10, got 9-11"}},
      {"warm-up only",
       in("\"schedule\": {\"warmup_proportion\": 1}"),
       {},
       {at + "2:35: /schedule/warmup_proportion: want less than 1 (a schedule goes on after its warm-up) with "
             "schedule.type poly, got 1"}},
      {"nothing to evaluate on",
       in("\"evaluate_every\": 5"),
       {"data.validation=[]"},
       {at + "2:19: /evaluate_every: want data.validation to evaluate on, or 0 here, got 5"}},
      {"moments of nothing",
       in("\"initial_optimizer_state\": true"),
       {},
       {at + "2:28: /initial_optimizer_state: want an initial_checkpoint that has it, or false here"}},
      {"nccl on the CPU",
       in("\"device\": \"cpu\", \"distributed\": {\"backend\": \"nccl\"}"),
       {},
       {at + "2:45: /distributed/backend: nccl needs GPUs, but device is cpu; use auto or gloo"}},
      {"options of lamb with adamw",
       in("\"optimizer\": {\"type\": \"adamw\", \"use_nvlamb\": true}"),
       {},
       {at + "2:46: /optimizer/use_nvlamb: want the default (only lamb uses it) with optimizer.type adamw, got true"}},
      {"bias correction of bert_adam",
       in("\"optimizer\": {\"type\": \"bert_adam\", \"bias_correction\": false}"),
       {},
       {at + "2:55: /optimizer/bias_correction: want the default (bert_adam never corrects) with optimizer.type "
             "bert_adam, got false"}},
      {"a degree of what has none",
       in("\"schedule\": {\"type\": \"constant\", \"degree\": 2, \"warmup_proportion\": 1}"),
       {},
       {at +
        "2:44: /schedule/degree: want the default (only poly, poly_rebased and tensorflow use it) with schedule.type "
        "constant, got 2"}},
      {"a decay of what has none",
       in("\"schedule\": {\"type\": \"cosine\", \"decay_type\": \"1-sqrt\"}"),
       {},
       {at + "2:46: /schedule/decay_type: want the default (only wsd uses it) with schedule.type cosine, got 1-sqrt"}},
      {"a warm-up and a decay that overlap",
       in("\"schedule\": {\"type\": \"wsd\", \"warmup_proportion\": 0.5, \"decay_proportion\": 0.75}"),
       {},
       {at + "2:75: /schedule/decay_proportion: want at most 1 minus warmup_proportion with "
             "schedule.warmup_proportion 0.5, got 0.75"}},
      {"a branch of nothing",
       in("\"from_step\": 5"),
       {},
       {at + "2:14: /from_step: want initial_checkpoint, the run that has this step, or 0 here"}},
      {"hours without a schedule for them",
       in("\"max_hours\": 2, \"schedule\": {\"type\": \"linear\"}"),
       {},
       {at +
        "2:14: /max_hours: want schedule.type constant or wsd, got linear: the others need the number of steps from "
        "the beginning; set max_steps, max_tokens or num_train_epochs"}},
      {"steps that do not grow",
       in("\"batch_size_schedule\": [{\"after_steps\": 5, \"global_batch_size\": 256}, "
          "{\"after_steps\": 5, \"global_batch_size\": 512}, {\"global_batch_size\": 1024}]"),
       {},
       {at + "2:24: /batch_size_schedule/1: want a later place than that of the entry before, in the same unit",
        at + "2:24: /batch_size_schedule/2: want after_steps or after_tokens above 0, and not both",
        at + "2:65: /batch_size_schedule/0/global_batch_size: want more than the 256 before, got 256"}},
      {"options of a type that is wrong itself",
       in("\"optimizer\": {\"type\": \"sgd\", \"use_nvlamb\": true}, \"schedule\": {\"type\": \"Linear\", \"degree\": "
          "2}"),
       {},
       {at + "2:23: /optimizer/type: want one of lamb, adamw, adam, bert_adam, stable_adamw, got \"sgd\"",
        at + "2:72: /schedule/type: want one of poly, poly_rebased, linear, cosine, constant, tensorflow, wsd, got "
             "\"Linear\"; did you mean \"linear\"?"}},
      // ---- extends ----
      {"extends a number", in("\"extends\": 1"), {}, {at + "2:12: /extends: want the path of a configuration, got 1"}},
      {"extends nothing there",
       in("\"extends\": \"absent.json\""),
       {},
       {at + "2:12: /extends: cannot read it: DIR/absent.json: no such file"}},
      {"what an absent base may have",
       R"({"extends": "absent.json", "optimizer": {"use_nvlamb": true, "lr": -1}})",
       {"optimizer.type=adamw"},
       {at + "1:13: /extends: cannot read it: DIR/absent.json: no such file",
        at + "1:68: /optimizer/lr: want a number in [0, 10], got -1"}},
      {"extends twice",
       in("\"extends\": \"absent.json\", \"extends\": \"absent.json\""),
       {},
       {at + "2:27: /extends: duplicate key; the first is at DIR/c.json:2:12; keep one of them",
        at + "2:12: /extends: cannot read it: DIR/absent.json: no such file"}},
      {"extends itself",
       in("\"extends\": \"./c.json\""),
       {},
       {at + "2:12: /extends: DIR/c.json extends itself through this file; break the circle"}},
      {"extends in a circle",
       in("\"extends\": \"circle.json\""),
       {},
       {"DIR/circle.json:1:13: /extends: DIR/c.json extends itself through this file; break the circle"}},
      {"extends without end",
       in("\"extends\": \"chain0.json\""),
       {},
       {"DIR/chain14.json:1:13: /extends: more than 16 files extend each other"}},
      {"error in what is extended",
       in("\"extends\": \"wrong.json\", \"log_every\": -1"),
       {},
       {at + "2:39: /log_every: want an integer in [0, 1099511627776], got -1",
        "DIR/wrong.json:2:10: /seed: want an integer of at least 0, got 1.5"}},
      // ---- command line and environment ----
      {"override without value", in("\"seed\": 1"), {"seed"}, {"command line: want a.b.c=value, got \"seed\""}},
      {"override of nothing",
       in("\"seed\": 1"),
       {"optimizer..lr=1"},
       {"command line: want a.b.c=value, got an empty key"}},
      {"override out of range",
       in("\"seed\": 1"),
       {"optimizer.lr=11"},
       {"command line: /optimizer/lr: want a number in [0, 10], got 11"}},
      {"override of an unknown key",
       in("\"seed\": 1"),
       {"optimizer.lrr=1"},
       {"command line: /optimizer/lrr: unknown key; did you mean \"lr\"?"}},
      {"override with half a list",
       in("\"seed\": 1"),
       {"data.train=[\"a\""},
       {"command line: /data/train: syntax error while parsing array - unexpected end of input; expected ']'"}},
      // ---- everything at once ----
      {"six errors",
       in("\"max_stepz\": 10,\n\"seed\": 3.5,\n\"model\": {\"hidden_dropout_prob\": 1.5, \"num_attention_heads\": "
          "7},\n\"optimizer\": {\"lr\": -1}"),
       {"amp.init_scale=0"},
       {at + "2:1: /max_stepz: unknown key; did you mean \"max_steps\"?",
        at + "3:9: /seed: want an integer of at least 0, got 3.5",
        at + "4:34: /model/hidden_dropout_prob: want a number in [0, 0.99], got 1.5",
        at + "4:62: /model/num_attention_heads: want a divisor of model.hidden_size 768, got 7",
        at + "5:21: /optimizer/lr: want a number in [0, 10], got -1",
        "command line: /amp/init_scale: want a number in [1, 4294967296], got 0"}},
  };
}

TEST_CASE("Broken configurations and their messages", "[unit][config]") {
  const TemporaryDirectory directory;
  write_text(directory.path("circle.json"), R"({"extends": "c.json"})");
  for (int i = 0; i < 20; ++i) {
    write_text(directory.path(std::string("chain") + std::to_string(i) + ".json"),
               R"({"extends": "chain)" + std::to_string(i + 1) + ".json\"}");
  }
  write_text(directory.path("wrong.json"), "{\n \"seed\": 1.5, \"log_every\": -2}");
  const std::vector<Broken> cases = broken_configs();
  CHECK(cases.size() >= 40);
  for (const Broken& broken : cases) {
    INFO(broken.name);
    write_text(directory.path("c.json"), broken.text);
    std::vector<std::string> got;
    try {
      load_pretrain_config(directory.path("c.json"), broken.overrides);
    } catch (const ConfigError& error) {
      for (const ConfigProblem& problem : error.problems) {
        got.push_back(
            replaced(problem.where + ": " + (problem.pointer.empty() ? "" : problem.pointer + ": ") + problem.message,
                     directory.path(), "DIR/"));
        CHECK_THAT(error.what(), testing::Contains(problem.message));
      }
    }
    std::vector<std::string> want = broken.problems;
    for (std::string& line : got) line = replaced(line, "DIR//", "DIR/");
    CHECK(got == want);
  }
}

TEST_CASE("A wrong environment variable is named", "[unit][config]") {
  const TemporaryDirectory directory;
  write_text(directory.path("c.json"), in("\"seed\": 1"));
  setenv("BERT_CONFIG_OPTIMIZER__LRR", "1", 1);
  CHECK_THROWS_WITH(
      load_pretrain_config(directory.path("c.json")),
      "environment variable BERT_CONFIG_OPTIMIZER__LRR: /optimizer/lrr: unknown key; did you mean \"lr\"?");
  unsetenv("BERT_CONFIG_OPTIMIZER__LRR");
}

TEST_CASE("A file over 16 MB is not read as a configuration", "[unit][config]") {
  const TemporaryDirectory directory;
  write_text(directory.path("c.json"), "{\"seed\": 1}" + std::string(size_t{16} << 20, ' '));
  CHECK_THROWS_WITH(load_pretrain_config(directory.path("c.json")), testing::Contains("larger than 16 MB"));
  CHECK_THROWS_AS(load_pretrain_config(directory.path("c.json")), ConfigError);
}

TEST_CASE("Every shipped configuration is valid", "[unit][config]") {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(std::string(BERT_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path().string());
    const std::string path = entry.path().string();
    if (names_task(path, {})) {
      CHECK_NOTHROW(load_finetune_config(path));
    } else {
      CHECK_NOTHROW(load_pretrain_config(path));
    }
    ++count;
  }
  CHECK(count >= 6);
}

TEST_CASE("Shipped configurations have the published numbers", "[unit][config]") {
  const auto shipped = [](const std::string& name) {
    return load_pretrain_config(BERT_SOURCE_DIR "/configs/" + name + ".json");
  };
  for (const auto& [phase, steps, batch, micro_batch, lr, warmup] :
       {std::tuple("1", 7038, 65536, 256, 6e-3, 0.2843), std::tuple("2", 1563, 32768, 32, 4e-3, 0.128)}) {
    const PretrainConfig config = shipped(std::string("pretrain-phase") + phase);
    INFO(phase);
    CHECK(config.max_steps == steps);
    CHECK(config.global_batch_size == batch);
    CHECK(config.micro_batch_size == micro_batch);
    CHECK(config.optimizer.lr == lr);
    CHECK(config.schedule.warmup_proportion == warmup);
    CHECK(config.schedule.type == ScheduleType::kPoly);
    CHECK(config.model.hidden_size == 1024);
    for (const int64_t gpus : {1, 8, 64}) CHECK(config.global_batch_size % (config.micro_batch_size * gpus) == 0);
  }
  CHECK(shipped("pretrain-phase2").initial_optimizer_state);
  const PretrainConfig adam = shipped("pretrain-adam");
  CHECK(adam.optimizer.lr == 1e-4);
  CHECK(adam.global_batch_size == 256);
  CHECK(adam.schedule.warmup_proportion * static_cast<double>(adam.max_steps) == 10000.0);
  // Devlin et al. 2018, appendix A.2, in fp32 as Google's code, whose loss is the mean over the masked tokens of a batch.
  const PretrainConfig google = shipped("pretrain-google");
  CHECK(google.global_batch_size == 256);
  CHECK(google.schedule.warmup_proportion * static_cast<double>(google.max_steps) == 10000.0);
  CHECK(google.precision == Precision::kFp32);
  CHECK(google.optimizer.average == GradientAverage::kMaskedTokens);
}

}  // namespace
}  // namespace bert
