"""Writes multi_node.json: published throughput of the pre-training of BERT-large on several nodes.

Needs CPython >= 3.8 only (written with 3.11.7): python3 tests/golden/multi_node.py > tests/golden/multi_node.json
TABLES holds the columns that matter of six tables in NVIDIA's READMEs, as printed: github.com/NVIDIA/DeepLearningExamples at COMMIT,
FRAMEWORK/LanguageModeling/BERT/README.md, under the heading that stands behind the framework. A cell of two numbers is for the two precisions.
Two columns have misprints (126 for 128, 18 for 8): where a table prints the batch of a GPU over a step, that and the accumulation of one node
decide.
"""
import json
import re

COMMIT = "729963dd"
# Framework, heading, GPU, network, GPUs of a node, the table's precision beside fp16, and the order of the two in the JSON file.
A100 = "NVIDIA DGX A100 (8x A100 80GB)"
LIST = (("PyTorch", f"Pre-training {A100} Multi-node Scaling", "a100", "HDR", 8, "tf32", ("tf32", "fp16")),
        ("PaddlePaddle", f"Pre-training {A100} Multi-node Scaling", "a100", "HDR", 8, "tf32", ("tf32", "fp16")),
        ("TensorFlow", "Pre-training training performance: multi-node on DGX-2H 32GB", "v100", "EDR", 16, "fp32", ("fp16", "fp32")),
        ("TensorFlow", "Pre-training training performance: multi-node on DGX A100 40GB", "a100-40gb", "HDR", 8, "tf32", ("fp16", "tf32")),
        ("TensorFlow2", "Pre-training training performance: Multi-node on NVIDIA DGX-2H V100 (16x V100 32GB)", "v100", "EDR", 16, "fp32",
         ("fp16", "fp32")),
        ("TensorFlow2", f"Pre-training training performance: Multi-node on {A100}", "a100", "HDR", 8, "tf32", ("fp16", "tf32")))

