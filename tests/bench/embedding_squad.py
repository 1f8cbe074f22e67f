"""The comparison of embedding_squad.sh, which calls this program. train fine-tunes with sentence-transformers; compare does the rest, calls
train in a process of its own, prints the table, and exits with 1 if the means differ by more than two standard errors."""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys

HELD_OUT = 4  # every fourth title
BATCH, PART, RATE, WARMUP = 64, 16, 2e-5, 0.1  # of configs/embedding-squad.json


def length_of(model):
    """Tokens of a text at most: 256, or the positions of the model."""
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        return min(256, json.load(file)["max_position_embeddings"])


def write_lines(path, objects):
    with open(path, "w", encoding="utf-8") as file:
        for item in objects:
            file.write(json.dumps(item) + "\n")


def divide(given):
    """train.jsonl, and the held-out titles in BEIR's layout."""
    with open(given.squad, encoding="utf-8") as file:
        articles = json.load(file)["data"]
    train, corpus, queries, judgments = [], [], [], []
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(article["paragraphs"]):
            held_out = a % HELD_OUT == HELD_OUT - 1
            if held_out:
                corpus.append({"_id": f"{a}-{p}", "title": "", "text": paragraph["context"]})
            for question in paragraph["qas"]:
                if not held_out:
                    train.append({"anchor": question["question"], "positive": paragraph["context"]})
                    continue
                queries.append({"_id": question["id"], "text": question["question"]})
                judgments.append(f"{question['id']}\t{a}-{p}\t1\n")
    random.Random(42).shuffle(train)
    if given.rows != "all":
        train = train[:int(given.rows)]
    os.makedirs(os.path.join(given.work, "qrels"), exist_ok=True)
    write_lines(os.path.join(given.work, "train.jsonl"), train)
    write_lines(os.path.join(given.work, "corpus.jsonl"), corpus)
    write_lines(os.path.join(given.work, "queries.jsonl"), queries)
    with open(os.path.join(given.work, "qrels/test.tsv"), "w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n" + "".join(judgments))
    return len(train), len(queries), len(corpus)


def train(given):
    import torch
    from datasets import Dataset
    from sentence_transformers import (SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments)
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = SentenceTransformer(given.model, device="cpu")
    model.max_seq_length = length_of(given.model)
    with open(os.path.join(given.work, "train.jsonl"), encoding="utf-8") as file:
        rows = Dataset.from_list([json.loads(line) for line in file]).shuffle(seed=given.seed)  # its sampler has one order for all seeds
    arguments = SentenceTransformerTrainingArguments(
        output_dir=given.output + ".trainer", num_train_epochs=1, per_device_train_batch_size=BATCH, learning_rate=RATE,
        weight_decay=0.0, max_grad_norm=1.0, seed=given.seed, use_cpu=True,
        bf16=given.precision == "bf16", batch_sampler="no_duplicates", save_strategy="no", eval_strategy="no", logging_steps=1000,
        disable_tqdm=True, report_to="none")

    class Trainer(SentenceTransformerTrainer):
        """The rates of the recipe, which counts steps from 1: get_linear_schedule_with_warmup counts from 0."""

        def create_scheduler(self, num_training_steps, optimizer=None):
            warmup = WARMUP * num_training_steps
            share = lambda step: min((step + 1) / warmup, max(0, num_training_steps - step - 1) / (num_training_steps - warmup))
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, share)
            return self.lr_scheduler

    trainer = Trainer(model=model, args=arguments, train_dataset=rows, loss=CachedMultipleNegativesRankingLoss(model, mini_batch_size=PART))
    done = trainer.train()
    model.save(given.output)
    with open(os.path.join(given.output, "seconds.json"), "w", encoding="utf-8") as file:  # the last file of a run
        json.dump({"seconds": done.metrics["train_runtime"], "steps": done.global_step}, file)


def run(command, log):
    with open(log, "a", encoding="utf-8") as file:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=file, text=True)
    if done.returncode:
        with open(log, encoding="utf-8") as file:
            sys.exit(f"{' '.join(map(str, command[:3]))}: {''.join(file.readlines()[-5:])}")
    return done.stdout


