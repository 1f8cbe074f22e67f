"""Writes pretraining_data.json: examples from a small text, made by a plain Python version of BERT's create_pretraining_data.

Needs only CPython (3.11.7 wrote the committed file): python3 pretraining_data.py > pretraining_data.json
"""
import json
import random

SYLLABLES = "ka lo mi ne pu ra so ti ve zu".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = SPECIAL + SYLLABLES + ["##" + s for s in SYLLABLES] + [a + b for a in SYLLABLES[:5] for b in SYLLABLES[5:]] + [".", ","]


def make_text(rng, documents):
    lines = []
    for _ in range(documents):
        for _ in range(rng.choice([1, 1, 2, 3, 5, 8, 13])):
            words = ["".join(rng.choice(SYLLABLES) for _ in range(rng.choice([1, 1, 2, 2, 3, 4]))) for _ in range(rng.randrange(1, 15))]
            if rng.random() < 0.1:
                words[0] = "xyz"  # not in the vocabulary
            lines.append(" ".join(words) + rng.choice([".", "", " , so ."]))
        lines.append("")
    return "\n".join(lines)


def pieces_of(word):
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in VOCABULARY:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


def tokenize(line):
    spaced = line.replace(".", " . ").replace(",", " , ")
    return [piece for word in spaced.split() for piece in pieces_of(word)]


def read(text):
    documents = [[]]
    for line in text.split("\n"):
        if line.strip():
            documents[-1].append(tokenize(line))
        else:
            documents.append([])
    return [d for d in documents if d]


def mask(tokens, rng, c):
    groups = []
    for i, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if c["do_whole_word_mask"] and groups and token.startswith("##"):
            groups[-1].append(i)
        else:
            groups.append([i])
    rng.shuffle(groups)
    budget = min(c["max_predictions_per_seq"], max(1, int(round(len(tokens) * c["masked_lm_prob"]))))
    out, labels = list(tokens), {}
    for group in groups:
        if len(labels) >= budget:
            break
        if len(labels) + len(group) > budget:
            continue
        for i in group:
            labels[i] = tokens[i]
            if rng.random() < 0.8:
                out[i] = "[MASK]"
            elif not rng.random() < 0.5:
                out[i] = VOCABULARY[rng.randint(0, len(VOCABULARY) - 1)]
    return out, labels


def examples_of(documents, which, rng, c):
    document, room = documents[which], c["max_seq_length"] - 3
    target = rng.randint(2, room) if rng.random() < c["short_seq_prob"] else room
    position = 0
    while position < len(document):
        chunk = []
        while position < len(document):
            chunk.append(document[position])
            position += 1
            if sum(map(len, chunk)) >= target:
                break
        cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        a = sum(chunk[:cut], [])
        is_random = False
        if len(chunk) == 1 or rng.random() < 0.5:
            for _ in range(10):
                other = rng.randint(0, len(documents) - 1)
                if other != which:
                    break
            is_random = other != which  # a single document continues itself
            first, b = rng.randint(0, len(documents[other]) - 1), []
            for sentence in documents[other][first:]:
                b = b + sentence
                if len(b) >= target - len(a):
                    break
            position -= len(chunk) - cut
        else:
            b = sum(chunk[cut:], [])
        while len(a) + len(b) > room:
            longer = a if len(a) > len(b) else b
            longer.pop(0 if rng.random() < 0.5 else -1)
        tokens, labels = mask(["[CLS]"] + a + ["[SEP]"] + b + ["[SEP]"], rng, c)
        number = VOCABULARY.index
        yield {
            "input_ids": [number(t) for t in tokens],
            "segment_b_start": len(a) + 2,
            "masked_positions": sorted(labels),
            "masked_ids": [number(labels[i]) for i in sorted(labels)],
            "is_random_next": is_random,
        }


def create(text, c):
    rng = random.Random(c["random_seed"])
    documents = read(text)
    rng.shuffle(documents)
    examples = [e for _ in range(c["dupe_factor"]) for which in range(len(documents)) for e in examples_of(documents, which, rng, c)]
    rng.shuffle(examples)
    return examples


def main():
    base = dict(max_seq_length=32, max_predictions_per_seq=5, masked_lm_prob=0.15, random_seed=12345, dupe_factor=2, short_seq_prob=0.1, do_whole_word_mask=False)
    text = make_text(random.Random(1), 12)
    settings = [
        ("plain", base, text),
        ("whole words", dict(base, do_whole_word_mask=True), text),
        ("short and dense", dict(base, max_seq_length=16, masked_lm_prob=0.5, max_predictions_per_seq=6, short_seq_prob=0.9, random_seed=2**40 + 7), text),
        ("whole words that do not fit", dict(base, do_whole_word_mask=True, max_predictions_per_seq=1, random_seed=0), text),
        ("no word fits", dict(base, do_whole_word_mask=True, max_predictions_per_seq=1), "kalomi lomika\nmikalo\n\nlomika ."),
        ("one document", dict(base, dupe_factor=3), make_text(random.Random(2), 1)),
        ("documents of one sentence", base, "kalo mi .\n\nra so tive\n\n\nzu zu ."),
        ("half a token to mask", dict(base, max_seq_length=13, masked_lm_prob=0.5), text),
    ]
    cases = [{"name": n, "config": c, "text": t, "examples": create(t, c)} for n, c, t in settings]
    cases = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    print('{"vocabulary":' + json.dumps(VOCABULARY) + ',\n"cases":[\n' + cases + "\n]}")


if __name__ == "__main__":
    main()
