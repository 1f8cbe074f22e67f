"""Writes added_tokens.json: a tokenizer of transformers with added tokens, the ids and places that it gives, and the entities that the pipeline
token-classification makes of tokens with probabilities.

Versions: tokenizers 0.23.3, transformers 5.17.0, Python 3.11. Run: python3 tests/golden/added_tokens.py > tests/golden/added_tokens.json
"""
import json
import pathlib
import tempfile

import numpy
import transformers
from transformers import AddedToken
from transformers.pipelines.token_classification import AggregationStrategy, TokenClassificationPipeline

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "the", "cat", "##s", "sat", "gr", "##aft", "##ing", "co", "##vid", "##19", "1", "##9", "<", ">", "/",
         "drug", "京", "北", "##k", "k", ",", "."]
TEXTS = ["the <drug> cat", "the<drug>cats", "graft grafts grafting Graft", "covid19 COVID19 covid1919 Covid19.", "the wordy word, words aword word_ word", "北京 and 北京北京, 北 京",
         "[unused0] the [MASK]", "<Drug> Café cafe\u0301 CAFE", "", "  spaced  the spaced", "the <drug", "grafts<drug>grafts"]


def saved(lower):
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = transformers.BertTokenizer(vocab=vocabulary, do_lower_case=lower)
    tokenizer.add_tokens(["graft", "grafts", "covid19", "北京", "café", AddedToken("word", single_word=True), AddedToken("spaced", lstrip=True, rstrip=True)])
    tokenizer.add_tokens([AddedToken("RAW", normalized=False), "[unused0]"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<drug>"]} if "additional_special_tokens" in tokenizer.SPECIAL_TOKENS_ATTRIBUTES
                                 else {"extra_special_tokens": ["<drug>"]})
    with tempfile.TemporaryDirectory() as directory:
        tokenizer.save_pretrained(directory)
        files = {path.name: path.read_text() for path in sorted(pathlib.Path(directory).iterdir())}
    encoded = []
    for text in TEXTS + ["RAW raw Raw the RAWcat"]:
        found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        encoded.append({"text": text, "ids": found["input_ids"], "offsets": [list(place) for place in found["offset_mapping"]]})
    return {"do_lower_case": lower, "files": files, "encoded": encoded}


LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "NAME"]


class Pipeline(TokenClassificationPipeline):
    """The grouping of the pipeline without a model."""

    def __init__(self):
        class Tokenizer:
            def convert_tokens_to_string(self, tokens):
                words = ""
                for i, token in enumerate(tokens):  # the decoder WordPiece of tokenizers, with cleanup
                    piece = token[2:] if i and token.startswith("##") else token if not i else " " + token
                    for a, b in ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ",")):
                        piece = piece.replace(a, b)
                    words += piece
                return words

        self.tokenizer = Tokenizer()
        self.model = type("Model", (), {"config": type("Config", (), {"id2label": dict(enumerate(LABELS))})})


def entities():
    draw, cases, pipeline = numpy.random.default_rng(7), [], Pipeline()
    for _ in range(40):
        tokens, place = [], 0
        for index in range(int(draw.integers(1, 12))):
            joined = index > 0 and draw.random() < 0.35
            text = str(draw.choice(["ab", "c", "def", ".", ","] if not joined else ["x", "yz"]))
            place += 0 if joined else int(draw.integers(0, 3))
            logits = draw.normal(0, 2, len(LABELS))
            scores = numpy.exp(logits) / numpy.exp(logits).sum()
            tokens.append({"word": "##" + text if joined else text, "scores": scores, "start": place, "end": place + len(text), "index": index + 1, "is_subword": joined})
            place += len(text)
        case = {"tokens": [{**token, "scores": token["scores"].tolist()} for token in tokens]}
        for strategy in AggregationStrategy:
            found = pipeline.aggregate([dict(token) for token in tokens], strategy)
            case[strategy.value] = [{key: float(value) if key == "score" else value for key, value in entity.items()} for entity in found
                                    if entity.get("entity", None) != "O" and entity.get("entity_group", None) != "O"]
        cases.append(case)
    return cases


print(json.dumps({"tokenizers": [saved(True), saved(False)], "labels": LABELS, "entities": entities()}, ensure_ascii=False, indent=0))
