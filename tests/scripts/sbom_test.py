#!/usr/bin/env python3
"""Tests app/setup/sbom.py: the list of what a package holds, against sums of sha1sum and the fields that SPDX 2.3 demands."""

import os, sys, tempfile, unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "app", "setup"))
sys.dont_write_bytecode = True
import sbom


class SbomTest(unittest.TestCase):
    def setUp(self):
        top = tempfile.TemporaryDirectory()
        self.addCleanup(top.cleanup)
        for name, text in (("one.so", "a"), ("two.so", "b"), ("prog", "c"), ("text", "may be copied"), ("own", "mine")):
            with open(os.path.join(top.name, name), "w", encoding="utf-8") as stream:
                stream.write(text)
        ours = sbom.Part("bert", "0.1.0", "NOASSERTION", "", "Apache-2.0")
        ours.files, ours.texts = ["prog"], ["own"]
        library = sbom.Part("libx++1", "1.2-3+deb12u1", "Organization: Debian", "pkg:deb/debian/libx++1@1.2-3?arch=amd64", source="x 1.2-3")
        library.files, library.texts = ["two.so", "one.so"], ["text"]
        headers = sbom.Part("json-dev", "3", "Organization: Debian", "pkg:deb/debian/json-dev@3", "BSD-3-Clause")
        self.document = sbom.document(top.name, ours, [library, headers], 1700000000)
        self.packages = {package["name"]: package for package in self.document["packages"]}

    def test_sums_are_those_of_sha1sum(self):
        sums = {file["fileName"]: file["checksums"][0]["checksumValue"] for file in self.document["files"]}
        self.assertEqual(sums["./one.so"], "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8")
        self.assertEqual(sums["./two.so"], "e9d71f5ee7c92d6dc9e92ffdad17b8bd49418f98")
        code = self.packages["libx++1"]["packageVerificationCode"]["packageVerificationCodeValue"]
        self.assertEqual(code, "5463504435e4dbf2b93a3a8a00ca78e36ea40e24")  # printf of both sums | sha1sum

    def test_libraries_are_contained_and_headers_compiled_in(self):
        relations = {(entry["spdxElementId"], entry["relationshipType"], entry["relatedSpdxElement"]) for entry in self.document["relationships"]}
        self.assertEqual(relations, {
            ("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package-bert"), ("SPDXRef-Package-bert", "CONTAINS", "SPDXRef-File-prog"),
            ("SPDXRef-Package-libx--1", "CONTAINS", "SPDXRef-File-one.so"), ("SPDXRef-Package-libx--1", "CONTAINS", "SPDXRef-File-two.so"),
            ("SPDXRef-Package-bert", "DYNAMIC_LINK", "SPDXRef-Package-libx--1"), ("SPDXRef-Package-bert", "STATIC_LINK", "SPDXRef-Package-json-dev")})
        self.assertFalse(self.packages["json-dev"]["filesAnalyzed"])
        self.assertNotIn("packageVerificationCode", self.packages["json-dev"])

    def test_a_licence_without_a_name_of_spdx_comes_with_its_text(self):
        self.assertEqual(self.packages["libx++1"]["licenseDeclared"], "LicenseRef-libx--1")
        self.assertEqual(self.document["hasExtractedLicensingInfos"],
                         [{"licenseId": "LicenseRef-libx--1", "name": "the licences of libx++1", "extractedText": "may be copied"}])

    def test_date_and_name_follow_from_the_content(self):
        self.assertEqual(self.document["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        self.assertRegex(self.document["documentNamespace"], "^https://spdx.org/spdxdocs/bert-0.1.0-[0-9a-f]{64}$")


if __name__ == "__main__":
    unittest.main()
