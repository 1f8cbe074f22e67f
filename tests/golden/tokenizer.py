"""Writes tokenizer.json: the results of Google's BERT tokenization for fuzz text, and for every code point between letters.

Run with Python 3.11 (Unicode 14.0): python3 tests/golden/tokenizer.py > tests/golden/tokenizer.json
With a vocabulary it writes instead the ids of the lines on standard input, one line each. tests/verbs/tokenizer_commands_test.cc has their
sha256sum, for the Big List of Naughty Strings, Unicode's NormalizationTest.txt and novels:
  cat blns.txt NormalizationTest.txt text/novels/* | python3 tests/golden/tokenizer.py uncased bert-base-uncased-vocab.txt | sha256sum
  cat blns.txt NormalizationTest.txt text/novels/* | python3 tests/golden/tokenizer.py cased bert-base-cased-vocab.txt | sha256sum
blns.txt is that of github.com/minimaxir/big-list-of-naughty-strings, NormalizationTest.txt that of Unicode 14.0; the 12 novels are those of
github.com/computationalstylistics/100_english_novels by Blackmore (Erema), Burnett (Garden), Chesterton (Thursday), Conrad (Nostromo), Eliot (Felix),
Ford (Post), Gaskell (Lovers), Hardy (Jude), James (Roderick), Lee (Penelope), Morris (Water) and Schreiner (Trooper), in this order; the vocabularies
are those of github.com/NVIDIA/DeepLearningExamples.
The algorithm is written from the description of tokenization.py in google-research/bert, rule by rule, so that a twin can break one rule.
"""
import json
import random
import sys
import unicodedata

MAX_CHARACTERS = 200
IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
              (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F))
category = unicodedata.category


class Rules:
    """Google's rules; the rule named `broken`, if any, is broken."""

    def __init__(self, lower, broken=None):
        self.lower, self.broken = lower, broken

    def dropped(self, c):
        if c in "\t\n\r":
            return False
        kinds = ("Cc",) if self.broken == "format characters" else ("Cc", "Cf")
        return c in "\0\ufffd" or category(c) in kinds

    def ideograph(self, c):
        return any(first <= ord(c) <= last for first, last in IDEOGRAPHS)

    def punctuation(self, c):
        if self.broken == "ASCII symbols" and c in "$+<=>^`|~":
            return False
        return category(c)[0] == "P" or (c.isascii() and c.isprintable() and not c.isalnum() and c != " ")

    def fold(self, word):
        lowered = "".join(map(str.lower, word)) if self.broken == "final sigma" else word.lower()
        if self.broken == "canonical order":
            lowered = "".join(unicodedata.normalize("NFD", c) for c in lowered)
        elif self.broken != "accents":
            lowered = unicodedata.normalize("NFD", lowered)
        else:
            return lowered
        return "".join(c for c in lowered if category(c) != "Mn")

    def words(self, text):
        text = "".join(c for c in text if not self.dropped(c))
        if self.broken != "ideographs":
            text = "".join(f" {c} " if self.ideograph(c) else c for c in text)
        for run in text.split():
            run = self.fold(run) if self.lower else run
            start = 0
            for i, c in enumerate(run):
                if self.punctuation(c):
                    yield from filter(None, (run[start:i], c))
                    start = i + 1
            if start < len(run):
                yield run[start:]

    def pieces(self, word, ids):
        if len(word) > MAX_CHARACTERS - (self.broken == "length"):
            return ["[UNK]"]
        found, rest = [], word
        while rest:
            prefix = "##" if found else ""
            match = next((rest[:n] for n in range(len(rest), 0, -1) if prefix + rest[:n] in ids), None)
            if match is None:
                return ["[UNK]"]
            found.append(prefix + match)
            rest = rest[len(match):]
        return found

    def encode(self, text, ids):
        return [ids[piece] for word in self.words(text) for piece in self.pieces(word, ids)]


