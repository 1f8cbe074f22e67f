"""The comparison of embedding_evaluators.sh, which calls this program: BERT MODEL DATA WORK. Exits with 1 if a figure differs by more than
1e-6, or a mined row."""
import csv
import json
import os
import random
import subprocess
import sys

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import (BinaryClassificationEvaluator, EmbeddingSimilarityEvaluator,
                                                                   InformationRetrievalEvaluator, RerankingEvaluator)
from sentence_transformers.util import mine_hard_negatives

TOLERANCE = 1e-6
QUESTIONS = 1000
KINDS = ["cosine", "dot", "euclidean", "manhattan"]
bert, model_path, data, work = sys.argv[1:]
dice = random.Random(42)
worst = 0


def path(*names):
    return os.path.join(work, *names)


def run(*arguments):
    done = subprocess.run([bert, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bert {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(name, ours, theirs):
    global worst
    theirs = {key: float(value) for key, value in theirs.items()}
    if set(ours) != set(theirs):
        sys.exit(f"{name}: other figures: {sorted(set(ours) ^ set(theirs))}")
    gap, key = max((abs(ours[key] - theirs[key]) / max(1, abs(theirs[key])), key) for key in ours)  # a distance may be above 1
    worst = max(worst, gap)
    print(f"{name}: {len(ours)} figures, largest difference {gap:.1e} of {key}: {ours[key]} and {theirs[key]}", flush=True)


def rows_of(file):
    with open(file, encoding="utf-8-sig") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def write_lines(file, objects):
    with open(file, "w", encoding="utf-8") as lines:
        for item in objects:
            lines.write(json.dumps(item) + "\n")


model = SentenceTransformer(model_path, device="cpu")
with open(os.path.join(data, "squad/dev-v1.1.json"), encoding="utf-8") as file:
    articles = json.load(file)["data"]
corpus = {f"{a}-{p}": (article["title"].replace("_", " ") if a % 2 else "", paragraph["context"])
          for a, article in enumerate(articles) for p, paragraph in enumerate(article["paragraphs"])}
asked = [(question["id"], question["question"], f"{a}-{p}") for a, article in enumerate(articles)
         for p, paragraph in enumerate(article["paragraphs"]) for question in paragraph["qas"]]
asked = dice.sample(asked, QUESTIONS)


def similarity():
    file = os.path.join(data, "glue/STS-B/dev.tsv")
    rows = rows_of(file)
    evaluator = EmbeddingSimilarityEvaluator([r["sentence1"] for r in rows], [r["sentence2"] for r in rows], [float(r["score"]) for r in rows],
                                             similarity_fn_names=KINDS)
    theirs = {"_".join(reversed(key.split("_"))): value for key, value in evaluator(model).items() if "max" not in key}
    compare("similarity", run("evaluate", "embedding", "--checkpoint", model_path, "--dataset", file), theirs)


def classes():
    file = os.path.join(data, "glue/MRPC/dev.tsv")
    rows = rows_of(file)
    evaluator = BinaryClassificationEvaluator([r["#1 String"] for r in rows], [r["#2 String"] for r in rows], [int(r["Quality"]) for r in rows],
                                              similarity_fn_names=KINDS)
    compare("classes", run("evaluate", "embedding", "--checkpoint", model_path, "--dataset", file, "--kind", "classification",
                           "data.text_column=#1 String", "data.text_pair_column=#2 String", "data.label_column=Quality"), evaluator(model))


def reranking():
    samples = []
    for _, question, place in asked[:300]:
        others = [text for name, (_, text) in corpus.items() if name.split("-")[0] == place.split("-")[0] and name != place]
        samples.append({"query": question, "positive": [corpus[place][1]], "negative": dice.sample(others, min(20, len(others)))})
    write_lines(path("samples.jsonl"), samples)
    compare("reranking", run("evaluate", "embedding", "--checkpoint", model_path, "--dataset", path("samples.jsonl")),
            RerankingEvaluator(samples)(model))


def retrieval():
    os.makedirs(path("qrels"), exist_ok=True)
    write_lines(path("corpus.jsonl"), ({"_id": name, "title": title, "text": text} for name, (title, text) in corpus.items()))
    write_lines(path("queries.jsonl"), ({"_id": name, "text": question} for name, question, _ in asked))
    relevant = {}
    for name, _, place in asked:  # the paragraph, and sometimes its neighbour
        article, paragraph = place.split("-")
        neighbour = f"{article}-{int(paragraph) + 1}"
        relevant[name] = {place} | ({neighbour} if neighbour in corpus and int(paragraph) % 3 == 0 else set())
    with open(path("qrels/test.tsv"), "w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        file.writelines(f"{name}\t{place}\t1\n" for name, places in relevant.items() for place in sorted(places))
    for prompts in ({}, {"query_prompt": "question: ", "corpus_prompt": "answer: "}):
        evaluator = InformationRetrievalEvaluator({name: question for name, question, _ in asked},
                                                  {name: f"{title} {text}".strip() for name, (title, text) in corpus.items()}, relevant,
                                                  **prompts)
        options = [word for key, value in prompts.items() for word in ("--" + key.replace("_", "-"), value)]
        ours = run("evaluate", "embedding", "--checkpoint", model_path, "--beir", work, "--run", path("out.run"), *options)
        compare("retrieval" + (" with prompts" if prompts else ""), ours, evaluator(model))
        again = run("evaluate", "embedding", "--beir", work, "--predictions", path("out.run"))
        if {f"cosine_{key}": value for key, value in again.items()} != ours:
            sys.exit("the run that was written has other figures")


def mining():
    global worst
    pairs = [{"query": question, "positive": corpus[place][1]} for _, question, place in asked]
    pairs += [{"query": question, "positive": corpus[next(iter(corpus))][1]} for _, question, _ in asked[:20]]  # two positives
    write_lines(path("pairs.jsonl"), pairs)
    write_lines(path("more.jsonl"), ({"text": text} for _, text in corpus.values()))
    for options in ({}, {"relative_margin": 0.05, "num_negatives": 5, "output_format": "n-tuple"},
                    {"range_min": 3, "range_max": 40, "max_score": 0.6, "min_score": 0.2, "sampling_strategy": "random"}):
        random.seed(7)
        theirs = mine_hard_negatives(Dataset.from_list(pairs), model, corpus=[text for _, text in corpus.values()], verbose=False, **options)
        names = {"output_format": "format", "sampling_strategy": "sampling"}
        words = [word for key, value in options.items() for word in ("--" + names.get(key, key).replace("_", "-"), value)]
        run("data", "mine-negatives", "--checkpoint", model_path, "--input", path("pairs.jsonl"), "--corpus", path("more.jsonl"), "--output",
            path("mined.jsonl"), "--seed", 7, *words)
        with open(path("mined.jsonl"), encoding="utf-8") as file:
            ours = [json.loads(line) for line in file]
        theirs = list(theirs)
        other = sum(a != b for a, b in zip(ours, theirs)) + abs(len(ours) - len(theirs))
        print(f"mining {options}: {len(theirs)} rows, {other} differ", flush=True)
        worst = max(worst, other)


for part in (similarity, classes, reranking, retrieval, mining):
    part()
print(f"largest difference {worst:.1e}")
sys.exit(worst > TOLERANCE)
