"""Writes example_files.json: the same pre-training examples in files that other programs wrote.

Needs the packages h5py, numpy, protobuf and google-crc32c (written with h5py 3.16.0 on HDF5 2.0.0, protobuf 7.36.2, google-crc32c 1.9.0):
python3 tests/golden/example_files.py > tests/golden/example_files.json
"examples" holds the examples as PretrainingExample has them; "files" holds each file, gzip and then base64. The serializer of the TFRecords is
protobuf's own, for the messages of tensorflow/core/example; the HDF5 files have NVIDIA's schema (create_pretraining_data.py in
github.com/NVIDIA/DeepLearningExamples, PyTorch/LanguageModeling/BERT).
"""
import base64
import gzip
import io
import json
import random
import struct

import google_crc32c
import h5py
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

LENGTH, PREDICTIONS = 16, 4  # max_seq_length, max_predictions_per_seq


def make_examples():
    numbers = random.Random(12345)
    examples = []
    for length, second, masks, label in ((16, 7, 4, 1), (9, 4, 1, 0), (5, 5, 0, 0), (12, 2, 2, 1)):
        ids = [numbers.randrange(300) for _ in range(length)]
        positions = sorted(numbers.sample(range(1, length), masks))
        examples.append({"input_ids": ids, "segment_b_start": second, "masked_positions": positions,
                         "masked_ids": [numbers.randrange(30522) for _ in positions], "is_random_next": bool(label)})
    return examples


def columns(examples):
    """The padded columns of Google's and NVIDIA's files."""
    pad = lambda values, size: values + [0] * (size - len(values))
    table = {name: [] for name in ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights",
                                   "next_sentence_labels")}
    for e in examples:
        n, second = len(e["input_ids"]), e["segment_b_start"]
        table["input_ids"].append(pad(e["input_ids"], LENGTH))
        table["input_mask"].append(pad([1] * n, LENGTH))
        table["segment_ids"].append(pad([0] * second + [1] * (n - second), LENGTH))
        table["masked_lm_positions"].append(pad(e["masked_positions"], PREDICTIONS))
        table["masked_lm_ids"].append(pad(e["masked_ids"], PREDICTIONS))
        table["masked_lm_weights"].append(pad([1] * len(e["masked_ids"]), PREDICTIONS))
        table["next_sentence_labels"].append(int(e["is_random_next"]))
    return table


# ---- TFRecord ----
def example_class(packed):
    """tf.Example, with packed lists as TensorFlow has them, or without."""
    file = descriptor_pb2.FileDescriptorProto(name="example_%s.proto" % packed, package="tf", syntax="proto3")
    kind = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields, oneof=None):
        m = file.message_type.add(name=name)
        if oneof:
            m.oneof_decl.add(name=oneof)
        for number, (field, label, type_, of) in enumerate(fields, 1):
            f = m.field.add(name=field, number=number, label=label, type=type_)
            if of:
                f.type_name = ".tf." + of
            if oneof:
                f.oneof_index = 0
            if name in ("FloatList", "Int64List"):
                f.options.packed = packed
        return m

    message("BytesList", ("value", kind.LABEL_REPEATED, kind.TYPE_BYTES, None))
    message("FloatList", ("value", kind.LABEL_REPEATED, kind.TYPE_FLOAT, None))
    message("Int64List", ("value", kind.LABEL_REPEATED, kind.TYPE_INT64, None))
    message("Feature", *((name, kind.LABEL_OPTIONAL, kind.TYPE_MESSAGE, of) for name, of in
                         (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List"))), oneof="kind")
    features = message("Features", ("feature", kind.LABEL_REPEATED, kind.TYPE_MESSAGE, "Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=kind.LABEL_OPTIONAL, type=kind.TYPE_STRING)
    entry.field.add(name="value", number=2, label=kind.LABEL_OPTIONAL, type=kind.TYPE_MESSAGE, type_name=".tf.Feature")
    message("Example", ("features", kind.LABEL_OPTIONAL, kind.TYPE_MESSAGE, "Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tf.Example"))


def tfrecord(table, names={}, packed=True, extra=False):
    def masked(data):
        crc = google_crc32c.value(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    out = io.BytesIO()
    for i in range(len(table["input_ids"])):
        example = example_class(packed)()
        for name, column in table.items():
            values = column[i] if isinstance(column[i], list) else [column[i]]
            feature = example.features.feature[names.get(name, name)]
            (feature.float_list if name == "masked_lm_weights" else feature.int64_list).value.extend(values)
        if extra:
            example.features.feature["source"].bytes_list.value.append(b"a book")
        data = example.SerializeToString()
        head = struct.pack("<Q", len(data))
        out.write(head + masked(head) + data + masked(data))
    return out.getvalue()


# ---- HDF5 ----
TYPES = {"input_ids": "i4", "input_mask": "i1", "segment_ids": "i1", "masked_lm_positions": "i4", "masked_lm_ids": "i4",
         "next_sentence_labels": "i1"}


def hdf5(table, types=TYPES, libver=None, **options):
    out = io.BytesIO()
    with h5py.File(out, "w", libver=libver) as file:
        for name, type_ in types.items():
            data = np.asarray(table[name])
            chunks = options.get("chunks")
            more = dict(options, chunks=chunks[:data.ndim]) if isinstance(chunks, tuple) else options
            file.create_dataset(name, data=data, dtype=type_, **more)
    return out.getvalue()


def main():
    examples = make_examples()
    table = columns(examples)
    files = {"plain.tfrecord": tfrecord(table),
             "later_names.tfrecord": tfrecord(table, {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}),
             "unpacked.tfrecord": tfrecord(table, packed=False, extra=True),
             "packed.tfrecord.gz": gzip.compress(tfrecord(table), mtime=0),
             "nvidia.hdf5": hdf5(table, compression="gzip"),
             "contiguous.hdf5": hdf5(table, {name: "i8" for name in TYPES}),
             "big_endian.hdf5": hdf5(table, {name: ">u2" for name in TYPES}, chunks=(3, 3), shuffle=True, fletcher32=True),
             "checksums.hdf5": hdf5(table, libver=("v110", "v110"), compression="gzip", compression_opts=9, shuffle=True, chunks=(2, 3))}
    print(json.dumps({"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS, "examples": examples,
                      "files": {name: base64.b64encode(gzip.compress(data, mtime=0)).decode() for name, data in files.items()}}, indent=0))


if __name__ == "__main__":
    main()