def fuzz_lines(random_):
    assigned = [chr(c) for c in range(0x110000) if category(chr(c)) not in ("Cn", "Cs", "Co") and chr(c) != "\n"]
    hot = ("ΣΣΣσςAaBbé'.:·\u0301\u0345\u034f\u1dfa\u302e\u1b44\u3099\U0001d165\U0001d15e  \xad\u2019\xaa\u02b0\u4e00\uf900-,$+<=\u0323"
           "\U00016ff0\u2260\u037e\u0130\u2028\u1100\u1161\u11a8\uac00\ufeff\0\ufffd\t\x0b\x85\u3000İßÅ\u212bǅⅣⓐ")
    words = "The quick brown fox jumps over a lazy dog don't naïve Ὀδυσσεύς ΟΔΥΣΣΕΥΣ СЛОВО Straße İstanbul 한국어 日本語テキスト हिन्दी ไทย".split()
    lines = [" ".join(random_.choice(words) for _ in range(random_.randint(1, 12))) for _ in range(60)]
    lines += ["".join(random_.choice(hot) for _ in range(random_.randint(1, 40))) for _ in range(200)]
    lines += ["".join(random_.choice(assigned) for _ in range(random_.randint(1, 30))) for _ in range(60)]
    lines += [unit * n for n in (199, 200, 201) for unit in ("a", "é", "e\u0301")]
    lines += ["각" * n for n in (66, 67)]
    lines += ["Α'Σ", "ΑΣ'Α", "Σ", "ΑΣ", "ΑΣ.", "ΑΣΑ", "ΑΣ\u0301", "Α Σ", "\u302e\u0301\u1b44x", "x\u302e\u1b44\u0323y", "a\u1b44\u034f\u3099\u302eb"]
    return lines


def vocabulary(lines, random_):
    """Most characters in both forms, and pieces of words: some words are split, some are found whole, some are unknown."""
    ids = {token: i for i, token in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))}
    seen = [word for line in lines for lower in (True, False) for word in Rules(lower).words(line)]
    for c in sorted({c for word in seen for c in word}):
        for token in (c, "##" + c):
            if random_.random() < 0.98:
                ids.setdefault(token, len(ids))
    for word in sorted(set(seen)):
        if 1 < len(word) < 40 and random_.random() < 0.5:
            a, b = sorted(random_.sample(range(len(word) + 1), 2))
            ids.setdefault(("##" if a else "") + word[a:b], len(ids))
    return ids


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def code_points():
    """For each block of 256 code points: first and last of each assigned range, and a hash of each code point's words in four positions."""
    uncased, cased = Rules(True), Rules(False)
    blocks = []
    for first in range(0, 0x110000, 256):
        inside = [c for c in range(first, first + 256) if category(chr(c)) not in ("Cn", "Cs")]
        if not inside or (category(chr(inside[0])) == "Co" and first != 0xE000):
            continue
        ranges, out = [], bytearray()
        for n in inside:
            if ranges and ranges[-1][1] == n - 1:
                ranges[-1][1] = n
            else:
                ranges.append([n, n])
            c = chr(n)
            for rules, text in ((cased, f"a{c}b"), (uncased, f"a{c}b"), (uncased, f"A{c}Σ"), (uncased, f"AΣ{c}A"), (uncased, f"{c}Σ")):
                out += " ".join(rules.words(text)).encode() + b"\n"
        blocks.append([ranges, fnv1a(out)])
    return blocks


def write_ids(lower, vocabulary_file):
    """The ids of the lines on standard input."""
    with open(vocabulary_file, encoding="utf-8", newline="\n") as file:
        ids = {token.rstrip("\n"): i for i, token in enumerate(file)}
    rules = Rules(lower)
    for line in sys.stdin.buffer.read().decode("utf-8", "replace").split("\n")[:-1]:
        print(*rules.encode(line, ids))


def main():
    if len(sys.argv) == 3:
        return write_ids(sys.argv[1] == "uncased", sys.argv[2])
    random_ = random.Random(20181011)
    lines = fuzz_lines(random_)
    ids = vocabulary(lines, random_)
    result = {"python": sys.version.split()[0], "unicode": unicodedata.unidata_version, "vocabulary": list(ids), "lines": lines}
    for name, lower in (("uncased", True), ("cased", False)):
        result[name] = [Rules(lower).encode(line, ids) for line in lines]
    result["broken"] = {}
    for rule in ("format characters", "ASCII symbols", "final sigma", "canonical order", "accents", "ideographs", "length"):
        twin = [Rules(True, rule).encode(line, ids) for line in lines]
        result["broken"][rule] = [[i, got] for i, (got, want) in enumerate(zip(twin, result["uncased"])) if got != want][:3]
    result["code_points"] = code_points()
    print(json.dumps(result, separators=(",", ":")))


main()
