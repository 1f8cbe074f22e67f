"""Pre-training examples by the algorithm of Google's create_pretraining_data.py, in plain Python without TensorFlow.

Functions, data structures and order of random draws are those of the script: tokens are strings until the end, and each example
becomes padded lists of numbers. Serializing them, which TensorFlow does there, is left out. Source:
github.com/google-research/bert, create_pretraining_data.py, as described by Devlin et al. 2018.
"""
import collections
import random

Masked = collections.namedtuple("Masked", ["index", "label"])


class Example:
    def __init__(self, tokens, segment_ids, masked_positions, masked_labels, is_random_next):
        self.tokens = tokens
        self.segment_ids = segment_ids
        self.masked_positions = masked_positions
        self.masked_labels = masked_labels
        self.is_random_next = is_random_next


def truncate_pair(first, second, limit, rng):
    while len(first) + len(second) > limit:
        longer = first if len(first) > len(second) else second
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def mask_tokens(tokens, probability, limit, words, rng):
    candidates = [[i] for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(candidates)
    output = list(tokens)
    wanted = min(limit, max(1, int(round(len(tokens) * probability))))
    masked = []
    covered = set()
    for indices in candidates:
        if len(masked) >= wanted:
            break
        if len(masked) + len(indices) > wanted or any(index in covered for index in indices):
            continue
        for index in indices:
            covered.add(index)
            if rng.random() < 0.8:
                token = "[MASK]"
            elif rng.random() < 0.5:
                token = tokens[index]
            else:
                token = words[rng.randint(0, len(words) - 1)]
            output[index] = token
            masked.append(Masked(index=index, label=tokens[index]))
    masked.sort(key=lambda x: x.index)
    return output, [m.index for m in masked], [m.label for m in masked]


def examples_of_document(documents, which, options, words, rng):
    document = documents[which]
    most = options["max_seq_length"] - 3
    target = most
    if rng.random() < options["short_seq_prob"]:
        target = rng.randint(2, most)
    examples, chunk, length, i = [], [], 0, 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            if chunk:
                a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
                first = []
                for sentence in chunk[:a_end]:
                    first.extend(sentence)
                second = []
                is_random = len(chunk) == 1 or rng.random() < 0.5
                if is_random:
                    target_b = target - len(first)
                    other = which
                    for _ in range(10):
                        other = rng.randint(0, len(documents) - 1)
                        if other != which:
                            break
                    is_random = other != which  # a lone document continues itself
                    begin = rng.randint(0, len(documents[other]) - 1)
                    for sentence in documents[other][begin:]:
                        second.extend(sentence)
                        if len(second) >= target_b:
                            break
                    i -= len(chunk) - a_end
                else:
                    for sentence in chunk[a_end:]:
                        second.extend(sentence)
                truncate_pair(first, second, most, rng)
                tokens = ["[CLS]"] + first + ["[SEP]"] + second + ["[SEP]"]
                segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
                tokens, positions, labels = mask_tokens(tokens, options["masked_lm_prob"], options["max_predictions_per_seq"], words, rng)
                examples.append(Example(tokens, segments, positions, labels, is_random))
            chunk, length = [], 0
        i += 1
    return examples


def create(documents, vocabulary, options):
    """The examples, as dictionaries of padded lists. `vocabulary`: token to id, in the order of the file."""
    rng = random.Random(options["random_seed"])
    words = list(vocabulary)
    documents = [d for d in documents if d]
    rng.shuffle(documents)
    examples = []
    for _ in range(options["dupe_factor"]):
        for which in range(len(documents)):
            examples.extend(examples_of_document(documents, which, options, words, rng))
    rng.shuffle(examples)
    length, limit = options["max_seq_length"], options["max_predictions_per_seq"]
    features = []
    for example in examples:
        pad, unused = length - len(example.tokens), limit - len(example.masked_labels)
        features.append({
            "input_ids": [vocabulary[t] for t in example.tokens] + [0] * pad,
            "input_mask": [1] * len(example.tokens) + [0] * pad,
            "segment_ids": example.segment_ids + [0] * pad,
            "masked_lm_positions": example.masked_positions + [0] * unused,
            "masked_lm_ids": [vocabulary[t] for t in example.masked_labels] + [0] * unused,
            "masked_lm_weights": [1.0] * len(example.masked_labels) + [0.0] * unused,
            "next_sentence_labels": [1 if example.is_random_next else 0],
        })
    return features
