"""Writes the list of what a package holds, in SPDX 2.3 as JSON. app/setup/package.py uses it. Standard library only."""

import datetime, hashlib, json, os, pathlib, re

SPDX_LICENCES = ("Apache-2.0", "BSD-3-Clause")  # licences of wheels and of ours that SPDX knows by these names


class Part:
    """What comes from one place: a Debian package, a wheel, or this repository.

    files: libraries and programs, relative to the top of the archive; empty if the part is compiled into ours.
    texts: its licences, likewise. licence: its name, or None if only the texts tell.
    """

    def __init__(self, name, version, supplier, purl, licence=None, comment="", source="", sha256=""):
        self.name, self.version, self.supplier, self.purl = name, version, supplier, purl
        self.licence, self.comment, self.source, self.sha256 = licence, comment, source, sha256
        self.files, self.texts = [], []


def identifier(*words):
    return "-".join(re.sub(r"[^A-Za-z0-9.-]", "-", word) for word in words)


def digest(algorithm, path):
    value = hashlib.new(algorithm)
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            value.update(block)
    return value.hexdigest()


def file_entry(top, path):
    return {
        "SPDXID": identifier("SPDXRef-File", path),
        "fileName": "./" + path,
        "fileTypes": ["BINARY"],
        "checksums": [{"algorithm": name, "checksumValue": digest(name.lower(), os.path.join(top, path))} for name in ("SHA1", "SHA256")],
        "licenseConcluded": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


def licence_name(part):
    return part.licence if part.licence in SPDX_LICENCES else identifier("LicenseRef", part.name)


def package_entry(part, files):
    """`files`: the entries of the part's files."""
    entry = {
        "SPDXID": identifier("SPDXRef-Package", part.name),
        "name": part.name,
        "versionInfo": part.version,
        "supplier": part.supplier,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": bool(files),
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence_name(part),
        "licenseComments": ("%s Texts: %s" % (part.comment, ", ".join(part.texts))).strip(),
        "copyrightText": "NOASSERTION",
    }
    if part.purl:
        entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part.purl}]
    if part.source:
        entry["sourceInfo"] = part.source
    if part.sha256:
        entry["checksums"] = [{"algorithm": "SHA256", "checksumValue": part.sha256}]
        entry["comment"] = "The checksum is that of the wheel."
    if files:  # the specification's rule: the SHA1 of the files' SHA1, sorted
        sums = sorted(file["checksums"][0]["checksumValue"] for file in files)
        entry["packageVerificationCode"] = {"packageVerificationCodeValue": hashlib.sha1("".join(sums).encode()).hexdigest()}
        entry["licenseInfoFromFiles"] = ["NOASSERTION"]
    return entry


def document(top, ours, parts, seconds):
    """The document about the tree `top`: `ours` is the part that needs or holds the other `parts`. `seconds` since 1970: its date."""
    packages, files, relations, texts = [], [], [], []
    root = identifier("SPDXRef-Package", ours.name)
    relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", root))
    for part in [ours, *sorted(parts, key=lambda part: part.name)]:
        entries = [file_entry(top, path) for path in sorted(part.files)]
        package = package_entry(part, entries)
        packages.append(package)
        files += entries
        relations += [(package["SPDXID"], "CONTAINS", entry["SPDXID"]) for entry in entries]
        if part is not ours:
            relations.append((root, "DYNAMIC_LINK" if entries else "STATIC_LINK", package["SPDXID"]))
        if licence_name(part).startswith("LicenseRef"):
            text = "\n".join(pathlib.Path(top, path).read_text(encoding="utf-8", errors="replace") for path in part.texts)
            texts.append({"licenseId": licence_name(part), "name": part.licence or "the licences of " + part.name, "extractedText": text})
    content = json.dumps([packages, files], sort_keys=True).encode()
    name = "%s-%s" % (ours.name, ours.version)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": "https://spdx.org/spdxdocs/%s-%s" % (name, hashlib.sha256(content).hexdigest()),
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: app/setup/sbom.py-" + ours.version],
        },
        "packages": packages,
        "files": files,
        "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other} for one, kind, other in relations],
        "hasExtractedLicensingInfos": texts,
    }


def write(path, content):
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=1)
        stream.write("\n")
