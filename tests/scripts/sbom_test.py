#!/usr/bin/env python3
"""Tests app/setup/sbom.py: the list of what a package holds, against sums of sha1sum and the fields that SPDX 2.3 demands. Tests what
app/setup/package.py says of a package, and refuses."""

import os, sys, tempfile, unittest, unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "app", "setup"))
sys.dont_write_bytecode = True
import package as packaging, sbom


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


class PackageTest(unittest.TestCase):
    def setUp(self):
        top = tempfile.TemporaryDirectory()
        self.addCleanup(top.cleanup)
        self.top = top.name

    def test_a_package_names_the_devices_of_its_libtorch(self):
        libraries = os.path.join(self.top, "lib/bert/torch/lib")
        os.makedirs(libraries)
        open(os.path.join(libraries, "libtorch_cpu.so"), "wb").close()
        self.assertEqual(packaging.devices(self.top), "the CPU")
        open(os.path.join(libraries, "libtorch_cuda.so"), "wb").close()
        self.assertEqual(packaging.devices(self.top), "NVIDIA GPUs and the CPU")

    def test_a_missing_packer_is_named_before_anything_is_written(self):
        output = os.path.join(self.top, "a.tar.zst.new")
        with unittest.mock.patch("shutil.which", return_value=None), self.assertRaises(packaging.Failure) as raised:
            packaging.make_tar(self.top, output, 1700000000)
        self.assertEqual((raised.exception.code, str(raised.exception)), (66, "there is no zstd; install it"))
        self.assertFalse(os.path.exists(output))

    def test_a_wheel_of_another_version_is_named(self):
        information = os.path.join(self.top, "torch-0.0.1.dist-info")
        os.makedirs(information)
        with open(os.path.join(information, "METADATA"), "w", encoding="utf-8") as stream:
            stream.write("Name: torch\nVersion: 0.0.1\n\n")
        with self.assertRaises(packaging.Failure) as raised:
            packaging.wheel_part(self.top, information)
        self.assertEqual(raised.exception.code, 66)
        self.assertEqual(str(raised.exception), information + " is no wheel of app/setup/wheels.py; remove it and run this again")


if __name__ == "__main__":
    unittest.main()