def ndcg_of(given, checkpoint, name):
    kept = os.path.join(given.work, name + ".json")
    if not os.path.exists(kept):
        text = run([given.bert, "evaluate", "embedding", "--checkpoint", checkpoint, "--beir", given.work], kept + ".log")
        with open(kept, "w", encoding="utf-8") as file:
            file.write(text.strip().splitlines()[-1])
    with open(kept, encoding="utf-8") as file:
        return json.load(file)["cosine_ndcg@10"]


def seconds_of_bert(directory, steps):
    """The seconds of all steps: no evaluation, no checkpoint."""
    with open(os.path.join(directory, "metrics.jsonl"), encoding="utf-8") as file:
        intervals = [line for line in map(json.loads, file) if "sequences_per_second" in line]
    rates = [(line["steps"], line["sequences_per_second"]) for line in intervals]
    sequences = sum(count for count, _ in rates)
    return steps / sequences * sum(count * BATCH / rate for count, rate in rates)


def result_of(given, program, precision, seed, steps):
    """nDCG@10 and the seconds of an epoch."""
    name = f"{program}-{precision}-{seed}"
    place = os.path.join(given.work, name)
    if program == "bert":
        run([given.bert, "finetune", given.config, f"initial_checkpoint={given.model}", f"run_directory={place}",
             f"data.train_file={given.work}/train.jsonl", f"data.dev_file={given.work}/dev.jsonl", f"data.max_seq_length={length_of(given.model)}",
             f"seed={seed}", f"precision={precision}", f"max_steps={steps}", "log_every=4"],
            place + ".log")
        return ndcg_of(given, place, name), seconds_of_bert(place, steps)
    if not os.path.exists(os.path.join(place, "seconds.json")):
        run([sys.executable, __file__, "train", "--work", given.work, "--model", given.model, "--seed", seed, "--precision", precision,
             "--output", place], place + ".log")
    with open(os.path.join(place, "seconds.json"), encoding="utf-8") as file:
        timed = json.load(file)
    return ndcg_of(given, place, name), timed["seconds"] * steps / timed["steps"]


def compare(given):
    rows, queries, documents = divide(given)
    write_lines(os.path.join(given.work, "dev.jsonl"), [{"anchor": "a", "positive": "b"}])  # the search below is the evaluation
    steps = rows // BATCH
    before = ndcg_of(given, given.model, "before")
    print(f"{rows} rows, {steps} steps; {queries} questions of held-out titles among {documents} paragraphs; nDCG@10 before: {before:.4f}")
    print(f"{'precision':<10}{'seed':<6}{'nDCG@10':>9}{'s-t':>9}{'s/epoch':>10}{'s-t':>9}{'ratio':>8}", flush=True)
    good = True
    for precision in ("fp32", "bf16"):
        results = {"bert": [], "sentence-transformers": []}
        for seed in range(42, 42 + given.seeds):
            for program, found in results.items():
                found.append(result_of(given, program, precision, seed, steps))
            ours, theirs = (found[-1] for found in results.values())
            print(f"{precision:<10}{seed:<6}{ours[0]:>9.4f}{theirs[0]:>9.4f}{ours[1]:>10.1f}{theirs[1]:>9.1f}{theirs[1] / ours[1]:>8.2f}",
                  flush=True)
        if given.seeds < 2:
            continue
        values = [[one[0] for one in found] for found in results.values()]
        means = [statistics.mean(side) for side in values]
        error = math.sqrt(sum(statistics.variance(side) / len(side) for side in values))
        agrees = abs(means[0] - means[1]) <= 2 * error
        good = good and agrees
        print(f"{precision}: means {means[0]:.4f} and {means[1]:.4f}, difference {means[0] - means[1]:+.4f}, its standard error {error:.4f}: "
              f"{'within' if agrees else 'NOT within'} two of them", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["train", "compare"])
    for name in ("bert", "config", "squad", "work", "model", "output", "precision", "rows"):
        parser.add_argument("--" + name)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    if given.action == "train":
        return train(given)
    sys.exit(0 if compare(given) else 1)


main()
