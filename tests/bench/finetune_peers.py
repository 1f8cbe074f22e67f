"""The peer of finetune_peers.sh, which calls this program, and its table.

train fine-tunes a model directory of transformers with Trainer, with the hyper-parameters of configs/TASK.json, and writes one line of
JSON. compare prints the seeds, the means and the speeds of both programs. It exits with 1 if a mean differs by more than two standard
errors, or if bert is not twice as fast.
"""
import argparse
import glob
import json
import math
import os
import statistics
import sys
import time

METRICS = {"sst2": ["accuracy"], "mrpc": ["accuracy", "f1"]}
COLUMNS = {"sst2": ([0], 1), "mrpc": ([3, 4], 0)}  # of the texts, and of the label
WARMUP = 0.1


def read(path, task):
    """Texts and labels of one of GLUE's files, which have no quoting."""
    texts, label = COLUMNS[task]
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        rows = [line.rstrip("\r\n").split("\t") for line in file][1:]
    return [[row[i] for i in texts] for row in rows], [int(row[label]) for row in rows]


def features(path, task, tokenizer, longest):
    """Ids and segments as Google's run_classifier.py has them, without padding. The truncation of fast tokenizers keeps another token of
    some pairs."""
    texts, labels = read(path, task)
    ids = [tokenizer([text[i] for text in texts], add_special_tokens=False, verbose=False)["input_ids"] for i in range(len(texts[0]))]
    result = []
    for parts, label in zip(zip(*ids), labels):
        parts = [list(part) for part in parts]
        while sum(map(len, parts)) > longest - 1 - len(parts):
            (parts[0] if len(parts) == 1 or len(parts[0]) > len(parts[1]) else parts[1]).pop()
        tokens, segments = [tokenizer.cls_token_id], [0]
        for segment, part in enumerate(parts):
            tokens += part + [tokenizer.sep_token_id]
            segments += [segment] * (len(part) + 1)
        result.append({"input_ids": tokens, "token_type_ids": segments, "attention_mask": [1] * len(tokens), "labels": label})
    return result


def train(given):
    import sklearn.metrics
    import torch
    from transformers import (AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainerCallback,
                              TrainingArguments, set_seed)

    torch.set_num_threads(given.threads)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    splits = {split: features(os.path.join(given.data, split + ".tsv"), given.task, tokenizer, given.max_seq_length)
              for split in ("train", "dev")}
    set_seed(given.seed)
    # gelu_new and gelu_pytorch_tanh are one function; the second is one kernel of PyTorch, the first nine.
    model = AutoModelForSequenceClassification.from_pretrained(given.model, num_labels=2, dtype=torch.float32, hidden_act=given.gelu)
    deviation = model.config.initializer_range
    torch.nn.init.trunc_normal_(model.classifier.weight, std=deviation, a=-2 * deviation, b=2 * deviation)  # as bert and TensorFlow draw it
    torch.nn.init.zeros_(model.classifier.bias)

    class Clock(TrainerCallback):
        def on_train_begin(self, *_, **__):
            self.begin = time.perf_counter()

        def on_train_end(self, *_, **__):
            self.seconds = time.perf_counter() - self.begin

    clock = Clock()
    # The linear schedule of transformers is that of bert one step later: its first rate is 0, and bert's last.
    arguments = TrainingArguments(
        output_dir=given.output + ".trainer", max_steps=given.steps, per_device_train_batch_size=32, per_device_eval_batch_size=32,
        learning_rate=given.lr, lr_scheduler_type="linear", warmup_steps=round(WARMUP * given.steps), weight_decay=0.01, adam_beta1=0.9,
        adam_beta2=0.999, adam_epsilon=1e-6, max_grad_norm=1.0, seed=given.seed, use_cpu=True, save_strategy="no", eval_strategy="no",
        logging_steps=100, disable_tqdm=True, report_to="none")
    trainer = Trainer(model=model, args=arguments, train_dataset=splits["train"], data_collator=DataCollatorWithPadding(tokenizer),
                      callbacks=[clock])
    trained = trainer.train()
    predicted = trainer.predict(splits["dev"])
    best, labels = predicted.predictions.argmax(-1), predicted.label_ids
    result = {"seed": given.seed, "accuracy": float(sklearn.metrics.accuracy_score(labels, best)),
              "f1": float(sklearn.metrics.f1_score(labels, best)), "dev_loss": float(predicted.metrics["test_loss"]),
              "steps": trained.global_step, "train_runtime": trained.metrics["train_runtime"], "train_seconds": clock.seconds,
              "sequences_per_second": 32 * trained.global_step / clock.seconds}
    with open(given.output + ".new", "w") as file:
        json.dump(result, file)
    os.replace(given.output + ".new", given.output)
    print(json.dumps(result))


