"""Writes task_features.json: the features and predictions of Google's run_classifier.py and run_squad.py for examples written by hand.

Needs the packages bert-tensorflow 1.0.4 (without its dependencies: pip install --no-deps), six and absl-py (written with six 1.17.0, absl-py 2.5.1):
python3 tests/golden/task_features.py > tests/golden/task_features.json
The package's own functions make every value: MrpcProcessor and convert_single_example, read_squad_examples, convert_examples_to_features and
write_predictions. TensorFlow is not needed: these functions use it to open files and to log, and a stand-in does both here.
With arguments the script instead writes what Google's functions make of real files, one JSON line each; tests/tasks/features_test.cc has the
sha256sum of both:
  python3 tests/golden/task_features.py mrpc VOCAB TRAIN.tsv | sha256sum
  python3 tests/golden/task_features.py squad VOCAB DEV.json | sha256sum
"""
import collections
import json
import os
import random
import sys
import tempfile
import types
from unittest import mock

stand_in = mock.MagicMock()
stand_in.gfile.Open = stand_in.gfile.GFile = lambda path, mode="r": open(path, mode, encoding=None if "b" in mode else "utf-8", newline="")
for name in ("tensorflow", "tensorflow.compat", "tensorflow.compat.v1", "tensorflow.contrib", "bert.modeling", "bert.optimization"):
    sys.modules[name] = stand_in
stand_in.compat = stand_in.v1 = stand_in
from absl import flags  # noqa: E402
from bert import run_classifier, run_squad, tokenization  # noqa: E402

flags.FLAGS(["task_features"])

WORDS = ("the quick brown fox jump ##s ##ed over lazy dog who what when is was in ##t ##n't town new york city steve smith said that company "
         "##'s born 19 ##90 ##91 of and to a caf ##e ##es 1 2 3 million dollars ! ? . , ' \" ( ) - $ % & / : ; un ##known").split()
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(dict.fromkeys(WORDS + list(LETTERS) + ["##" + c for c in LETTERS]))

MRPC = [
    ("1", "The quick brown fox jumped over the lazy dog .", "Over the lazy dog the quick fox jumps ."),
    ("0", 'He said " no , "that" is not it', '"Quoted" text 5 \' tall'),
    ("1", "Café Ünïcode ΑΣ naïve", "東京 is a city"),
    ("0", "a", "b"),
    ("0", "a b c d e f g h i j k l m n o p q r s t u v w x y z", "the dog"),
    ("1", "the dog", "a b c d e f g h i j k l m n o p q r s t u v w x y z"),
    ("0", "a b c d e f g h i j k l m", "m l k j i h g f e d c b a"),
    ("1", "a b c d e f g h i j k l m n", "m l k j i h g f e d c b a"),
    ("0", "trailing spaces   ", "  leading\u00a0space"),
    ("1", "a" * 230 + " end", "\u200bzero\u00adwidth"),
]


def answer(context, text, start=None):
    return {"text": text, "answer_start": context.index(text) if start is None else start}


CONTEXTS = [
    "Steve Smith's company was born in New York City in 1990-1991. It said that the lazy dog jumped over 3 million dollars!",
    "The café (was) \"known\" for 1,000 quick foxes; the   city\tof\nNew York\u202fhad 100% of them.",
    "东京 is the city of İstanbul? No: Straße ΑΣ was naïve, e\u0301 accents\u00a0here. $5 & 10%",
    "unknown ☃☃ words " + "x" * 210 + " and the end of it",
    " leading space, and the fox",
]
QUESTIONS = [
    (0, "q1", "Who was born in New York City?", ["Steve Smith"], False),
    (0, "q2", "When was the company of Steve Smith said to be born in that new new new york city town over there?", ["1990"], False),
    (0, "q3", "What is 3 million?", ["3 million dollars"], False),
    (0, "q4", "Who said that?", [], True),
    (1, "q5", "How many foxes?", ["1,000 quick foxes"], False),
    (1, "q6", "Which café?", ["caf\u00e9"], False),
    (1, "q7", "Percent?", ["100%"], False),
    (1, "q8", "City of?", ["New York\u202fhad"], False),
    (1, "q9", "Where?", ["city\tof\nNew"], False),
    (2, "q10", "Where is it?", ["东京"], False),
    (2, "q11", "Was it naïve?", ["naïve"], False),
    (2, "q12", "accents?", ["accents\u00a0here"], False),
    (2, "q13", "", ["$5"], False),
    (3, "q14", "unknown?", ["☃☃ words"], False),
    (3, "q15", "end?", ["end"], False),
    (3, "q16", "nothing?", [], True),
    (4, "q17", "fox?", ["fox"], False),
    (0, "q18", "part of a word?", ["99"], False),
]
SETTINGS = [dict(max_seq_length=64, doc_stride=16, max_query_length=24), dict(max_seq_length=24, doc_stride=5, max_query_length=8),
            dict(max_seq_length=384, doc_stride=128, max_query_length=64), dict(max_seq_length=40, doc_stride=100, max_query_length=12)]


