"""Writes pretraining_scores.json: the losses of transformers' BertForPreTraining of hf_model.json on a few examples and texts.

Versions: transformers 5.17.0, torch 2.11.0, Python 3.11. Run: python3 pretraining_scores.py > pretraining_scores.json
The losses are cross entropies, in double, of the logits in fp32. The pseudo-perplexity is that of a word: Salazar et al.,
"Masked Language Model Scoring", 2020, section 4.
"""
import json
import math
import pathlib
import random
import tempfile

import torch
import transformers

import pretraining_data as google

GOLDEN = json.loads((pathlib.Path(__file__).parent / "hf_model.json").read_text())
# With masks; masked positions and their ids before; the begin of segment B; the label. 6 to 8 are "un ##aff ##able", 17 is
# "##s".
EXAMPLES = [
    {"ids": [2, 5, 9, 4, 10, 3, 11, 4, 13, 3], "masked": [[3, 17], [7, 16]], "segment_b": 6, "random": 0},
    {"ids": [2, 6, 4, 8, 9, 3, 5, 4, 3], "masked": [[2, 7], [7, 9]], "segment_b": 6, "random": 1},
    {"ids": [2, 12, 13, 3, 20, 18, 3], "masked": [[1, 12], [5, 19], [4, 20]], "segment_b": 4, "random": 1},
]
TEXT = ["The unaffable cats sat on", "the Café, and 42 mat of a"]
# Documents of sentences for pairs of at most 10 tokens.
PAIR_TEXT = [["The cat sat on a mat.", "A cat sat.", "The mat, the cat and the cafe."],
             ["In the cafe the cat sat.", "42 of a mat.", "To the mat and on."],
             ["A mat of the cafe.", "The cat sat on and on.", "A 42 sat."]]
work = pathlib.Path(tempfile.mkdtemp())
for name in ["pretraining", "tokenizer"]:
    for file, content in GOLDEN["directories"][name].items():
        data = bytes.fromhex(content) if file.endswith(".safetensors") else content.encode()
        (work / file).write_bytes(data)
model = transformers.BertForPreTraining.from_pretrained(work, attn_implementation="eager").eval()
tokenizer = transformers.BertTokenizer.from_pretrained(work)


def logits(ids, segment_b):
    types = [[int(i >= segment_b) for i in range(len(ids))]]
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor(types))
    return out.prediction_logits[0], out.seq_relationship_logits[0]


def prediction(row, expected):
    return -row.double().log_softmax(-1)[expected].item(), int(row.argmax().item() == expected)


def mean(numbers):
    return sum(numbers) / len(numbers)


def pseudo(sequences):
    """The losses of all tokens, each masked alone. A sequence: ids and the begin of segment B."""
    losses = []
    for ids, segment_b in sequences:
        for i, token in enumerate(ids):
            if token not in (2, 3):
                losses.append(prediction(logits(ids[:i] + [4] + ids[i + 1:], segment_b)[0][i], token)[0])
    return losses


def restored(example):
    ids = list(example["ids"])
    for position, token in example["masked"]:
        ids[position] = token
    return ids, example["segment_b"]


class CounterRandom:
    """The draws of data/random/counter_random.h."""

    def __init__(self, key):
        self.state = self.mixed(key)

    @staticmethod
    def mixed(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    def next(self):
        state, self.state = self.state, (self.state + 0x9E3779B97F4A7C15) % 2**64
        return self.mixed(state)

    def random(self):
        return (self.next() >> 11) / 2**53

    def below(self, n):
        return self.next() * n >> 64

    def randint(self, low, high):
        return low + self.below(high - low + 1)

    def shuffle(self, items):
        for i in reversed(range(1, len(items))):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]


def pairs_of(documents, seed):
    """Of the pairs that create_pretraining_data makes without masks: the losses, with masks drawn for each."""
    google.VOCABULARY = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    mask, google.mask = google.mask, lambda tokens, rng, c: (tokens, {})
    settings, rng = {"max_seq_length": 10, "short_seq_prob": 0}, random.Random(seed)
    documents = [[tokenizer.tokenize(sentence) for sentence in document] for document in documents]
    rng.shuffle(documents)
    examples = [e for which in range(len(documents)) for e in google.examples_of(documents, which, rng, settings)]
    rng.shuffle(examples)
    how = {"do_whole_word_mask": False, "max_predictions_per_seq": 10, "masked_lm_prob": 0.15}
    losses = []
    for i, example in enumerate(examples):
        draws = CounterRandom(CounterRandom.mixed(CounterRandom.mixed(seed) ^ i))
        tokens, _ = mask(tokenizer.convert_ids_to_tokens(example["input_ids"]), draws, how)
        ids = tokenizer.convert_tokens_to_ids(tokens)
        losses.append(prediction(logits(ids, example["segment_b_start"])[1], int(example["is_random_next"])))
    return losses


def words_of(sequences):
    return sum(token not in (2, 3, 7, 8, 17) for ids, _ in sequences for token in ids)


tokens, pairs = [], []
for example in EXAMPLES:
    example["masked"].sort()
    rows, pair = logits(example["ids"], example["segment_b"])
    tokens.append([prediction(rows[position], token) for position, token in example["masked"]])
    pairs.append(prediction(pair, example["random"]))
flat = [one for some in tokens for one in some]
originals = [restored(example) for example in EXAMPLES]
lines = [(tokenizer(line)["input_ids"], 99) for line in TEXT]
text_pairs = pairs_of(PAIR_TEXT, seed=1)
losses, text_losses = pseudo(originals), pseudo(lines)
print(json.dumps({
    "generator": f"transformers {transformers.__version__}, torch {torch.__version__}",
    "examples": EXAMPLES, "text": TEXT, "text_ids": [ids for ids, _ in lines],
    "mlm_loss": mean([loss for loss, _ in flat]), "mlm_accuracy": mean([right for _, right in flat]),
    "perplexity": math.exp(mean([loss for loss, _ in flat])),
    "loss_of_first_example": mean([loss for loss, _ in tokens[0]]),
    "losses": [[loss for loss, _ in some] for some in tokens],
    "nsp_loss": mean([loss for loss, _ in pairs]), "nsp_accuracy": mean([right for _, right in pairs]),
    "pair_documents": [" ".join(document) for document in PAIR_TEXT],
    "text_nsp_loss": mean([loss for loss, _ in text_pairs]),
    "text_nsp_accuracy": mean([right for _, right in text_pairs]),
    "pseudo_words": words_of(originals), "pseudo_tokens": len(losses),
    "pseudo_perplexity": math.exp(sum(losses) / words_of(originals)),
    "text_pseudo_words": words_of(lines), "text_pseudo_perplexity": math.exp(sum(text_losses) / words_of(lines)),
}, indent=1, ensure_ascii=False))
