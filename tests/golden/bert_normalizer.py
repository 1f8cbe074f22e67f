"""Writes bert_normalizer.json: words and places of Hugging Face's BertNormalizer and BertPreTokenizer, for every combination of the normalizer's
options, and tokenizers that transformers saves with some of them.

Versions: tokenizers 0.23.3, transformers 5.17.0, Python 3.11. Run: python3 tests/golden/bert_normalizer.py > tests/golden/bert_normalizer.json
The texts have no capital sigma, no private-use character and no code point of Note [Hugging Face differs] in data/tokenizer/tokenizer.h. They have
no combining mark that stays where accents go, as U+302E: if canonical order moves one, Hugging Face's places are those of its neighbours.
"""
import json
import pathlib
import random
import tempfile

import tokenizers
import transformers
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

TEXTS = [
    "Übergröße ÄÖÜ äöü ß ẞ naïve Café cafe\u0301 CAFE\u0301.", "İstanbul IĞDIR ığdır i\u0307 I\u0307 ISPARTA", "e\u0301\u0323 e\u0323\u0301 E\u0323\u0301 \u0301x",
    "Nuoc\u0302\u0301 Nước Việt Nam", "ガギグ カ\u3099キ\u3099 ﾊﾟｰﾃｨｰ", "日本語のテキスト、東京都に住む。", "中文abc中文 42中", "한국어 각 \u1100\u1161\u11a8 HANGUL한",
    "\uf900\ufa0e 豈更 \U0002f800 \U00020000x", "हिन्दी ไทย தமிழ் עִבְרִית العَرَبِيَّة", "Ἀθῆναι ΐ Ϊ ᾼ", "Å \u212b \u212a \u2126 Ǆ ǅ ﬁ \u037e \u1fef \u2260",
    "don't [MASK] - x\u00ad\u200by \ufffd\0\x07 a\u3000b\u2028c\td", "Ελληνικά ΚΑΛΗΜΕΡΑ", "", " \u0301 ", "\u0130\u4e00\u0130 \u4e00\u0301e\u0301\u4e00", "ЁЖ ёж Й й",
]
POOL = ("AaEeIiıİNnOoUuÄäÉéÑñÖöÜüÅåßẞČčŐő\u0301\u0308\u0323\u0327\u0307\u3099\u0345\u093c中文字\uf900\U0002f800カガがハ한각\u1100\u1161\u11a8 "
        "  ...,-'!?$+<>^`|~¿。、\u3000\xa0\xad\u200d\ufeff\u037e\u2260\u212b\u212aǅⅣⓐ0123")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "über", "uber", "Über", "Uber", "##größe", "##große", "##grosse", "cafe", "café", "中", "##中", "文", "##文",
         "中文", "日", "本", "日本", "##本", "##語", "語", "ab", "##c", "##ab", "İ", "i", "##̇", "##stanbul", "istanbul", "Istanbul", ".", ","]
SAVED = [("german", True, False, True), ("stripped", False, True, True), ("japanese", False, None, False), ("usual", True, None, True)]
SAVED_TEXTS = ["Übergröße, Café.", "Ubergroße cafe\u0301", "中文abc 日本語", "İstanbul istanbul Istanbul [MASK]"]


def texts():
    draw = random.Random(22)
    return TEXTS + ["".join(draw.choice(POOL) for _ in range(draw.randint(1, 24))) for _ in range(120)]


def words_of(text, options):
    """The words of the text, and the first and the last character of each, the latter excluded."""
    normalizer, splitter = BertNormalizer(**options), BertPreTokenizer()
    whole = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    whole.normalizer, whole.pre_tokenizer = normalizer, splitter
    words = [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
    places = whole.encode(text).offsets
    assert len(words) == len(places)
    return [words, [place for pair in places for place in pair]]


def saved(name, do_lower_case, strip_accents, tokenize_chinese_chars):
    """The files of a tokenizer, and the ids that it gives."""
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(WORDS))}
    options = dict(do_lower_case=do_lower_case, strip_accents=strip_accents, tokenize_chinese_chars=tokenize_chinese_chars)
    tokenizer = transformers.BertTokenizer(vocab=vocabulary, **options)
    with tempfile.TemporaryDirectory() as directory:
        tokenizer.save_pretrained(directory)
        files = {path.name: path.read_text() for path in sorted(pathlib.Path(directory).iterdir())}
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in SAVED_TEXTS]
    return dict(options, name=name, files=files, ids=ids)


cases = []
for lowercase in (True, False):
    for strip_accents in (None, True, False):
        for handle_chinese_chars in (True, False):
            options = dict(clean_text=True, handle_chinese_chars=handle_chinese_chars, strip_accents=strip_accents, lowercase=lowercase)
            cases.append(dict(options, words=[words_of(text, options) for text in texts()]))
print(json.dumps({"versions": {"tokenizers": tokenizers.__version__, "transformers": transformers.__version__}, "texts": texts(), "cases": cases,
                  "saved_texts": SAVED_TEXTS, "saved": [saved(*each) for each in SAVED]}, ensure_ascii=False, indent=None, separators=(",", ":")))
