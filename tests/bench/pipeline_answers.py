"""The data of pipeline_answers.sh, which calls this program, and the comparison.

data writes small files for squad-v1, squad-v2 and ner. compare asks a pipeline of transformers and bert predict for the same texts. It
exits with 1 if an answer differs, or a score by more than 1e-4.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

TOLERANCE = 1e-4
LENGTH, QUERY, STRIDE, ANSWER = 64, 24, 16, 30  # max_seq_length, max_query_length, doc_stride and max_answer_length of the runs
PEOPLE = ["Anna Keller", "John Smith", "Mary Brown", "Peter", "Zoë Müller", "Ludwig van Beethoven", "Rosa O'Neill", "Ivan"]
PLACES = ["London", "New York", "Berlin", "South-Western Rhineland", "Paris", "Lake Geneva", "Rome"]
FIRMS = ["Acme Inc.", "General Electric", "Reuters", "the Royal Society", "AT&T"]
SENTENCES = ["{P} flew from {L} to {L} in the mid-1990s .", "{F} said on Monday that {P} had left {L} .",
             "\" We like {L} , \" said {P} of {F} .", "The office of {F} in {L} is closed .", "It rained , and nobody came .",
             "{P} met {P} and a friend in {L} , near {L} .", "Shares of {F} fell 3.5 % after {P} 's letter ."]


def write_squad(source, place):
    """Files of SQuAD with 100 questions about short contexts, and for SQuAD 2.0 a third of them with the context of another question."""
    with open(source, encoding="utf-8") as file:
        articles = json.load(file)["data"]
    paragraphs, left = [], 100
    for article in articles:
        for paragraph in article["paragraphs"]:
            if len(paragraph["context"]) <= 300 and left > 0:
                paragraphs.append({"context": paragraph["context"], "qas": paragraph["qas"][:left]})
                left -= len(paragraphs[-1]["qas"])
    without = []
    for number, paragraph in enumerate(paragraphs):
        qas = [{**question, "is_impossible": False} for question in paragraph["qas"]]
        for question in paragraphs[number - 1]["qas"][::3]:
            qas.append({"id": question["id"] + "x", "question": question["question"], "answers": [], "is_impossible": True})
        without.append({"context": paragraph["context"], "qas": qas})
    for version, content in (("v1.1", paragraphs), ("v2.0", without)):
        for split in ("train", "dev"):
            with open(os.path.join(place, f"{split}-{version}.json"), "w", encoding="utf-8") as file:
                json.dump({"version": version[1:], "data": [{"title": "short", "paragraphs": content}]}, file)


def write_conll(place):
    dice = random.Random(42)
    for split, count in (("train", 400), ("dev", 100)):
        with open(os.path.join(place, split + ".txt"), "w", encoding="utf-8") as file:
            for _ in range(count):
                for word in dice.choice(SENTENCES).split(" "):
                    names, label = {"{P}": (PEOPLE, "PER"), "{L}": (PLACES, "LOC"), "{F}": (FIRMS, "ORG")}.get(word, ([word], None))
                    for i, part in enumerate(dice.choice(names).split(" ")):
                        file.write(f"{part} {'O' if label is None else ('B-' if i == 0 else 'I-') + label}\n")
                file.write("\n")


class Comparison:
    """Counts answers that differ, and the largest difference of scores."""

    def __init__(self, name):
        self.name, self.answers, self.differ, self.scores, self.worst, self.shown = name, 0, 0, 0, 0.0, 5

    def add(self, ours, theirs, scores):
        """`scores`: pairs of numbers."""
        self.answers += 1
        if ours != theirs:
            self.differ += 1
            if self.differ <= self.shown:
                print(f"{self.name}: bert {ours!r}, transformers {theirs!r}")
        self.scores += len(scores)
        self.worst = max([self.worst] + [abs(a - b) for a, b in scores])

    def good(self):
        same = f"{self.name}: {self.answers} answers, {self.answers - self.differ} the same"
        print(same + (f"; scores differ by at most {self.worst:.1e}" if self.scores else ", scores not compared"), flush=True)
        return self.answers > 0 and self.differ == 0 and self.worst <= TOLERANCE


class Peers:
    """bert and transformers with the same fine-tuned model: WORK/NAME and WORK/NAME-model."""

    def __init__(self, given, name, task):
        from transformers import pipeline

        self.bert, self.run, self.task = given.bert, os.path.join(given.work, name), task
        self.pipeline = pipeline(task, model=self.run + "-model", device="cpu")
        self.comparison = Comparison(name)

    def predict(self, records, *options):
        """The answers of bert predict to JSON lines with the field text and perhaps second."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
            file.flush()
            pair = ["--pair-field", "second"] if "second" in records[0] else []
            done = subprocess.run([self.bert, "predict", "--checkpoint", self.run, "--task", self.task, "--input", file.name,
                                   "--text-field", "text", *pair, *options], stdout=subprocess.PIPE)
        if done.returncode:
            sys.exit(f"bert predict failed with {done.returncode}; its message is above")
        return [json.loads(line) for line in done.stdout.decode().splitlines()]

    def tokens(self, text):
        return len(self.pipeline.tokenizer.tokenize(text))


