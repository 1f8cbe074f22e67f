"""Writes arrow_tables.json: one table in files of pyarrow, and its rows as JSON lines.

Needs pyarrow (written with 26.0.1): python3 tests/golden/arrow_tables.py. "files" holds each file, gzip and then base64.
"""
import base64
import gzip
import io
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = [{"sentence1": "A \"man\" plays.", "sentence2": "Ünïted\nlines", "score": 0.25, "label": 3, "words": ["a", "b"]},
        {"sentence1": "It rains.", "sentence2": "No sun", "score": -1.5, "label": 2**40, "words": []},
        {"sentence1": "Third", "sentence2": "third", "score": 1.0, "label": 0, "words": ["c"]}]
table = pa.table({"sentence1": pa.array([r["sentence1"] for r in ROWS]),
                  "sentence2": pa.array([r["sentence2"] for r in ROWS]).dictionary_encode(),
                  "score": pa.array([r["score"] for r in ROWS], pa.float32()),
                  "label": pa.array([r["label"] for r in ROWS]),
                  "words": pa.array([r["words"] for r in ROWS], pa.large_list(pa.string()))})
times = table.append_column("at", pa.array([0, 1, 2], pa.timestamp("s")))
holes = table.set_column(2, "score", pa.array([0.5, None, 1.0]))


def packed(data):
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def parquet(table):
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=2)
    return packed(file.getvalue())


def arrow(table, new):
    file = io.BytesIO()
    with new(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return packed(file.getvalue())


files = {"table.parquet": parquet(table), "stream.arrow": arrow(table, pa.ipc.new_stream),
         "file.arrow": arrow(table, pa.ipc.new_file), "times.parquet": parquet(times), "holes.parquet": parquet(holes),
         "empty.parquet": parquet(table.slice(0, 0))}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "arrow_tables.json"), "w") as file:
    json.dump({"rows": ROWS, "files": files}, file)
    file.write("\n")
