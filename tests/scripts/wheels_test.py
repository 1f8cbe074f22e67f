#!/usr/bin/env python3
"""Tests app/setup/wheels.py: it finds and opens files according to pip's configuration, and explains errors in it. Servers are on loopback."""

import contextlib, hashlib, http.server, io, os, re, shutil, sys, tempfile, threading, unittest, zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "app", "setup"))
sys.dont_write_bytecode = True
import wheels

FILE = "some_thing-1.0-py3-none-any.whl"


class Server(http.server.ThreadingHTTPServer):
    """Serves `pages` by path or, as a proxy, by URL, and parts of them if it knows `ranges`. Records the requests, their logins and ranges."""

    def __init__(self, pages, ranges=False):
        self.pages, self.asked, self.logins, self.ranges = pages, [], [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                self.asked.append(handler.path)
                self.logins.append(handler.headers.get("Authorization"))
                body = self.pages.get(handler.path)
                part = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
                if body and part and ranges:
                    start, last = map(int, part.groups())
                    self.ranges.append((start, last))
                    body = body[start : last + 1]
                handler.send_response(404 if body is None else 206 if part and ranges else 200)
                handler.end_headers()
                with contextlib.suppress(ConnectionError):  # a client need not read the rest
                    handler.wfile.write(body or b"")

            def log_message(handler, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class WheelsTest(unittest.TestCase):
    def setUp(self):
        self.directory = self.enter(tempfile.TemporaryDirectory())
        self.saved = dict(os.environ)
        for name in list(os.environ):
            if name.startswith("PIP_") or name.lower().endswith("_proxy") or name.endswith("_CA_BUNDLE"):
                del os.environ[name]
        os.environ.update(HOME=self.directory, XDG_CONFIG_HOME=self.directory, PIP_CONFIG_FILE=self.path("pip.conf"))
        self.write("pip.conf", b"")

    def tearDown(self):
        os.environ.clear()
        os.environ.update(self.saved)

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, text):
        with open(self.path(name), "wb") as stream:
            stream.write(text)

    def files_in(self, place):
        return sorted(os.path.relpath(os.path.join(top, name), place) for top, _, names in os.walk(place) for name in names)

    def serve(self, pages, ranges=False):
        server = Server(pages, ranges)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def set_table(self, table):
        """Gives wheels.py another table of wheels, and silences it."""
        self.addCleanup(setattr, wheels, "WHEELS", wheels.WHEELS)
        wheels.WHEELS = table
        self.addCleanup(setattr, wheels, "say", wheels.say)
        wheels.say = lambda message: None

    def failure(self, **settings):
        os.environ.update(settings)
        with self.assertRaises(wheels.Failure) as caught:
            wheels.Index(patient=False)
        return caught.exception.code, str(caught.exception)

    def test_index_and_login(self):
        server = self.serve({"/simple/some-thing/": b'<a href="../../files/%s#sha256=0">' % FILE.encode(), "/files/" + FILE: b"wheel"})
        os.environ["PIP_INDEX_URL"] = "http://user:p%40ss@" + server.address + "/simple"
        index = wheels.Index(patient=False)
        url, _ = index.find(FILE)
        with index.open(url) as answer:
            self.assertEqual(answer.read(), b"wheel")
        self.assertEqual(server.logins, ["Basic dXNlcjpwQHNz"] * 2)  # base64 of user:p@ss

    def test_proxy_of_the_environment_and_of_the_file(self):
        proxy = self.serve({"http://index.invalid/simple/some-thing/": b'<a href="http://index.invalid/%s">' % FILE.encode()})
        os.environ["PIP_INDEX_URL"] = "http://index.invalid/simple"
        for value in (proxy.address, "http://" + proxy.address):
            os.environ["PIP_PROXY"] = value
            self.assertEqual(wheels.Index(patient=False).find(FILE)[0], "http://index.invalid/" + FILE)
        del os.environ["PIP_PROXY"]
        self.write("pip.conf", b"[global]\nproxy = http://%s\n" % proxy.address.encode())
        self.assertEqual(wheels.Index(patient=False).find(FILE)[0], "http://index.invalid/" + FILE)
        self.assertEqual(len(proxy.asked), 3)

    def test_no_index_is_a_switch(self):
        for value, indexes in (("0", 1), ("false", 1), ("1", 0), ("yes", 0)):
            os.environ["PIP_NO_INDEX"] = value
            self.assertEqual(len(wheels.Index(patient=False).indexes), indexes, value)
        self.assertEqual(self.failure(PIP_NO_INDEX="perhaps"), (78, "pip's no-index is perhaps: want yes or no"))

    def test_links_of_each_kind(self):
        server = self.serve({"/links": b"<a href='/files/%s'>" % FILE.encode()})
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS="http://%s/links" % server.address)
        self.assertEqual(wheels.Index(patient=False).find(FILE)[0], "http://%s/files/%s" % (server.address, FILE))
        self.write(FILE, b"wheel")
        for links in (self.directory, "file://" + self.directory):
            os.environ["PIP_FIND_LINKS"] = links
            self.assertEqual(wheels.Index(patient=False).find(FILE)[0], self.path(FILE))
        self.write("links.html", b'<a href="%s">' % FILE.encode())
        os.environ["PIP_FIND_LINKS"] = self.path("links.html")
        self.assertEqual(wheels.Index(patient=False).find(FILE)[0], self.path(FILE))
        os.environ["PIP_FIND_LINKS"] = self.path("absent")
        self.assertEqual(wheels.Index(patient=False).find(FILE), (None, "no index is configured (PIP_NO_INDEX)"))

    def test_licences_follow_a_wheel_that_was_unpacked_without_them(self):
        information = "some_thing-1.0.dist-info/"
        texts = [information + name for name in ("METADATA", "RECORD", "licenses/LICENSE", "licenses/third_party/NOTICE", "License.txt")]
        with zipfile.ZipFile(self.path(FILE), "w") as archive:
            for name in [*texts, information + "WHEEL", "torch/lib/libx.so", "torch/x.py"]:
                archive.writestr(name, name)
        with open(self.path(FILE), "rb") as stream:
            wheel = stream.read()
        self.set_table("\ngroup %s %d %s\n" % (FILE, len(wheel), hashlib.sha256(wheel).hexdigest()))
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=self.directory)
        place = self.path("cache/libraries")

        def there():
            return [name for name in self.files_in(place) if not name.startswith("installed/")]

        wheels.main("install", place, ["group"])
        self.assertEqual(there(), sorted([*texts, "torch/lib/libx.so"]))
        shutil.rmtree(os.path.join(place, information))
        os.remove(os.path.join(place, "torch/lib/libx.so"))  # a library that is there would be replaced, and everything compiled again
        wheels.main("install", place, ["group"])
        self.assertEqual(there(), [])
        wheels.main("texts", place, ["group"])
        self.assertEqual(there(), sorted(texts))

    def prepare_headers(self):
        """A wheel of 8 MB, its headers, and a table that names both. Returns the wheel and the headers."""
        headers = {"nvidia/x/include/a.h": b"a" * 3000, "nvidia/x/include/deeper/b.h": b"b"}
        with zipfile.ZipFile(self.path("wheel"), "w") as archive:
            for name, text in {**headers, "nvidia/x/lib/libx.so": b"x" * (8 << 20), "x/include/c.h": b"c", "nvidia/x/a.h": b"d"}.items():
                archive.writestr(name, text)
        with open(self.path("wheel"), "rb") as stream:
            wheel = stream.read()
        row = "%s %s %d %s\n"
        self.set_table(
            row % ("cuda", FILE, len(wheel), hashlib.sha256(wheel).hexdigest())
            + row % ("headers", "some_thing-1.0.headers", 2000, wheels.digest_of(headers))
        )
        return wheel, headers

    def serve_wheel(self, wheel, ranges):
        server = self.serve({"/simple/some-thing/": b'<a href="/%s">' % FILE.encode(), "/" + FILE: wheel}, ranges)
        os.environ["PIP_INDEX_URL"] = "http://" + server.address + "/simple"
        return server

    def size(self, place, *groups):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            wheels.main("size", place, groups)
        return int(printed.getvalue())

    def test_headers_are_downloaded_without_their_wheel(self):
        wheel, headers = self.prepare_headers()
        server = self.serve_wheel(wheel, ranges=True)
        place = self.path("cache/libraries")
        self.assertEqual(self.size(place, "headers"), 2000)
        wheels.main("install", place, ["headers"])
        self.assertEqual(self.files_in(place), ["installed/some_thing-1.0.headers", *sorted(headers)])
        for name, text in headers.items():
            with open(os.path.join(place, name), "rb") as stream:
                self.assertEqual(stream.read(), text)
        self.assertLess(sum(last + 1 - start for start, last in server.ranges), 2 * wheels.READ_AHEAD)
        self.assertLess(len(server.ranges), 6)
        asked = len(server.asked)
        self.assertEqual(self.size(place, "headers"), 0)
        wheels.main("install", place, ["headers"])
        self.assertEqual(len(server.asked), asked)
        self.assertEqual(self.size(place, "cuda"), len(wheel))  # the libraries are still missing

    def test_headers_of_a_wheel_that_is_there(self):
        wheel, headers = self.prepare_headers()
        self.write(FILE, wheel)
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=self.directory)
        wheels.main("install", self.path("from links/libraries"), ["headers"])
        self.assertEqual(self.files_in(self.path("from links/libraries")), ["installed/some_thing-1.0.headers", *sorted(headers)])
        os.remove(self.path(FILE))
        place = self.path("cache/libraries")
        os.makedirs(os.path.join(place, "installed"))
        self.write("cache/libraries/installed/" + FILE, b"")
        self.assertEqual(self.size(place, "headers"), 0)
        wheels.main("install", place, ["headers"])
        self.assertEqual(self.files_in(place), ["installed/" + FILE, "installed/some_thing-1.0.headers"])

    def test_headers_that_cannot_be_had(self):
        wheel, headers = self.prepare_headers()
        place = self.path("cache/libraries")

        def failure():
            with self.assertRaises(wheels.Failure) as caught:
                wheels.main("try", place, ["headers"])
            self.assertEqual(self.files_in(place), [])
            return caught.exception.code, str(caught.exception)

        self.serve_wheel(wheel, ranges=False)
        self.assertEqual(failure(), (69, "cannot download parts of %s: the server knows whole files only" % FILE))
        self.serve_wheel(wheel, ranges=True)
        good = wheels.digest_of(headers)
        wheels.WHEELS = wheels.WHEELS.replace(good, "0" * 64)
        self.assertEqual(failure(), (65, "%s: sha256 of the headers is %s, not %s" % (FILE, good, "0" * 64)))
        self.serve_wheel(wheel.replace(b"aaaa", b"aaab"), ranges=True)
        self.assertEqual(failure(), (65, FILE + ": Bad CRC-32 for file 'nvidia/x/include/a.h'"))
        self.serve_wheel(b"0" * len(wheel), ranges=True)
        self.assertEqual(failure(), (65, FILE + ": File is not a zip file"))
        self.serve_wheel(wheel[: len(wheel) // 2], ranges=True)
        self.assertEqual(failure(), (69, "cannot download parts of %s: the connection ended early; run this again" % FILE))
        os.environ["PIP_NO_INDEX"] = "1"
        code, message = failure()
        self.assertEqual(code, 69)
        self.assertIn("cannot find " + FILE, message)

    def test_what_is_wrong_is_named(self):
        code, message = self.failure(PIP_CERT=self.path("none.pem"))
        self.assertEqual(code, 66)
        self.assertIn("none.pem", message)
        self.write("empty.pem", b"")
        code, message = self.failure(PIP_CERT=self.path("empty.pem"))
        self.assertEqual(code, 78)
        self.assertIn("empty.pem holds no certificates", message)
        del os.environ["PIP_CERT"]
        self.assertEqual(self.failure(PIP_TIMEOUT="soon"), (78, "pip's timeout is soon: want a number of seconds"))
        for text in (b"index-url = x\n", b"[global\n", b"\xff\xfe"):
            self.write("pip.conf", text)
            code, message = self.failure()
            self.assertEqual(code, 78, message)
            self.assertIn("pip.conf is broken", message)


if __name__ == "__main__":
    unittest.main()
