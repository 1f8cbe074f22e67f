"""The figures of data_peers.sh, which calls this program."""
import argparse
import bz2
import glob
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

import google_examples

# Rough sizes in GB of the English Wikipedia's pages-articles dump, as bzip2 and as XML. dumps.wikimedia.org/enwiki/latest has
# the present size; one of its parts, as --dump, tells the ratio.
WIKIPEDIA_PACKED, WIKIPEDIA_XML = 25, 107
DUPE_FACTOR = 10
COPIES = 2, 12  # dupe factors of the two runs that are compared
# wikiextractor 3.0.6 has "(?i)" inside a pattern, which Python 3.11 and later refuse.
WIKIEXTRACTOR = """
import re, sys
compile = re.compile
def lenient(pattern, flags=0):
    if isinstance(pattern, str) and "(?i)" in pattern:
        pattern, flags = pattern.replace("(?i)", ""), flags | re.IGNORECASE
    return compile(pattern, flags)
re.compile = lenient
from wikiextractor.WikiExtractor import main
main()
"""


def processor_seconds(command, **streams):
    """Runs a command; user and system time of it and of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stderr=subprocess.PIPE, **streams)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command[:4]))} ... failed with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done


def files_bytes(directory):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(directory) for f in files)


class Table:
    def __init__(self):
        self.rows = []

    def add(self, part, unit, ours, peer, peer_name):
        self.rows.append({"part": part, "unit": unit, "bert": ours, "peer": peer, "peer_name": peer_name, "ratio": ours / peer})
        print(f"{part:<24} {ours:10.2f} {unit:<20} {peer_name} {peer:.3f}, {ours / peer:.1f} times slower", flush=True)


def wordpiece(arguments, lines, table):
    import tokenizers

    text = "\n".join(lines).encode()
    with tempfile.TemporaryDirectory() as place:
        name = os.path.join(place, "text")
        with open(name, "wb") as file:
            file.write(text)
        seconds = []
        for _ in range(3):
            with open(name, "rb") as file:
                used, _ = processor_seconds([arguments.bert, "tokenize", "--vocab", arguments.vocab], stdin=file, stdout=subprocess.DEVNULL)
            seconds.append(used)
    peer = tokenizers.BertWordPieceTokenizer(arguments.vocab, lowercase=True)
    some = lines[: max(1, len(lines) // 4)]
    begin = time.process_time()
    for line in some:
        peer.encode(line, add_special_tokens=False)
    peer_rate = len("\n".join(some).encode()) / 1e6 / (time.process_time() - begin)
    table.add("WordPiece", "MB/s per core", len(text) / 1e6 / min(seconds), peer_rate, "Hugging Face tokenizers")


def extraction(arguments, table, place):
    """MB of text, and its share of the XML."""
    packed = arguments.dump.endswith(".bz2")
    with (bz2.open if packed else open)(arguments.dump, "rb") as file:
        xml = sum(len(part) for part in iter(lambda: file.read(1 << 20), b""))
    ours = os.path.join(place, "ours")
    used, _ = processor_seconds([arguments.bert, "data", "extract", "wikipedia", arguments.dump, "--output", ours], stdout=subprocess.DEVNULL)
    theirs, _ = processor_seconds(
        [sys.executable, "-c", WIKIEXTRACTOR, arguments.dump, "--processes", "1", "--quiet", "--output", os.path.join(place, "theirs")],
        stdout=subprocess.DEVNULL)
    table.add("extraction, XML", "MB/s per core", xml / 1e6 / used, xml / 1e6 / theirs, "wikiextractor")
    return files_bytes(ours) / xml


def examples(arguments, lines, table, place):
    """Figures of the making of examples that extrapolate() needs."""
    name = os.path.join(place, "sentences")
    with open(name, "w") as file:
        file.write("\n".join(lines))
    options = {"max_seq_length": 128, "max_predictions_per_seq": 20, "masked_lm_prob": 0.15, "short_seq_prob": 0.1, "random_seed": 12345}
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    shard = os.path.join(place, "examples.shard")
    runs = []
    for copies in COPIES:
        used, done = processor_seconds([arguments.bert, "data", "create", "--input", name, "--vocab", arguments.vocab, "--output", shard,
                                        "--num-threads", "1", f"--dupe-factor={copies}", *flags], stdout=subprocess.PIPE)
        runs.append((used, json.loads(done.stdout)["examples"]))
    # The difference of two runs has no reading and no tokenizing in it: it begins with tokens, and ends with a file.
    (few_seconds, few), (many_seconds, many) = runs
    with open(arguments.vocab) as file:
        vocabulary = {line.rstrip("\n"): number for number, line in enumerate(file)}
    with open(name, "rb") as file:
        _, done = processor_seconds([arguments.bert, "tokenize", "--vocab", arguments.vocab, "--format", "tokens"], stdin=file, stdout=subprocess.PIPE)
    documents = [[]]
    for line in done.stdout.decode().split("\n"):
        if line:
            documents[-1].append(line.split(" "))
        elif documents[-1]:
            documents.append([])
    begin = time.process_time()
    made = google_examples.create(documents, vocabulary, {**options, "dupe_factor": COPIES[0]})
    peer = time.process_time() - begin
    if len(made) != few:
        sys.exit(f"bert made {few} examples, Google's algorithm {len(made)}: they must agree")
    table.add("examples from tokens", "thousand/s per core", (many - few) / 1e3 / (many_seconds - few_seconds), few / 1e3 / peer,
              "Google's algorithm in Python")
    megabytes = os.path.getsize(name) / 1e6
    per_copy = (many_seconds - few_seconds) / (COPIES[1] - COPIES[0]) / megabytes
    return {"read_seconds_per_mb": few_seconds / megabytes - COPIES[0] * per_copy, "copy_seconds_per_mb": per_copy,
            "shard_share": os.path.getsize(shard) / 1e6 / megabytes / COPIES[1]}


def loader(arguments, place):
    """Tokens a second of the loader, on the shard of examples()."""
    config = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/pretrain-phase1.json")
    done = subprocess.run([arguments.bert, "benchmark", "data", "--config", config, "--steps", "200", "--json",
                           f"data.train={json.dumps([os.path.join(place, 'examples.shard')])}", f"data.vocab_file={arguments.vocab}"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bert benchmark data failed: {done.stderr[-500:]}")
    rate = json.loads(done.stdout)["tokens_per_second"]
    print(f"{'loader':<24} {rate / 1e6:10.2f} million tokens/s", flush=True)
    return rate


def extrapolate(extracted, table, share, made):
    by_part = {row["part"]: row["bert"] for row in table.rows}
    text = WIKIPEDIA_XML * share
    extract = WIKIPEDIA_XML * 1e3 / by_part["extraction, XML"]
    per_mb = made["read_seconds_per_mb"] + DUPE_FACTOR * made["copy_seconds_per_mb"]
    create = text * 1e3 * per_mb
    print(f"\nThe full English Wikipedia: {WIKIPEDIA_PACKED} GB of bzip2, {WIKIPEDIA_XML} GB of XML. By the figures above, which were measured on a slice of "
          f"{extracted:.1f} MB:\n  text: {WIKIPEDIA_XML} GB * {share:.3f} = {text:.0f} GB\n"
          f"  extraction: {WIKIPEDIA_XML} GB / {by_part['extraction, XML']:.1f} MB/s = {extract / 3600:.1f} core hours\n"
          f"  examples, dupe factor {DUPE_FACTOR}: {text:.0f} GB * {per_mb:.3f} s/MB = {create / 3600:.1f} core hours\n"
          f"  disk: {WIKIPEDIA_PACKED} GB dump + {text:.0f} GB text + {text * made['shard_share'] * DUPE_FACTOR:.0f} GB shards "
          f"({made['shard_share']:.2f} bytes for a byte of text and copy)")
    for cores in (2, 16, 64):
        print(f"  on {cores} cores: {(extract + create) / 3600 / cores:.1f} hours, if the disk keeps up")
    return {"text_gb": text, "extract_core_hours": extract / 3600, "create_core_hours": create / 3600}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bert", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--dump")
    parser.add_argument("--text", action="append")
    parser.add_argument("--vocab")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    arguments.vocab = arguments.vocab or os.path.join(arguments.shared, "vocab/bert-base-uncased-vocab.txt")
    text = arguments.text or sorted(glob.glob(os.path.join(arguments.shared, "text/novels/*.txt")))
    missing = [name for name in [arguments.vocab, arguments.dump, *text] if name and not os.path.exists(name)]
    if missing or not text:
        sys.exit(f"missing: {', '.join(missing) or 'the novels in ' + arguments.shared + '; name text with --text'}")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    lines = []
    for name in text:
        with open(name, "rb") as file:
            _, done = processor_seconds([arguments.bert, "data", "split"], stdin=file, stdout=subprocess.PIPE)
        lines += done.stdout.decode().split("\n")
    table, report = Table(), {}
    with tempfile.TemporaryDirectory() as place:
        wordpiece(arguments, [line for line in lines if line], table)
        share = extraction(arguments, table, place) if arguments.dump else None
        made = examples(arguments, lines, table, place)
        report["loader_tokens_per_second"] = loader(arguments, place)
        if share:
            report["wikipedia"] = extrapolate(os.path.getsize(arguments.dump) / 1e6, table, share, made)
    report["rows"] = table.rows
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=2)


main()
