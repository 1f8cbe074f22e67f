#!/usr/bin/env python3
"""Tests app/setup/wheels.py: it finds and opens files according to pip's configuration, and explains errors in it. Servers are on loopback."""

import hashlib, http.server, os, shutil, sys, tempfile, threading, unittest, zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "app", "setup"))
sys.dont_write_bytecode = True
import wheels

FILE = "some_thing-1.0-py3-none-any.whl"


class Server(http.server.ThreadingHTTPServer):
    """Serves `pages` by path or, as a proxy, by URL. Records the requests and their logins."""

    def __init__(self, pages):
        self.pages, self.asked, self.logins = pages, [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                self.asked.append(handler.path)
                self.logins.append(handler.headers.get("Authorization"))
                body = self.pages.get(handler.path)
                handler.send_response(404 if body is None else 200)
                handler.end_headers()
                handler.wfile.write(body or b"")

            def log_message(handler, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()


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

    def serve(self, pages):
        server = Server(pages)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

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
        self.addCleanup(setattr, wheels, "WHEELS", wheels.WHEELS)
        wheels.WHEELS = "\ngroup %s %d %s\n" % (FILE, len(wheel), hashlib.sha256(wheel).hexdigest())
        self.addCleanup(setattr, wheels, "say", wheels.say)
        wheels.say = lambda message: None
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=self.directory)
        place = self.path("cache/libraries")

        def there():
            found = [os.path.relpath(os.path.join(top, name), place) for top, _, names in os.walk(place) for name in names]
            return sorted(name for name in found if not name.startswith("installed/"))

        wheels.main("install", place, ["group"])
        self.assertEqual(there(), sorted([*texts, "torch/lib/libx.so"]))
        shutil.rmtree(os.path.join(place, information))
        os.remove(os.path.join(place, "torch/lib/libx.so"))  # a library that is there would be replaced, and everything compiled again
        wheels.main("install", place, ["group"])
        self.assertEqual(there(), [])
        wheels.main("texts", place, ["group"])
        self.assertEqual(there(), sorted(texts))

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
