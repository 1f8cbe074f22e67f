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
# The temporary tokens of `bert data create`, in bytes for a byte of text: 2 bytes a token of 4.4 letters in the mean.
TOKEN_BYTES = 0.5
SHARD_TEXT = 64_000_000  # bytes of text of a shard (kShardTextBytes in data/creation/example_directory.h)
PROCESS_MEMORY = 100  # MB beside the files in the making (kProcessMemory there)
SCRATCH_BYTES, SCRATCH_MASK_BYTES = 10, 1.3 * 20  # of an example on the disk, and of its masks (data/examples/packed_examples.h)
EXAMPLES_PER_BYTE = 1 / 330  # of text and copy, of 128 tokens (examples_of() in data/creation/needs.cc)
CORES, MEMORIES = (2, 16, 64), (2000, 8000)  # MB, of --memory
SERIAL_BYTES = 64 << 20  # of XML that serial_rate() times
# One article for serial_rate(): a dump without any is an error.
ARTICLE = (b"<page><title>A</title><ns>0</ns><id>1</id><revision><id>1</id><model>wikitext</model>"
           b"<text>An article of some words.</text></revision></page>")
COPIES = 2  # dupe factor of the examples that Google's algorithm makes, too
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


class Table:
    def __init__(self):
        self.rows = []

    def add(self, part, unit, ours, peer, peer_name, asked):
        ratio = ours / peer if peer else None
        self.rows.append({"part": part, "unit": unit, "bert": ours, "peer": peer, "peer_name": peer_name, "ratio": ratio, "asked": asked})
        beside = f"{peer_name} {peer:.3f}, {ratio:.1f} times slower" if peer else ""
        print(f"{part:<22} {ours:9.2f} {unit:<22} {asked:<24} {beside}", flush=True)


def measure(arguments, text):
    """The report of bert benchmark data."""
    command = [arguments.bert, "benchmark", "data", "--json", "--vocab", arguments.vocab, "--input", *text]
    done = subprocess.run(command + (["--dump", arguments.dump] if arguments.dump else []), stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"bert benchmark data failed with {done.returncode}; its message is above")
    return json.loads(done.stdout.decode().strip().split("\n")[-1])