def classify(given, name, rows):
    """Every label and score. Pairs must fit: fast tokenizers truncate another token than Google's programs and bert."""
    peers = Peers(given, name, "text-classification")
    if len(rows[0]) == 2:
        rows = [row for row in rows if peers.tokens(row[0]) + peers.tokens(row[1]) <= LENGTH - 3]
    records = [dict(zip(("text", "second"), row)) for row in rows]
    asked = [row[0] if len(row) == 1 else {"text": row[0], "text_pair": row[1]} for row in rows]
    for ours, theirs in zip(peers.predict(records, "--top-k", "9"),
                            peers.pipeline(asked, top_k=None, truncation=True, max_length=LENGTH)):
        mine, other = ({one["label"]: one["score"] for one in side} for side in (ours["labels"], theirs))
        peers.comparison.add(list(mine), list(other), [(mine[label], other.get(label, -1)) for label in mine])
    return peers.comparison.good()


def tag(given):
    """The label of every word, which is that of its first token."""
    peers = Peers(given, "ner", "token-classification")
    with open(os.path.join(given.work, "data", "dev.txt"), encoding="utf-8") as file:
        sentences = [" ".join(line.split(" ")[0] for line in block.split("\n")) for block in file.read().strip().split("\n\n")]
    found = peers.pipeline(sentences, aggregation_strategy="none", ignore_labels=[])
    for sentence, ours, theirs in zip(sentences, peers.predict([{"text": sentence} for sentence in sentences]), found):
        of_place = {one["start"]: one for one in theirs}
        first = [of_place[word["start"]] for word in ours["words"]]
        peers.comparison.add([word["label"] for word in ours["words"]], [token["entity"] for token in first],
                             [(word["score"], float(token["score"])) for word, token in zip(ours["words"], first)])
    return peers.comparison.good()


def questions_of(path, every=1):
    """The questions of a file of SQuAD with their contexts; the first question alone of every so many paragraphs if `every` is above 1."""
    with open(path, encoding="utf-8") as file:
        paragraphs = [paragraph for article in json.load(file)["data"] for paragraph in article["paragraphs"]][::every]
    count = 1 if every > 1 else None
    return [(paragraph["context"], question["question"]) for paragraph in paragraphs for question in paragraph["qas"][:count]]


def same_scale(ours, theirs, context):
    """Scores of the answers that both lists have, each as a share of its list's sum. bert's score is the probability among the n best, as
    in Google's predictions; the pipeline's is that of the begin times that of the end. In one window both are exp(begin + end) up to a
    factor. An answer that stands twice in the context is left out: the pipeline adds its scores, Google takes the better one."""
    sides = [{(one["start"], one["end"]): one["score"] for one in side} for side in (ours, theirs)]
    once = lambda key: key == (0, 0) or context.lower().count(context[key[0]:key[1]].lower()) == 1
    common = [key for key in sides[0] if key in sides[1] and once(key)]
    sums = [sum(side[key] for key in common) for side in sides]
    return [(sides[0][key] / sums[0], sides[1][key] / sums[1]) for key in common]


def placed(context, text, start, end):
    """An answer with the numbers of its first and last word. Google's programs and bert join words by one space, and take the first place
    of equal texts in a word: the first 7 of 77."""
    return " ".join(text.split()), len(context[:start + 1].split()), len(context[:end].split())


def fitting(context, question, tokens):
    """The first words of the context, as many as fit into one window."""
    words = context.split(" ")
    while tokens(question) + tokens(" ".join(words)) > LENGTH - 3:
        words.pop()
    return " ".join(words)