TABLES = """
PyTorch: Pre-training NVIDIA DGX A100 (8x A100 80GB) Multi-node Scaling
Nodes | Batch size / GPU | Accumulated batch size / GPU | Accumulation steps | Sequence length | Mixed precision throughput | TF32 throughput
1 | 126 and 256 | 8192 and 8192 | 64 and 32 | 128 | 4553 | 2486
2 | 126 and 256 | 4096 and 4096 | 32 and 16 | 128 | 9191 | 4979
4 | 126 and 256 | 2048 and 2048 | 16 and 18 | 128 | 18119 | 9859
8 | 126 and 256 | 1024 and 1024 | 8 and 4 | 128 | 35774 | 19815
16 | 126 and 256 | 512 and 512 | 4 and 2 | 128 | 70555 | 38866
32 | 126 and 256 | 256 and 256 | 2 and 1 | 128 | 138294 | 75706
1 | 16 and 32 | 4096 and 4096 | 256 and 128 | 512 | 1648 | 854
2 | 16 and 32 | 2048 and 2048 | 128 and 64 | 512 | 3291 | 1684
4 | 16 and 32 | 1024 and 1024 | 64 and 32 | 512 | 6464 | 3293
8 | 16 and 32 | 512 and 512 | 32 and 16 | 512 | 13005 | 6515
16 | 16 and 32 | 256 and 256 | 16 and 8 | 512 | 25570 | 12131
32 | 16 and 32 | 128 and 128 | 8 and 4 | 512 | 49663 | 21298

PaddlePaddle: Pre-training NVIDIA DGX A100 (8x A100 80GB) Multi-node Scaling
Nodes | Batch size / GPU | Accumulated batch size / GPU | Accumulation steps | Sequence length | Mixed precision throughput | TF32 throughput
1 | 126 and 256 | 8192 and 8192 | 64 and 32 | 128 | 5541 | 2428
2 | 126 and 256 | 4096 and 4096 | 32 and 16 | 128 | 10646 | 4638
4 | 126 and 256 | 2048 and 2048 | 16 and 8 | 128 | 21389 | 9445
8 | 126 and 256 | 1024 and 1024 | 8 and 4 | 128 | 41681 | 18335
16 | 126 and 256 | 512 and 512 | 4 and 2 | 128 | 79023 | 35526
32 | 126 and 256 | 256 and 256 | 2 and 1 | 128 | 157952 | 69701
1 | 16 and 32 | 4096 and 4096 | 256 and 128 | 512 | 2109 | 851
2 | 16 and 32 | 2048 and 2048 | 128 and 64 | 512 | 4051 | 1601
4 | 16 and 32 | 1024 and 1024 | 64 and 32 | 512 | 7972 | 3240
8 | 16 and 32 | 512 and 512 | 32 and 16 | 512 | 15760 | 6329
16 | 16 and 32 | 256 and 256 | 16 and 8 | 512 | 31129 | 12273
32 | 16 and 32 | 128 and 128 | 8 and 4 | 512 | 60206 | 24047

TensorFlow: Pre-training training performance: multi-node on DGX-2H 32GB
Nodes | Batch size / GPU | Gradient accumulation | Sequence length | Mixed precision throughput | FP32 throughput
1 | 64 , 32 | 64 , 128 | 128 | 3081.69 | 761.92
4 | 64 , 32 | 16 , 32 | 128 | 13192.00 | 3389.83
16 | 64 , 32 | 4 , 8 | 128 | 48223.00 | 13217.78
32 | 64 , 32 | 2 , 4 | 128 | 86673.64 | 25142.26
1 | 8 , 8 | 256 , 256 | 512 | 577.79 | 173.26
4 | 8 , 8 | 64 , 64 | 512 | 2284.23 | 765.04
16 | 8 , 8 | 16 , 16 | 512 | 8853.00 | 3001.43
32 | 8 , 8 | 8 , 8 | 512 | 17059.00 | 5893.14

TensorFlow: Pre-training training performance: multi-node on DGX A100 40GB
Nodes | Batch size / GPU | Gradient accumulation | Sequence length | Mixed precision throughput | TF32 throughput
1 | 64 , 64 | 128 , 128 | 128 | 2871.89 | 1889.71
4 | 64 , 64 | 32 , 32 | 128 | 11159 | 7532.00
16 | 64 , 64 | 8 , 8 | 128 | 41144 | 28605.62
32 | 64 , 64 | 4 , 4 | 128 | 77479.87 | 53585.82
1 | 16 , 8 | 256 , 512 | 512 | 572.112 | 316.51
4 | 16 , 8 | 128 , 128 | 512 | 2197.44 | 1268.43
16 | 16 , 8 | 32 , 32 | 512 | 8723.1 | 4903.39
32 | 16 , 8 | 16 , 16 | 512 | 16705 | 9463.80

TensorFlow2: Pre-training training performance: Multi-node on NVIDIA DGX-2H V100 (16x V100 32GB)
Nodes | Batch size / GPU | Gradient accumulation | Sequence length | Mixed precision throughput | FP32 throughput
1 | 60 , 32 | 64 , 128 | 128 | 3528.51 | 841.72
4 | 60 , 32 | 16 , 32 | 128 | 13370.21 | 3060.49
16 | 60 , 32 | 4 , 8 | 128 | 42697.42 | 10383.57
32 | 60 , 32 | 2 , 4 | 128 | 84223.16 | 20094.14
1 | 10 , 4 | 192 , 256 | 512 | 678.35 | 180
4 | 10 , 4 | 96 , 64 | 512 | 2678.29 | 646.76
16 | 10 , 4 | 24 , 32 | 512 | 7834.72 | 2204.72
32 | 10 , 4 | 6 , 16 | 512 | 18786.93 | 4196.15

TensorFlow2: Pre-training training performance: Multi-node on NVIDIA DGX A100 (8x A100 80GB)
Nodes | Batch size / GPU | Gradient accumulation | Sequence length | Mixed precision throughput | TF32 throughput
1 | 312 , 176 | 32 , 64 | 128 | 3803.82 | 2062.98
2 | 312 , 176 | 16 , 32 | 128 | 7551.37 | 4084.76
8 | 312 , 176 | 4 , 8 | 128 | 29711.11 | 16134.02
32 | 312 , 176 | 1 , 2 | 128 | 110280.73 | 59569.77
1 | 40 , 22 | 96 , 192 | 512 | 749.73 | 431.89
2 | 40 , 22 | 48 , 96 | 512 | 1491.87 | 739.14
8 | 40 , 22 | 12 , 24 | 512 | 5870.83 | 2926.58
32 | 40 , 22 | 3 , 6 | 512 | 22506.23 | 11240.5
"""


def numbers(cell):
    return [float(number) for number in re.findall(r"[0-9.]+", cell)]


def table(framework, heading):
    """The rows under a heading, one dictionary of lists of numbers for each, by column."""
    block = next(block for block in TABLES.strip().split("\n\n") if block.startswith(f"{framework}: {heading}\n"))
    cells = [line.split(" | ") for line in block.splitlines()[1:]]
    return [dict(zip(cells[0], map(numbers, row))) for row in cells[1:]]


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
            steps = [int(column(row, "accumulation")[place]) for row in chosen]
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