def of_bert(run):
    """The same figures of a finished run. The seconds are those of the intervals of training: no evaluation, no checkpoint."""
    with open(os.path.join(run, "summary.json")) as file:
        result = json.load(file)
    with open(os.path.join(run, "config.json")) as file:
        config = json.load(file)
    with open(os.path.join(run, "metrics.jsonl")) as file:
        intervals = [line for line in map(json.loads, file) if "sequences_per_second" in line]
    sequences = [line["steps"] * config["global_batch_size"] for line in intervals]
    seconds = sum(count / line["sequences_per_second"] for count, line in zip(sequences, intervals))
    return {**result, "seed": config["seed"], "sequences_per_second": sum(sequences) / seconds}


def compare(given):
    good = True
    for task in given.tasks:
        ours = [of_bert(run) for run in sorted(glob.glob(os.path.join(given.work, task, "bert/seed-*")))]
        theirs = []
        for one in ours:
            with open(os.path.join(given.work, task, f"transformers/seed-{one['seed']}.json")) as file:
                theirs.append(json.load(file))
        metrics = METRICS[task]
        print(f"\n{task}\n{'seed':<6}" + "".join(f"{name:>12}{'Trainer':>10}" for name in metrics) +
              f"{'sequences/s':>14}{'Trainer':>10}{'ratio':>8}")
        for a, b in zip(ours, theirs):
            speeds = a["sequences_per_second"], b["sequences_per_second"]
            print(f"{a['seed']:<6}" + "".join(f"{a[name]:>12.4f}{b[name]:>10.4f}" for name in metrics) +
                  f"{speeds[0]:>14.0f}{speeds[1]:>10.0f}{speeds[0] / speeds[1]:>8.2f}")
        for name in metrics:
            values = [[one[name] for one in side] for side in (ours, theirs)]
            means = [statistics.mean(side) for side in values]
            error = math.sqrt(sum(statistics.variance(side) / len(side) for side in values))
            agrees = abs(means[0] - means[1]) <= 2 * error
            good = good and agrees
            print(f"{name}: mean {means[0]:.4f}, Trainer {means[1]:.4f}; difference {means[0] - means[1]:+.4f}, its standard error "
                  f"{error:.4f}: {'within' if agrees else 'NOT within'} two of them")
        # Means over the time that all seeds take together.
        speeds = [statistics.harmonic_mean([one["sequences_per_second"] for one in side]) for side in (ours, theirs)]
        fast = speeds[0] >= 2 * speeds[1]
        good = good and fast
        print(f"training: {speeds[0]:.0f} sequences/s, Trainer {speeds[1]:.0f}: {speeds[0] / speeds[1]:.2f} times as fast; asked: 2 times, "
              f"{'met' if fast else 'NOT met'}")
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("train")
    one.add_argument("--task", choices=sorted(METRICS), required=True)
    one.add_argument("--model", required=True, help="directory that bert convert --to huggingface has written")
    one.add_argument("--data", required=True, help="directory with train.tsv and dev.tsv")
    one.add_argument("--output", required=True, help="file for the figures")
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--steps", type=int, required=True)
    one.add_argument("--lr", type=float, required=True)
    one.add_argument("--max-seq-length", type=int, required=True)
    one.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    one.add_argument("--gelu", default="gelu_pytorch_tanh")
    all_seeds = verbs.add_parser("compare")
    all_seeds.add_argument("work")
    all_seeds.add_argument("tasks", nargs="+", choices=sorted(METRICS))
    given = parser.parse_args()
    sys.exit(train(given) if given.verb == "train" else compare(given))


main()