def best_of_windows(peers, context, question, room):
    """The best answer as Google's run_squad.py chooses between windows: the largest sum of the two logits, from begins that have the most
    context around them in their window. The pipeline compares probabilities, of which each window has its own sum, and takes any begin."""
    import torch

    batch = peers.pipeline.tokenizer(question, context, truncation="only_second", max_length=LENGTH, stride=max(0, room - STRIDE),
                                     return_overflowing_tokens=True, return_offsets_mapping=True)
    windows, most = [], {}
    for number in range(len(batch["input_ids"])):
        encoding = batch[number]
        places = [i for i, part in enumerate(encoding.sequence_ids) if part == 1]
        with torch.no_grad():
            output = peers.pipeline.model(**{name: torch.tensor([getattr(encoding, other)]) for name, other in
                                             (("input_ids", "ids"), ("token_type_ids", "type_ids"), ("attention_mask", "attention_mask"))})
        windows.append((encoding.offsets, set(places), output.start_logits[0], output.end_logits[0]))
        for i in places:  # the first window with the highest score counts
            score = min(i - places[0], places[-1] - i) + 0.01 * len(places)
            most[encoding.offsets[i]] = max(most.get(encoding.offsets[i], (-1, 0)), (score, -number))
    best = (float("-inf"),)
    for number, (offsets, places, starts, ends) in enumerate(windows):
        for i in starts.topk(min(20, len(starts))).indices.tolist():
            for j in ends.topk(min(20, len(ends))).indices.tolist():
                if {i, j} <= places and i <= j < i + ANSWER and -most[offsets[i]][1] == number:
                    best = max(best, (float(starts[i] + ends[j]), -number, -i, offsets[i][0], offsets[j][1]))
    return placed(context, context[best[3]:best[4]], best[3], best[4])


def ask(given, name, questions, kind):
    """Best answers. The kinds:
    "one window"       contexts are cut to one window; scores are compared
    "unknown tokens"   the same with contexts that have an [UNK], where Google's programs and bert take whole words, the pipeline tokens
    "several windows"  whole contexts, see best_of_windows()
    """
    peers = Peers(given, name, "question-answering")
    peers.comparison.name = f"{name}, {kind}"
    asked = [(c if kind == "several windows" else fitting(c, q, peers.tokens), q) for c, q in questions if peers.tokens(q) <= QUERY]
    asked = [(c, q) for c, q in asked if ("[UNK]" in peers.pipeline.tokenizer.tokenize(c)) == (kind == "unknown tokens")]
    alike = 0
    for (context, question), ours in zip(asked, peers.predict([{"text": c, "second": q} for c, q in asked], "--top-k", "20")):
        room = LENGTH - 3 - peers.tokens(question)  # the pipeline's doc_stride is the overlap of windows, Google's the step
        theirs = peers.pipeline(question=question, context=context, top_k=20, max_seq_len=LENGTH, doc_stride=max(0, room - STRIDE),
                                max_question_len=QUERY, max_answer_len=ANSWER, handle_impossible_answer=name == "squad-v2",
                                align_to_words=False)
        best = [placed(context, one["answer"], one["start"], one["end"]) for one in (ours["answers"][0], theirs[0])]
        if kind == "several windows":
            alike += best[0] == best[1]
            peers.comparison.add(best[0], best_of_windows(peers, context, question, room), [])
        else:
            peers.comparison.add(best[0], best[1], same_scale(ours["answers"], theirs, context) if kind == "one window" else [])
    good = peers.comparison.good()
    if kind == "several windows":
        print(f"{peers.comparison.name}: {alike} of them are those of the pipeline, which chooses otherwise between windows", flush=True)
    return good


def compare(given):
    def rows(task, columns):
        with open(os.path.join(given.glue, task, "dev.tsv"), encoding="utf-8-sig", newline="\n") as file:
            lines = [line.rstrip("\r\n").split("\t") for line in file][1:]
        return [[line[i] for i in columns] for line in lines]

    seen = {version: questions_of(os.path.join(given.work, "data", f"dev-{version}.json")) for version in ("v1.1", "v2.0")}
    others = questions_of(given.squad, every=4)
    good = [classify(given, "sst2", rows("SST-2", [0])), classify(given, "mrpc", rows("MRPC", [3, 4])), tag(given),
            ask(given, "squad-v1", seen["v1.1"] + others, "one window"), ask(given, "squad-v2", seen["v2.0"] + others, "one window"),
            ask(given, "squad-v1", seen["v1.1"] + others, "several windows")]
    ask(given, "squad-v1", seen["v1.1"] + others, "unknown tokens")  # not part of the verdict
    return 0 if all(good) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    data = verbs.add_parser("data")
    data.add_argument("squad", help="dev-v1.1.json")
    data.add_argument("place")
    both = verbs.add_parser("compare")
    both.add_argument("--bert", required=True)
    both.add_argument("--glue", required=True)
    both.add_argument("--squad", required=True)
    both.add_argument("work")
    given = parser.parse_args()
    if given.verb == "compare":
        sys.exit(compare(given))
    write_squad(given.squad, given.place)
    write_conll(given.place)


main()
