"""Writes tensor_bundle.json: checkpoints that TensorFlow wrote, in hexadecimal digits, with the values that TensorFlow reads.

The index of `packed` is TensorFlow's, packed again into small blocks, with and without snappy, as TensorFlow wrote it before
2.0. Run: python tests/golden/tensor_bundle.py > tests/golden/tensor_bundle.json
Needs tensorflow and python-snappy; the output names the versions.
"""

import json
import os
import struct
import tempfile
from importlib.metadata import version

import numpy as np
import snappy
import tensorflow as tf


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(crc):
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def take_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def entries(block):
    restarts, = struct.unpack("<I", block[-4:])
    end, at, key, found = len(block) - 4 * (restarts + 1), 0, b"", []
    while at < end:
        shared, at = take_varint(block, at)
        own, at = take_varint(block, at)
        size, at = take_varint(block, at)
        key = key[:shared] + block[at:at + own]
        found.append((key, block[at + own:at + own + size]))
        at += own + size
    return found


def handle(data, at):
    offset, at = take_varint(data, at)
    size, at = take_varint(data, at)
    return offset, size, at


def read_table(data):
    """The entries of a table without packed blocks."""
    _, _, at = handle(data, len(data) - 48)
    offset, size, _ = handle(data, at)
    found = []
    for _, place in entries(data[offset:offset + size]):
        offset, size, at = handle(place, 0)
        assert at == len(place) and data[offset + size] == 0
        found += entries(data[offset:offset + size])
    return found


def make_block(items, restart_interval=16):
    out, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(items):
        shared = 0
        if i % restart_interval == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    return out + b"".join(struct.pack("<I", r) for r in restarts) + struct.pack("<I", len(restarts))


def make_table(items, per_block=1000, pack=lambda block: False):
    out, index = b"", []

    def add(block, packed):
        nonlocal out
        content = snappy.compress(block) if packed else block
        trailer = b"\1" if packed else b"\0"
        place = varint(len(out)) + varint(len(content))
        out += content + trailer + struct.pack("<I", masked(crc32c(content + trailer)))
        return place

    for i in range(0, len(items), per_block):
        part = items[i:i + per_block]
        index.append((part[-1][0], add(make_block(part), pack(i // per_block))))
    meta = add(make_block([]), False)
    ends = meta + add(make_block(index, 1), pack(0))
    return out + ends.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def contents(prefix):
    directory, name = os.path.split(prefix)
    found = {}
    for each in sorted(os.listdir(directory)):
        if each.startswith(name + "."):
            with open(os.path.join(directory, each), "rb") as file:
                found[each[len(name) + 1:]] = file.read()
    return found


def save(prefix, tensors, slices=None):
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=list(tensors), shape_and_slices=[(slices or {}).get(n, "") for n in tensors],
                      tensors=[tf.constant(t) if not isinstance(t, tf.Tensor) else t for t in tensors.values()])


def values(prefix):
    reader = tf.train.load_checkpoint(prefix)
    found = {}
    for name in sorted(reader.get_variable_to_shape_map()):
        value = np.asarray(reader.get_tensor(name))
        found[name] = {"dtype": reader.get_variable_to_dtype_map()[name].name, "shape": list(value.shape),
                       "values": [float(x) for x in value.flatten()]}
    return found


rng = np.random.default_rng(1)


def floats(*shape):
    return rng.normal(size=shape).astype(np.float32)


first = {"bert/embeddings/LayerNorm/beta": floats(4), "bert/embeddings/LayerNorm/beta/adam_m": floats(4),
         "bert/embeddings/word_embeddings": floats(7, 4), "global_step": np.int64(7038), "half": floats(3).astype(np.float16)}
second = {"bert/pooler/dense/kernel": floats(4, 4), "bert/pooler/dense/kernel/adam_v": floats(4, 4), "empty": floats(0, 4),
          "brain": tf.constant([1.0, -2.5, 65536.0], tf.bfloat16), "flags": np.array([True, False])}

with tempfile.TemporaryDirectory() as directory:
    one, two, both = (os.path.join(directory, name) for name in ("one", "two", "both"))
    save(one, {**first, **second})
    plain = {"files": contents(one), "tensors": values(one)}
    save(one, first)
    save(two, second)
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[one, two], destination_prefix=both)
    shards = {"files": contents(both), "tensors": values(both)}
    packed = {"files": dict(plain["files"]), "tensors": plain["tensors"]}
    table = read_table(plain["files"]["index"])
    packed["files"]["index"] = make_table(table, 3, lambda i: i % 2 == 0)
    refolded = os.path.join(directory, "packed")
    for end, data in packed["files"].items():
        with open(refolded + "." + end, "wb") as file:
            file.write(data)
    assert values(refolded) == plain["tensors"]  # TensorFlow reads it too

    bad = {}
    save(one, {"w": floats(2, 4)}, {"w": "4 4 0,2:-"})
    bad["is stored in slices"] = contents(one)
    save(one, {"w": tf.constant(["text"])})
    bad["holds text"] = contents(one)
    save(one, {"w": tf.constant([1j], tf.complex64)})
    bad["dtype has number 8"] = contents(one)
    save(one, {"w": floats(2)})
    whole = contents(one)

    def changed(make, **options):
        return {**whole, "index": make_table(make(read_table(whole["index"])), **options)}

    bad["big-endian"] = changed(lambda t: [(b"", t[0][1] + b"\x10\1")] + t[1:])
    bad["version 2 of the format"] = changed(lambda t: [(b"", t[0][1] + b"\x1a\2\x10\2")] + t[1:])
    bad["no header"] = changed(lambda t: t[1:])
    bad["not in ascending order"] = changed(lambda t: t + [t[1]])
    bad["0 data files"] = changed(lambda t: [(b"", b"\x08\0")] + t[1:])
    bad["dtype and shape ask for 12"] = changed(lambda t: [t[0], (b"w", t[1][1].replace(b"\x12\2\x08\2", b"\x12\2\x08\3"))])
    bad["lies in file 3"] = changed(lambda t: [t[0], (b"w", t[1][1] + b"\x18\3")])
    bad["has bytes 4 to 12"] = changed(lambda t: [t[0], (b"w", t[1][1] + b"\x20\4")])
    bad["a size that no tensor has"] = changed(lambda t: [t[0], (b"w", t[1][1] + b"\x12\x0d\x12\x0b\x08" + varint(2**63))])
    bad["lies over another tensor"] = changed(lambda t: t + [(b"x", t[1][1])])
    bad["the file goes on"] = {**whole, "data-00000-of-00001": whole["data-00000-of-00001"] + b"\0"}
    bad["the checksum of w does not match"] = {**whole, "data-00000-of-00001": b"\1" + whole["data-00000-of-00001"][1:]}

print(json.dumps({
    "generator": f"tensorflow {tf.__version__}, python-snappy {version('python-snappy')}",
    "good": {name: {"files": {end: data.hex() for end, data in each["files"].items()}, "tensors": each["tensors"]}
             for name, each in {"plain": plain, "shards": shards, "packed": packed}.items()},
    "bad": {message: {end: data.hex() for end, data in files.items()} for message, files in bad.items()},
}, indent=1))
