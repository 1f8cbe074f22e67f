#!/usr/bin/env python3
"""sbom_check.py TREE: checks share/doc/bert/sbom.spdx.json of an unpacked package against the files in TREE. tests/package/release.sh runs it.

Every program and library in TREE is listed once, with the sums that sha1sum and sha256sum give, and belongs to one package; every package
has a version, an origin and a licence, whose text is in TREE; no licence or package is named without being there.
With BERT_SPDX_PYTHON=PYTHON, one that has spdx-tools of PyPI, its validator reads the document too.
"""

import json, os, re, subprocess, sys

sys.dont_write_bytecode = True
tree = sys.argv[1]
place = os.path.join(tree, "share/doc/bert/sbom.spdx.json")
with open(place, encoding="utf-8") as stream:
    document = json.load(stream)
faults = []


def expect(condition, fault):
    if not condition:
        faults.append(fault)


def elf_files():
    for directory, _, names in os.walk(tree):
        for path in (os.path.join(directory, name) for name in names):
            if not os.path.islink(path):
                with open(path, "rb") as stream:
                    if stream.read(4) == b"\x7fELF":
                        yield "./" + os.path.relpath(path, tree)


def sums_of(program, names):
    lines = subprocess.run([program, *names], cwd=tree, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {line.split()[1]: line.split()[0] for line in lines}


there = sorted(elf_files())
files = {file["fileName"]: file for file in document["files"]}
expect(len(files) == len(document["files"]), "a file is listed twice")
expect(sorted(files) == there, "listed and there differ: %s" % sorted(set(files) ^ set(there)))
for program, algorithm in (("sha1sum", "SHA1"), ("sha256sum", "SHA256")):
    for name, value in sums_of(program, there).items():
        listed = [entry["checksumValue"] for entry in files.get(name, {}).get("checksums", []) if entry["algorithm"] == algorithm]
        expect(listed == [value], "%s: %s is %s, listed is %s" % (name, algorithm, value, listed))

packages = {package["SPDXID"]: package for package in document["packages"]}
known = {entry["licenseId"]: entry["extractedText"] for entry in document["hasExtractedLicensingInfos"]}
used = set()
for package in packages.values():
    name = package["name"]
    expect(re.match(r"\d", package["versionInfo"]), "%s has no version" % name)
    locators = [entry["referenceLocator"] for entry in package.get("externalRefs", [])]
    expect(name == "bert" or (len(locators) == 1 and re.match(r"pkg:(deb/debian|pypi)/%s@\d" % re.escape(name), locators[0])), "%s: origin %s" % (name, locators))
    licence = package["licenseDeclared"]
    used.add(licence)
    expect(licence in ("Apache-2.0", "BSD-3-Clause") or len(known.get(licence, "")) > 100, "%s: the licence %s has no text" % (name, licence))
    texts = package["licenseComments"].partition("Texts: ")[2].split(", ")
    for text in texts:
        expect(os.path.isfile(os.path.join(tree, text)), "%s: there is no %s" % (name, text))
expect(set(known) <= used, "unused licences: %s" % sorted(set(known) - used))

owners = {}
for relation in document["relationships"]:
    for end in ("spdxElementId", "relatedSpdxElement"):
        known_ids = {"SPDXRef-DOCUMENT", *packages, *(file["SPDXID"] for file in files.values())}
        expect(relation[end] in known_ids, "there is no %s" % relation[end])
    if relation["relationshipType"] == "CONTAINS":
        owners.setdefault(relation["relatedSpdxElement"], []).append(packages[relation["spdxElementId"]]["name"])
for name, file in files.items():
    expect(len(owners.get(file["SPDXID"], [])) == 1, "%s belongs to %s" % (name, owners.get(file["SPDXID"])))


def owner(name):
    return owners.get(files.get(name, {}).get("SPDXID"))


for name, package in (("./bin/bert", "bert"), ("./lib/bert/torch/lib/libtorch_cpu.so", "torch"), ("./lib/bert/debian/libcurl.so.4", "libcurl4")):
    expect(owner(name) == [package] or not os.path.exists(os.path.join(tree, name)), "%s belongs to %s" % (name, owner(name)))
names = {package["name"] for package in packages.values()}
expect({"nlohmann-json3-dev", "libcli11-dev"} <= names, "what is compiled in is not listed")

if os.environ.get("BERT_SPDX_PYTHON"):
    program = "from spdx_tools.spdx.parser.parse_anything import parse_file; from spdx_tools.spdx.validation.document_validator import *; import sys;" \
        "messages = validate_full_spdx_document(parse_file(sys.argv[1])); [print(m.validation_message) for m in messages]; sys.exit(bool(messages))"
    expect(subprocess.run([os.environ["BERT_SPDX_PYTHON"], "-c", program, place]).returncode == 0, "spdx-tools finds faults")
for fault in faults:
    print("sbom: " + fault, file=sys.stderr)
print("%d packages, %d programs and libraries" % (len(packages), len(files)))
sys.exit(bool(faults))
