"""Writes bzip2_marks.json: files of bzip2 whose data contain the marks of a block and of a stream's end by chance.

The block's symbols have codes of 8 bits each, so the symbols are the bytes of the file, and any bytes but 00, 01 and FF
can stand there. Needs Python's bz2, which checks that the files are valid.
"""
import bz2
import json
import pathlib
import random
import zlib

BLOCK, END = 0x314159265359, 0x177245385090


class Bits:
    def __init__(self):
        self.text = ""

    def put(self, value, count):
        self.text += format(value, f"0{count}b")

    def bytes(self):
        text = self.text + "0" * (-len(self.text) % 8)
        return int(text, 2).to_bytes(len(text) // 8, "big")


def checksum(data):  # CRC-32 of bzip2: the highest bit first
    turned = bytes(int(format(byte, "08b")[::-1], 2) for byte in data)
    return int(format(zlib.crc32(turned), "032b")[::-1], 2)


def decode(symbols, used):
    """The text of a block: move to front, the inverse of the sorted rotations from row 0, runs."""
    front, last = list(used), []
    for symbol in symbols:
        last.append(front.pop(symbol - 1))
        front.insert(0, last[-1])
    order = sorted(range(len(last)), key=lambda i: (last[i], i))
    text, row = [], order[0]
    for _ in last:
        text.append(last[row])
        row = order[row]
    out, run, i = [], 0, 0
    while i < len(text):
        out.append(text[i])
        run = run + 1 if len(out) > 1 and run and out[-2] == text[i] else 1
        i += 1
        if run == 4 and i < len(text):
            out += [out[-1]] * text[i]
            run, i = 0, i + 1
    return bytes(out)


def stream(symbols):
    used = range(254)
    text = decode(symbols, used)
    crc = checksum(text)
    bits = Bits()
    for character in b"BZh9":
        bits.put(character, 8)
    bits.put(BLOCK, 48)
    bits.put(crc, 32)
    bits.put(0, 1)  # not randomised
    bits.put(0, 24)  # row
    bits.put(0xFFFF, 16)
    for group in range(16):
        bits.put(sum(1 << (15 - i) for i in range(16) if 16 * group + i < 254), 16)
    tables, selectors = 2, (len(symbols) + 1 + 49) // 50
    bits.put(tables, 3)
    bits.put(selectors, 15)
    bits.put(0, selectors)  # the first table for all
    for _ in range(tables):
        bits.put(8, 5)
        bits.put(0, 256)  # all 256 codes have 8 bits
    for symbol in symbols:
        bits.put(symbol, 8)
    bits.put(255, 8)
    bits.put(END, 48)
    bits.put(crc, 32)
    packed = bits.bytes()
    assert bz2.decompress(packed) == text
    return packed, text


def main():
    random.seed(1)
    cases = []
    for marks in ([BLOCK], [END], [BLOCK, BLOCK, END, BLOCK]):
        symbols = []
        for mark in marks:
            symbols += [random.randint(2, 254) for _ in range(301)] + list(mark.to_bytes(6, "big"))
        symbols += [random.randint(2, 254) for _ in range(77)]
        packed, text = stream(symbols)
        cases.append({"marks": len(marks), "packed": packed.hex(),
                      "text": text.hex()})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"cases": cases}, indent=1) + "\n")


main()
