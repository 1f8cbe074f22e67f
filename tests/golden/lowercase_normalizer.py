"""Writes lowercase_normalizer.json: tokenizers whose normalizer is a Sequence of Lowercase and a BertNormalizer, and the ids that they give. Some are
saved by sentence-transformers, whose Transformer(do_lower_case=True) makes such a normalizer.

Versions: sentence-transformers 5.7.0, transformers 4.57.6, tokenizers 0.22.2, torch 2.11.0. Run: python3 tests/golden/lowercase_normalizer.py > tests/golden/lowercase_normalizer.json
It first checks for every character, between letters, that a Sequence in any order gives the text of one BertNormalizer.
"""
import json
import pathlib
import tempfile

import tokenizers
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers.normalizers import BertNormalizer, Lowercase, Sequence

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "cafe", "café", "Café", "uber", "über", "Über", "i", "##stanbul", "##̇", "I", "istanbul", "ΣΑΣ", "σασ", "σας",
         "中", "文", "中文", "ß", "ẞ", ".", ","]
TEXTS = ["The café, THE CAFÉ. Cafe\u0301", "İstanbul istanbul Istanbul", "Über uber über", "ΣΑΣ", "中文 ẞ ß", "[MASK] the\u00a0the\u200b."]
OPTIONS = [dict(lowercase=lowercase, strip_accents=accents) for lowercase in (True, False) for accents in (None, True, False)]


def check_every_character():
    text = "".join(f"a{chr(code)}b" for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    for options in OPTIONS:
        accents = options["lowercase"] if options["strip_accents"] is None else options["strip_accents"]
        one = BertNormalizer(lowercase=True, strip_accents=accents).normalize_str(text)
        bert = BertNormalizer(**options)
        assert Sequence([Lowercase(), bert]).normalize_str(text) == one, options
        assert Sequence([bert, Lowercase()]).normalize_str(text) == one, options


def vocabulary():
    return {word: i for i, word in enumerate(WORDS)}


def files_of(directory):
    names = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "sentence_bert_config.json", "vocab.txt")
    return {name: path.read_text() for name in names if (path := pathlib.Path(directory, name)).exists()}


def of_tokenizers():
    for options in OPTIONS:
        bert = BertNormalizer(**options)
        for name, normalizer in (("alone", Sequence([bert])), ("before", Sequence([Lowercase(), bert])), ("behind", Sequence([bert, Lowercase()])),
                                 ("nested", Sequence([Lowercase(), Sequence([Lowercase(), bert])]))):
            tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary(), unk_token="[UNK]", max_input_chars_per_word=100))
            tokenizer.normalizer = normalizer
            tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.BertPreTokenizer()])
            tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
            tokenizer.decoder = tokenizers.decoders.WordPiece()
            tokenizer.add_special_tokens(WORDS[:5])
            yield {"name": f"{name} {options}", "files": {"tokenizer.json": tokenizer.to_str()},
                   "ids": [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]}


def of_sentence_transformers():
    for cased in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            start, saved = directory + "/start", directory + "/saved"
            config = transformers.BertConfig(vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
            transformers.BertModel(config).save_pretrained(start)
            pathlib.Path(start, "vocab.txt").write_text("".join(word + "\n" for word in WORDS))
            transformers.BertTokenizerFast(start + "/vocab.txt", do_lower_case=not cased).save_pretrained(start)
            transformer = Transformer(start, do_lower_case=True)
            SentenceTransformer(modules=[transformer, Pooling(8)]).save(saved)
            again = SentenceTransformer(saved, device="cpu").tokenizer
            yield {"name": f"sentence-transformers, {'cased' if cased else 'uncased'}", "files": files_of(saved),
                   "ids": [again(text, add_special_tokens=False)["input_ids"] for text in TEXTS]}


check_every_character()
print(json.dumps({"texts": TEXTS, "cases": [*of_tokenizers(), *of_sentence_transformers()]}, ensure_ascii=False, indent=None, separators=(",", ":")))
