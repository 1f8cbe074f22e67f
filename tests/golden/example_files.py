"""Writes example_files.json: the same pre-training examples in files that other programs wrote.

Needs the packages h5py, numpy, protobuf, google-crc32c and pyarrow (written with h5py 3.16.0 on HDF5 2.0.0, numpy 2.4.6, protobuf 7.36.2,
google-crc32c 1.9.0, pyarrow 26.0.1): python3 tests/golden/example_files.py > tests/golden/example_files.json
"examples" holds the examples as PretrainingExample has them; "files" holds each file, gzip and then base64. The serializer of the TFRecords is
protobuf's own, for the messages of tensorflow/core/example; the HDF5 files have NVIDIA's schema (create_pretraining_data.py in
github.com/NVIDIA/DeepLearningExamples, PyTorch/LanguageModeling/BERT). "pairs" are examples [CLS] A [SEP] B [SEP] with the ids 2 and 3 for [CLS]
and [SEP]; the token of id i > 4 is "t<i>". They are in the Parquet files, which have the schema of github.com/NVIDIA/LDDL, lddl/dask/bert.
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
import pyarrow as pa
import pyarrow.parquet as pq
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
        data = example.SerializeToString(deterministic=True)
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


# ---- Parquet and Arrow ----
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_pairs():
    numbers = random.Random(6789)
    pairs = []
    for a, b, masks, label in ((6, 7, 3, 1), (1, 1, 1, 0), (4, 2, 0, 0)):
        draw = lambda count: [numbers.randrange(5, 300) for _ in range(count)]
        ids = [2] + draw(a) + [3] + draw(b) + [3]
        positions = sorted(numbers.sample([i for i in range(1, a + b + 2) if i != a + 1], masks))
        originals = [ids[i] for i in positions]
        for i in positions:
            ids[i] = 4
        pairs.append({"input_ids": ids, "segment_b_start": a + 2, "masked_positions": positions, "masked_ids": originals,
                      "is_random_next": bool(label)})
    return pairs


def lddl(pairs, masked, **options):
    def numpy_bytes(values):
        out = io.BytesIO()
        np.save(out, np.asarray(values, dtype=np.uint16))
        return out.getvalue()

    text = lambda ids: " ".join(SPECIAL[i] if i < 5 else "t%d" % i for i in ids)
    columns = {"A": pa.array([text(e["input_ids"][1:e["segment_b_start"] - 1]) for e in pairs]),
               "B": pa.array([text(e["input_ids"][e["segment_b_start"]:-1]) for e in pairs]),
               "is_random_next": pa.array([e["is_random_next"] for e in pairs]),
               "num_tokens": pa.array([len(e["input_ids"]) for e in pairs], pa.uint16())}
    if masked:
        columns["masked_lm_positions"] = pa.array([numpy_bytes(e["masked_positions"]) for e in pairs], pa.binary())
        columns["masked_lm_labels"] = pa.array([text(e["masked_ids"]) for e in pairs])
    columns["bin_id"] = pa.array([0] * len(pairs), pa.int64())
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def hugging_face(examples, open_writer, padded=None, number=pa.int32(), **more):
    """The examples as datasets.Dataset keeps them, one batch an example."""
    columns = {"input_ids": [], "token_type_ids": [], "attention_mask": [], "labels": [], "next_sentence_label": []}
    for e in examples:
        n = len(e["input_ids"])
        labels = [-100] * n
        for position, original in zip(e["masked_positions"], e["masked_ids"]):
            labels[position] = original
        size = padded or n
        pad = lambda values, value=0: values + [value] * (size - n)
        columns["input_ids"].append(pad(e["input_ids"]))
        columns["token_type_ids"].append(pad([0] * e["segment_b_start"] + [1] * (n - e["segment_b_start"])))
        columns["attention_mask"].append(pad([1] * n))
        columns["labels"].append(pad(labels, -100))
        columns["next_sentence_label"].append(int(e["is_random_next"]))
    table = pa.table({name: pa.array(values, pa.int64() if name == "next_sentence_label" else
                                     pa.list_(number if name != "attention_mask" else pa.int8()))
                      for name, values in columns.items()})
    out = pa.BufferOutputStream()
    with open_writer(out, table.schema, **more) as writer:
        for batch in table.to_batches(max_chunksize=1):
            writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def token_lists(examples, number=pa.int64()):
    """Nothing but ids, as after tokenizer(text)["input_ids"]; with a type of text, their tokens."""
    if pa.types.is_string(number):
        name, rows = "tokens", [[SPECIAL[i] if i < 5 else "t%d" % i for i in e["input_ids"]] for e in examples]
    else:
        name, rows = "input_ids", [e["input_ids"] for e in examples]
    table = pa.table({name: pa.array(rows, pa.large_list(number))})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def main():
    examples = make_examples()
    pairs = make_pairs()
    table = columns(examples)
    files = {"plain.tfrecord": tfrecord(table),
             "later_names.tfrecord": tfrecord(table, {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}),
             "unpacked.tfrecord": tfrecord(table, packed=False, extra=True),
             "packed.tfrecord.gz": gzip.compress(tfrecord(table), mtime=0),
             "nvidia.hdf5": hdf5(table, compression="gzip"),
             "contiguous.hdf5": hdf5(table, {name: "i8" for name in TYPES}),
             "big_endian.hdf5": hdf5(table, {name: ">u2" for name in TYPES}, chunks=(3, 3), shuffle=True, fletcher32=True),
             "checksums.hdf5": hdf5(table, libver=("v110", "v110"), compression="gzip", compression_opts=9, shuffle=True, chunks=(2, 3)),
             "masked.parquet": lddl(pairs, True, compression="snappy"),
             "unmasked.parquet_1": lddl(pairs, False, compression="zstd", row_group_size=2),
             "stream.arrow": hugging_face(examples, pa.ipc.new_stream),
             "file.arrow": hugging_face(examples, pa.ipc.new_file, padded=LENGTH, number=pa.int64(),
                                        options=pa.ipc.IpcWriteOptions(compression="lz4")),
             "tokens.arrow": token_lists(examples),
             "unsigned.arrow": token_lists(examples, pa.uint64()),
             "words.arrow": token_lists(examples, pa.string())}
    print(json.dumps({"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS, "examples": examples, "pairs": pairs,
                      "files": {name: base64.b64encode(gzip.compress(data, mtime=0)).decode() for name, data in files.items()}}, indent=0))


if __name__ == "__main__":
    main()