def dataset(v2):
    paragraphs = [{"context": context, "qas": []} for context in CONTEXTS]
    for number, qid, question, answers, impossible in QUESTIONS:
        if impossible and not v2:
            continue
        qa = {"id": qid, "question": question, "answers": [answer(CONTEXTS[number], text) for text in answers]}
        if v2:
            qa["is_impossible"] = impossible
        paragraphs[number]["qas"].append(qa)
    return {"version": "2.0" if v2 else "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def squad_features(tokenizer, path, settings, training):
    examples = run_squad.read_squad_examples(path, training)
    features = []
    run_squad.convert_examples_to_features(examples, tokenizer, is_training=training, output_fn=features.append, **settings)
    return examples, features


def without_padding(feature):
    length = sum(feature.input_mask)
    return feature.input_ids[:length], feature.segment_ids[:length]


def training_row(feature, examples):
    return [examples[feature.example_index].qas_id, sum(feature.input_mask), feature.start_position, feature.end_position]


def evaluation_row(feature, examples):
    ids, segments = without_padding(feature)
    return [examples[feature.example_index].qas_id, ids, segments, list(feature.token_to_orig_map.values()),
            "".join(str(int(x)) for x in feature.token_is_max_context.values())]


def predictions(examples, features, v2, lower, seed, n_best_size, max_answer_length, threshold):
    """Logits are multiples of 1/8, so that there are ties: randrange(-40, 40) / 8 of random.Random(seed), start and end of each token."""
    numbers = random.Random(seed)
    results = []
    Result = collections.namedtuple("RawResult", ["unique_id", "start_logits", "end_logits"])
    for number, feature in enumerate(features):
        feature.unique_id = number
        length = sum(feature.input_mask)
        pairs = [[numbers.randrange(-40, 40) / 8, numbers.randrange(-40, 40) / 8] for _ in range(length)]
        pad = [-1e4] * (len(feature.input_mask) - length)
        results.append(Result(number, [p[0] for p in pairs] + pad, [p[1] for p in pairs] + pad))
    run_squad.FLAGS = types.SimpleNamespace(version_2_with_negative=v2, null_score_diff_threshold=threshold, verbose_logging=False)
    with tempfile.TemporaryDirectory() as directory:
        paths = [os.path.join(directory, name) for name in ("predictions.json", "nbest_predictions.json", "null_odds.json")]
        run_squad.write_predictions(examples, features, results, n_best_size, max_answer_length, lower, *paths)
        files = [json.load(open(path)) if os.path.exists(path) else None for path in paths]
    return {"seed": seed, "n_best_size": n_best_size, "max_answer_length": max_answer_length, "threshold": threshold,
            "predictions": files[0], "null_odds": files[2],
            "nbest": {key: [[x["text"], x["start_logit"], x["end_logit"], round(x["probability"], 12)] for x in value[:6]]
                      for key, value in files[1].items()}, "nbest_sizes": [len(value) for value in files[1].values()]}


FINAL_TEXTS = [
    ("steve smith", "Steve Smith's"), ("1990", "1990-1991."), ("café", "Café"), ("cafe", "Café,"), ("new york", "(New York)"),
    ("e accents", "e\u0301 accents\u00a0here."), ("istanbul", "İstanbul?"), ("missing", "Nothing here"), ("straße", "Straße"),
    ("ας", "ΑΣ"), ("$ 5", "$5"), ("100 %", "100%"), ("a - b", "a-b c"), ("", "original"), ("the", "The the"), ("东", "东京"), ("[UNK]", "☃"),
]


def main():
    with tempfile.TemporaryDirectory() as directory:
        vocabulary = os.path.join(directory, "vocab.txt")
        with open(vocabulary, "w", encoding="utf-8") as file:
            file.write("\n".join(VOCABULARY) + "\n")
        golden = {"vocabulary": VOCABULARY, "mrpc": [], "squad": [], "final_texts": []}
        header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        tsv = "\ufeff" + header + "".join(f"{label}\t{i}\t{i}\t{a}\t{b}\n" for i, (label, a, b) in enumerate(MRPC))
        with open(os.path.join(directory, "train.tsv"), "w", encoding="utf-8", newline="") as file:
            file.write(tsv)
        processor = run_classifier.MrpcProcessor()
        for lower in (True, False):
            tokenizer = tokenization.FullTokenizer(vocabulary, lower)
            for length in (128, 24, 8):
                rows = []
                for example in processor.get_train_examples(directory):
                    feature = run_classifier.convert_single_example(9, example, processor.get_labels(), length, tokenizer)
                    rows.append(list(without_padding(feature)) + [feature.label_id])
                golden["mrpc"].append({"do_lower_case": lower, "max_seq_length": length, "rows": rows})
        golden["mrpc_file"] = tsv
        for v2 in (False, True):
            path = os.path.join(directory, "squad.json")
            json.dump(dataset(v2), open(path, "w", encoding="utf-8"))
            run_squad.FLAGS = types.SimpleNamespace(version_2_with_negative=v2)
            group = {"v2": v2, "file": dataset(v2), "cases": []}
            for number, settings in enumerate(SETTINGS):
                lower = number != 2
                tokenizer = tokenization.FullTokenizer(vocabulary, lower)
                run_squad.FLAGS = types.SimpleNamespace(version_2_with_negative=v2)
                examples, features = squad_features(tokenizer, path, settings, True)
                case = dict(settings, do_lower_case=lower, training=[training_row(f, examples) for f in features])
                examples, features = squad_features(tokenizer, path, settings, False)
                case["evaluation"] = [evaluation_row(f, examples) for f in features]
                case["predictions"] = [predictions(examples, features, v2, lower, 10 * number + i, n_best, length, threshold)
                                       for i, (n_best, length, threshold) in enumerate(((20, 30, 0.0), (5, 12, -1.5)))]
                group["cases"].append(case)
            golden["squad"].append(group)
        run_squad.FLAGS = types.SimpleNamespace(verbose_logging=False)
        for text, original in FINAL_TEXTS:
            golden["final_texts"].append([text, original, run_squad.get_final_text(text, original, True),
                                          run_squad.get_final_text(text, original, False)])
        json.dump(golden, sys.stdout, ensure_ascii=True, separators=(",", ":"))
        print()


def real(kind, vocabulary, path):
    """Features of a real file: ids, segments and labels of each sequence, as one JSON line."""
    tokenizer = tokenization.FullTokenizer(vocabulary, True)
    if kind == "mrpc":
        processor = run_classifier.MrpcProcessor()
        for example in processor._create_examples(processor._read_tsv(path), "train"):
            feature = run_classifier.convert_single_example(9, example, processor.get_labels(), 128, tokenizer)
            ids, segments = without_padding(feature)
            print(json.dumps([ids, segments, feature.label_id], separators=(",", ":")))
        return
    run_squad.FLAGS = types.SimpleNamespace(version_2_with_negative=False)
    data = json.load(open(path, encoding="utf-8"))
    for article in data["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                del qa["answers"][1:]  # read_squad_examples wants one
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(data, file)
        file.flush()
        _, features = squad_features(tokenizer, file.name, dict(max_seq_length=384, doc_stride=128, max_query_length=64), True)
    for feature in features:
        ids, segments = without_padding(feature)
        print(json.dumps([ids, segments, feature.start_position, feature.end_position], separators=(",", ":")))


if len(sys.argv) > 1:
    real(*sys.argv[1:])
else:
    main()