def wordpiece_peer(arguments, lines):
    import tokenizers

    peer = tokenizers.BertWordPieceTokenizer(arguments.vocab, lowercase=True)
    some = [line for line in lines if line]
    some = some[: max(1, len(some) // 4)]
    begin = time.process_time()
    for line in some:
        peer.encode(line, add_special_tokens=False)
    return len("\n".join(some).encode()) / 1e6 / (time.process_time() - begin)


def extraction_peer(arguments, xml_bytes):
    with tempfile.TemporaryDirectory() as place:
        seconds, _ = processor_seconds(
            [sys.executable, "-c", WIKIEXTRACTOR, arguments.dump, "--processes", "1", "--quiet", "--output", place],
            stdout=subprocess.DEVNULL)
    return xml_bytes / 1e6 / seconds


def serial_rate(arguments, place):
    """MB of XML a second of the part of extraction that one thread does: that of a dump of talk pages, which nobody converts."""
    packed = arguments.dump.endswith(".bz2")
    with (bz2.open if packed else open)(arguments.dump, "rb") as file:
        xml = file.read(SERIAL_BYTES)
    xml = xml[: xml.rindex(b"</page>") + len(b"</page>")]
    begin = xml.index(b"<page>")
    pages = xml[begin:] * max(1, SERIAL_BYTES // len(xml))
    name = os.path.join(place, "talk.xml")
    with open(name, "wb") as file:
        file.write(xml[:begin] + ARTICLE + pages.replace(b"<ns>0</ns>", b"<ns>1</ns>") + b"</mediawiki>")
    rates = []
    for attempt in range(3):
        seconds, done = processor_seconds([arguments.bert, "data", "extract", "wikipedia", name, "--output", os.path.join(place, f"talk{attempt}"),
                                           "--num-threads", "1", "--min-characters", "0"], stdout=subprocess.PIPE)
        rates.append(json.loads(done.stdout)["read"]["xml_bytes"] / 1e6 / seconds)
    return max(rates)


def reading_rate(arguments, text, place):
    """MB of text a second that one thread reads and deals in the first pass of `bert data create`: that of a rank to which no chunk belongs.
    It is stopped when it waits for the tokens of the other ranks."""
    megabytes = 0
    name = os.path.join(place, "text")
    with open(name, "wb") as out:
        while megabytes < 200:
            for one in text:
                with open(one, "rb") as file:
                    megabytes += out.write(file.read()) / 1e6
    ranks = {"RANK": "9999", "WORLD_SIZE": "10000", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    reader = subprocess.Popen([arguments.bert, "data", "create", "--split-sentences", "--input", name, "--vocab", arguments.vocab, "--output",
                               os.path.join(place, "read") + "/"], stderr=subprocess.PIPE, env={**os.environ, **ranks}, text=True)
    said = next((line for line in reader.stderr if "waiting for the text" in line), None)
    reader.kill()
    reader.wait()
    if said is None:
        sys.exit("bert data create as one of many ranks did not come to wait for the others")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return megabytes / (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def vocabulary_rate(arguments, text, place):
    """MB of text a second whose words `bert vocab` counts, on one thread; few tokens are learnt of them."""
    seconds, _ = processor_seconds([arguments.bert, "vocab", "--input", *text, "--size", "100", "--allow-fewer", "--allow-fewer-characters",
                                    "--output", os.path.join(place, "vocab.txt")], stdout=subprocess.DEVNULL)
    return sum(map(os.path.getsize, text)) / 1e6 / seconds


def memory_of_file(arguments, copies, place):
    """MB that a file in the making takes whose examples are on the disk: what `bert data create` says when it has too little."""
    name = os.path.join(place, "sparse")
    with open(name, "wb") as file:
        file.truncate(100 * SHARD_TEXT)
    done = subprocess.run([arguments.bert, "data", "create", "--split-sentences", "--input", name, "--vocab", arguments.vocab, "--output",
                           os.path.join(place, "refused") + "/", "--dupe-factor", str(copies), "--memory", "1", "--masking", "none" if copies == 1 else "static"],
                          stderr=subprocess.PIPE, text=True)
    found = re.search(r"takes (\d+) MB of memory", done.stderr)
    if not found:
        sys.exit(f"bert data create --memory 1 does not say what a file takes: {done.stderr[-500:]}")
    return int(found[1]) - PROCESS_MEMORY


def examples_peer(arguments, lines):
    """Examples a second of Google's algorithm, which must make as many as bert."""
    options = {"max_seq_length": 128, "max_predictions_per_seq": 20, "masked_lm_prob": 0.15, "short_seq_prob": 0.1, "random_seed": 12345,
               "dupe_factor": COPIES}
    with tempfile.TemporaryDirectory() as place:
        name = os.path.join(place, "sentences")
        with open(name, "w") as file:
            file.write("\n".join(lines))
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        _, done = processor_seconds([arguments.bert, "data", "create", "--input", name, "--vocab", arguments.vocab, "--output",
                                     os.path.join(place, "examples.shard"), *flags], stdout=subprocess.PIPE)
        wanted = json.loads(done.stdout)["examples"]
        with open(name, "rb") as file:
            _, done = processor_seconds([arguments.bert, "tokenize", "--vocab", arguments.vocab, "--format", "tokens"], stdin=file,
                                        stdout=subprocess.PIPE)
    with open(arguments.vocab) as file:
        vocabulary = {line.rstrip("\n"): number for number, line in enumerate(file)}
    documents = [[]]
    for line in done.stdout.decode().split("\n"):
        if line:
            documents[-1].append(line.split(" "))
        elif documents[-1]:
            documents.append([])
    begin = time.process_time()
    made = google_examples.create(documents, vocabulary, options)
    seconds = time.process_time() - begin
    if len(made) != wanted:
        sys.exit(f"bert made {wanted} examples, Google's algorithm {len(made)}: they must agree")
    return len(made) / seconds


def extrapolate(arguments, report, text_files, place):
    """Hours, memory and disk of the full English Wikipedia, from the slice that was measured."""
    extraction, examples = report["extraction"], report["examples"]
    share = extraction["text_bytes"] / extraction["xml_bytes"]
    rate, parsing = extraction["megabytes_per_second_per_core"], serial_rate(arguments, place)
    reading, counting = reading_rate(arguments, text_files, place), vocabulary_rate(arguments, text_files, place)
    text = WIKIPEDIA_XML * share
    hours = lambda gigabytes, megabytes_per_second: gigabytes * 1e3 / megabytes_per_second / 3600
    extract, least, read = hours(WIKIPEDIA_XML, rate), hours(WIKIPEDIA_XML, parsing), hours(text, reading)
    vocab = hours(text, counting)
    result = {"slice_mb": os.path.getsize(arguments.dump) / 1e6, "text_gb": text, "extract_core_hours": extract, "extract_least_hours": least,
              "read_least_hours": read, "vocabulary_hours": vocab, "runs": []}
    print(f"\nThe full English Wikipedia: {WIKIPEDIA_PACKED} GB of bzip2, {WIKIPEDIA_XML} GB of XML. By the figures above, which were measured on a "
          f"slice of {result['slice_mb']:.1f} MB:\n  text: {WIKIPEDIA_XML} GB * {share:.3f} = {text:.1f} GB\n"
          f"  extraction: {WIKIPEDIA_XML} GB / {rate:.1f} MB/s = {extract:.2f} core hours; one thread parses the XML, so at least "
          f"{WIKIPEDIA_XML} GB / {parsing:.0f} MB/s = {least:.2f} hours\n"
          f"  bert vocab, one thread: {text:.1f} GB / {counting:.1f} MB/s = {vocab:.2f} hours, and the learning from 2 million words")
    for name, copies in (("static masks, dupe factor 10", 10), ("masks drawn in training, dupe factor 1", 1)):
        first = hours(text, 1 / examples["seconds_per_megabyte_read"])
        second = hours(text, 1 / (copies * examples["seconds_per_megabyte_and_copy"]))
        of_file = memory_of_file(arguments, copies, place)
        shards = text * examples["shard_bytes_per_byte_and_copy"] * copies
        run = {"dupe_factor": copies, "first_pass_core_hours": first, "second_pass_core_hours": second, "file_mb": of_file, "shards_gb": shards,
               "hours": []}
        print(f"  {name}:\n    first pass: {first:.2f} core hours; one thread reads the text, so at least {text:.1f} GB / {reading:.0f} MB/s = "
              f"{read:.2f} hours\n    second pass: {second:.2f} core hours; a file takes {of_file} MB of memory")
        for memory in MEMORIES:
            for cores in CORES:
                files = min(cores, (memory - PROCESS_MEMORY) // of_file)
                total = max(extract / cores, least) + max(first / cores, read) + second / files
                scratch = files * SHARD_TEXT * copies * EXAMPLES_PER_BYTE * (SCRATCH_BYTES + (copies > 1) * SCRATCH_MASK_BYTES) / 1e9
                disk = WIKIPEDIA_PACKED + text + text * TOKEN_BYTES + scratch + shards
                run["hours"].append({"cores": cores, "memory": memory, "files": files, "hours": total, "scratch_gb": scratch, "disk_gb": disk})
                print(f"    {cores} cores, --memory {memory}: {files} files at once, {total:.2f} hours, if the disk keeps up; disk: "
                      f"{WIKIPEDIA_PACKED} GB dump + {text:.1f} GB text + {text * TOKEN_BYTES:.0f} GB tokens and {scratch:.1f} GB examples while it "
                      f"runs + {shards:.0f} GB shards = {disk:.0f} GB")
        result["runs"].append(run)
    return result


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
    report = measure(arguments, text)
    table = Table()
    table.add("WordPiece", "MB/s per core", report["wordpiece"]["megabytes_per_second_per_core"], wordpiece_peer(arguments, lines),
              "Hugging Face tokenizers", "asked: 25")
    if arguments.dump:
        table.add("extraction, XML", "MB/s per core", report["extraction"]["megabytes_per_second_per_core"],
                  extraction_peer(arguments, report["extraction"]["xml_bytes"]), "wikiextractor", "asked: 8, or twice")
    table.add("examples from tokens", "thousand/s per core", report["examples"]["examples_per_second_per_core"] / 1e3,
              examples_peer(arguments, lines) / 1e3, "Google's algorithm in Python", "asked: 20 times")
    table.add("loader, masks drawn", "million tokens/s, core", report["tokens_per_second_per_core"] / 1e6, None, None, "asked: 2.5")
    table.add("waiting for the loader", "% of the step", 100 * report["data_wait_share"], None, None, "asked: below 0.5")
    report["rows"] = table.rows
    if arguments.dump:
        with tempfile.TemporaryDirectory() as place:
            report["wikipedia"] = extrapolate(arguments, report, text, place)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=2)


main()
