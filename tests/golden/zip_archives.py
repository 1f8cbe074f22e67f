"""Writes zip_archives.json: small archives by Python's zipfile, what is in them, and archives that nobody should unpack.

Version: Python 3.11. Run: python3 zip_archives.py > zip_archives.json
Bytes are hexadecimal.
"""
import io
import json
import stat
import warnings
import zipfile

warnings.simplefilter("ignore")  # of two members with one name
LONG = "".join(f"{i}\tsentence {i * i % 997}\n" for i in range(60)).encode()


def archive(members, method=zipfile.ZIP_DEFLATED, comment=b"", change=lambda info: None):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        z.comment = comment
        for name, data in members:
            info = zipfile.ZipInfo(name, (2018, 10, 18, 0, 0, 0))
            info.compress_type = method
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            change(info)
            z.writestr(info, data)
    return out.getvalue()


def with_directory():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(zipfile.ZipInfo("CoLA/", (2018, 10, 18, 0, 0, 0)), b"")
        z.writestr(zipfile.ZipInfo("CoLA/train.tsv", (2018, 10, 18, 0, 0, 0)), LONG, zipfile.ZIP_DEFLATED)
        z.writestr(zipfile.ZipInfo("CoLA/original/raw/in.tsv", (2018, 10, 18, 0, 0, 0)), b"raw\n", zipfile.ZIP_STORED)
        z.writestr(zipfile.ZipInfo("CoLA/empty.txt", (2018, 10, 18, 0, 0, 0)), b"", zipfile.ZIP_DEFLATED)
        z.writestr(zipfile.ZipInfo("__MACOSX/CoLA/._train.tsv", (2018, 10, 18, 0, 0, 0)), b"mac")
        z.writestr(zipfile.ZipInfo("CoLA/.DS_Store", (2018, 10, 18, 0, 0, 0)), b"mac")
    return out.getvalue()


def encrypted():
    data = bytearray(archive([("a/b", b"secret")]))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def link(info):
    info.external_attr = (stat.S_IFLNK | 0o777) << 16


good = {
    "directory": (with_directory(), {"train.tsv": LONG, "original/raw/in.tsv": b"raw\n", "empty.txt": b""}, 2),
    "flat": (archive([("vocab.txt", b"[PAD]\n"), ("bert_config.json", b"{}\n")], comment=b"PK\5\6 in a comment"),
             {"vocab.txt": b"[PAD]\n", "bert_config.json": b"{}\n"}, 0),
    "stored": (archive([("m/x", LONG)], zipfile.ZIP_STORED), {"x": LONG}, 0),
}
bad = {
    "the name of a file leads out": [archive([(name, b"x")]) for name in
                                     ("../x", "a/../../x", "/etc/x", "a\\..\\x", "./x", "a//x")],
    "File already exists": [archive([("a", b"1"), ("a", b"2")])],
    "is a link": [archive([("a/b", b"/etc/passwd")], change=link)],
    "is encrypted": [encrypted()],
    "this is not a zip archive": [b"", b"PK", b"<html>not found</html>" * 9, archive([("a", LONG)])[:-30]],
}
print(json.dumps({
    "good": {name: {"zip": data.hex(), "files": {k: v.hex() for k, v in files.items()}, "left_out": left}
             for name, (data, files, left) in good.items()},
    "bad": {message: [data.hex() for data in archives] for message, archives in bad.items()},
}, indent=1))
