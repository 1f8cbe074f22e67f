"""The comparison of embedding_speed.sh, which calls this program: BERT MINILM DATA WORK."""
import csv
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer, BertConfig, BertModel

TURNS = 3
CALLS = 30  # of one text
bert, minilm, data, work = sys.argv[1:]
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def run(*arguments):
    done = subprocess.run([bert, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bert {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def sets_of_texts():
    with open(os.path.join(data, "glue/STS-B/dev.tsv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    with open(os.path.join(data, "squad/dev-v1.1.json"), encoding="utf-8") as file:
        articles = json.load(file)["data"]
    paragraphs = [" ".join(paragraph["context"].split()) for article in articles for paragraph in article["paragraphs"]]
    return {"STS-B": [row["sentence1"] for row in rows][:1000] + [row["sentence2"] for row in rows][:1000], "SQuAD": paragraphs[:1000]}


def bert_base():
    """A sentence encoder of BERT-base's sizes, without training: speed does not depend on it."""
    place = os.path.join(work, "bert-base")
    if not os.path.exists(os.path.join(place, "modules.json")):
        torch.manual_seed(42)
        plain = os.path.join(work, "bert-base-plain")
        BertModel(BertConfig(vocab_size=30522)).save_pretrained(plain)
        AutoTokenizer.from_pretrained(minilm).save_pretrained(plain)
        model = SentenceTransformer(plain, device="cpu")
        model.max_seq_length = 256
        model.save(place)
    return place


def engines_of(model, precision):
    if precision == "int8":
        return {}
    hint = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32" if precision == "fp32" else "bf16"}}
    engines = {"OpenVINO": SentenceTransformer(model, device="cpu", backend="openvino", model_kwargs=hint)}
    if precision == "fp32":
        engines["ONNX Runtime"] = SentenceTransformer(model, device="cpu", backend="onnx")
        engines["PyTorch"] = SentenceTransformer(model, device="cpu")
    return engines


def flop_of(model, texts):
    """Of the encoder's products."""
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        sizes = json.load(file)
    hidden, width = sizes["hidden_size"], sizes["intermediate_size"]
    lengths = [len(ids) for ids in AutoTokenizer.from_pretrained(model)(texts, truncation=True, max_length=256)["input_ids"]]
    return sizes["num_hidden_layers"] * sum(n * (8 * hidden * hidden + 4 * hidden * width) + 4 * n * n * hidden for n in lengths)


def write_lines(name, texts):
    path = os.path.join(work, name)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(text + "\n" for text in texts)
    return path


def rates_of(model, precision, texts, name):
    """Texts a second and milliseconds of one text, by engine, and the share of the product's rate."""
    many, one = write_lines(name + ".txt", texts), sorted(texts, key=len)[len(texts) // 2]
    alone = write_lines(name + "-one.txt", [one])
    engines = engines_of(model, precision)
    rates, times = {name: [] for name in ["bert", *engines]}, {}
    benchmark = ["benchmark", "inference", "--task", "embedding", "--checkpoint", model, "--precision", precision, "--json", "--input"]
    product = 0
    for _ in range(TURNS):
        report = run(*benchmark, many)
        rates["bert"].append(report["sequences_per_second"])
        product = max(product, report["product_tflops"].get(precision, 0))
        for engine, encoder in engines.items():
            encoder.encode(texts[:64])
            begin = time.perf_counter()
            encoder.encode(texts, batch_size=32)
            rates[engine].append(len(texts) / (time.perf_counter() - begin))
    times["bert"] = 1e3 / run(*benchmark, alone)["sequences_per_second"]
    for engine, encoder in engines.items():
        seconds = []
        for _ in range(CALLS):
            begin = time.perf_counter()
            encoder.encode([one])
            seconds.append(time.perf_counter() - begin)
        times[engine] = 1e3 * statistics.median(seconds)
    rates = {engine: statistics.median(values) for engine, values in rates.items()}
    share = 1e-12 * flop_of(model, texts) / len(texts) * rates["bert"] / product if product else None
    return rates, times, share


def main():
    models = {"MiniLM-L6": (minilm, 1), "BERT-base": (bert_base(), 8)}
    columns = ["bert", "OpenVINO", "ONNX Runtime", "PyTorch"]
    print("| model, texts, precision | " + " | ".join(columns) + " | share of the product's rate | one text, ms: " + " | ".join(columns) + " |")
    print("|---" * (2 + 2 * len(columns)) + "|")
    show = lambda figures, form: " | ".join(format(figures[name], form) if name in figures else "" for name in columns)
    for model, (directory, every) in models.items():
        for name, texts in sets_of_texts().items():
            for precision in ("fp32", "bf16", "int8"):
                rates, times, share = rates_of(directory, precision, texts[::every], f"{model}-{name}")
                print(f"| {model}, {name}, {precision} | {show(rates, '.0f')} | {'' if share is None else f'{100 * share:.0f} %'} | "
                      f"{show(times, '.2f')} |", flush=True)
    pairs = os.path.join(data, "glue/STS-B/dev.tsv")
    print()
    for precision in ("fp32", "bf16", "int8"):
        figures = run("evaluate", "embedding", "--checkpoint", minilm, "--dataset", pairs, "--precision", precision)
        print(f"MiniLM-L6 {precision}: Spearman's correlation on STS-B {figures['cosine_spearman']:.5f}")


main()
