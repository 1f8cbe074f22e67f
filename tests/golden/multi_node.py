"""Writes multi_node.json: published throughput of the pre-training of BERT-large on several nodes.

Run beside ../shared with Python 3.11: python3 tests/golden/multi_node.py > tests/golden/multi_node.json
Reads ../shared/reference/tables, the tables of NVIDIA's READMEs. Two of their columns have misprints (126 for 128, 18 for 8): where a table
prints the batch of a GPU over a step, that and the accumulation of one node decide.
"""
import json
import pathlib
import re

COMMIT = "729963dd"
TABLES = pathlib.Path(__file__).parents[2].parent / "shared" / "reference" / "tables"
# Framework, heading, GPU, network, GPUs of a node, the table's precision beside fp16, and the order of the two in the JSON file.
A100 = "NVIDIA DGX A100 (8x A100 80GB)"
LIST = (("PyTorch", f"Pre-training {A100} Multi-node Scaling", "a100", "HDR", 8, "tf32", ("tf32", "fp16")),
        ("PaddlePaddle", f"Pre-training {A100} Multi-node Scaling", "a100", "HDR", 8, "tf32", ("tf32", "fp16")),
        ("TensorFlow", "Pre-training training performance: multi-node on DGX-2H 32GB", "v100", "EDR", 16, "fp32", ("fp16", "fp32")),
        ("TensorFlow", "Pre-training training performance: multi-node on DGX A100 40GB", "a100-40gb", "HDR", 8, "tf32", ("fp16", "tf32")),
        ("TensorFlow2", "Pre-training training performance: Multi-node on NVIDIA DGX-2H V100 (16x V100 32GB)", "v100", "EDR", 16, "fp32",
         ("fp16", "fp32")),
        ("TensorFlow2", f"Pre-training training performance: Multi-node on {A100}", "a100", "HDR", 8, "tf32", ("fp16", "tf32")))


def numbers(cell):
    return [float(number) for number in re.findall(r"[0-9.]+", cell)]


def table(framework, heading):
    """The rows under a heading, one dictionary of lists of numbers for each, by column."""
    lines = [line.split(":", 1)[-1] for line in (TABLES / f"tables_{framework}.md").read_text().splitlines()]
    start = next(i for i, line in enumerate(lines) if line.lstrip("# ") == heading)
    cells = []
    for line in lines[start + 1:]:
        if line.startswith("#"):
            break
        if line.startswith("|"):
            cells.append([cell.strip(" \t*") for cell in line.strip().strip("|").split("|")])
    return [dict(zip(cells[0], map(numbers, row))) for row in cells[2:]]


def column(row, *words):
    return next(value for name, value in row.items() if all(word in name.lower() for word in words))


def series(framework, heading, gpu, network, gpus, other, order):
    rows = table(framework, heading)
    result = []
    for length in (128, 512):
        chosen = [row for row in rows if column(row, "sequence length") == [length]]
        for precision in order:
            printed_first = "fp16" if framework.startswith("TensorFlow") else other  # of two numbers in one cell
            place = 0 if precision == printed_first else 1
            steps = [int(column(row, "ccumulation")[place]) for row in chosen]
            micro = [int(column(row, "batch size / gpu")[place]) for row in chosen]
            if any("Accumulated" in name for name in chosen[0]):
                accumulated = [int(column(row, "accumulated")[place]) for row in chosen]
                micro = [accumulated[0] // steps[0]] * len(chosen)
                steps = [batch // size for batch, size in zip(accumulated, micro)]
            speed = [column(row, "throughput", "mixed precision" if precision == "fp16" else other)[0] for row in chosen]
            nodes = [int(column(row, "nodes")[0]) for row in chosen]
            result.append({"directory": f"{framework}/LanguageModeling/BERT", "gpu": gpu, "network": network, "ports": 8, "gpus_per_node": gpus,
                           "sequence_length": length, "precision": precision, "rows": [list(row) for row in zip(nodes, micro, steps, speed)]})
    return result


def main():
    source = (f"https://github.com/NVIDIA/DeepLearningExamples at {COMMIT}, README.md of the directory in each series, multi-node pre-training of "
              "BERT-large; written by multi_node.py")
    columns = ["nodes", "micro_batch_size", "gradient_accumulation_steps", "sequences_per_second"]
    lines = ",\n".join(json.dumps(entry) for arguments in LIST for entry in series(*arguments))
    print(f'{{\n"source": {json.dumps(source)},\n"columns": {json.dumps(columns)},\n"series": [\n{lines}\n]\n}}')


main()
