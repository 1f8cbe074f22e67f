#!/usr/bin/env python3
"""Fetches the pinned wheels that app/setup.sh needs and unpacks them side by side. Standard library only.

    wheels.py size    DIRECTORY GROUP...   print the bytes that are still to be downloaded
    wheels.py install DIRECTORY GROUP...   download (an interrupted download is continued), check, unpack
    wheels.py try     DIRECTORY GROUP...   the same, but give up soon: for optional wheels
    wheels.py texts   DIRECTORY GROUP...   fetch the licences of wheels that were unpacked without them: for app/setup.sh --package
    wheels.py headers DIRECTORY            the same as install DIRECTORY headers

Of the wheels of the group headers only the C headers are downloaded, and no libraries. The index must answer requests for parts of a file.
The libraries inside are plain C++ and do not depend on the Python that runs this script, so torch is always the file for CPython 3.11.
The script uses the same index, extra indexes, find-links, certificate and proxies as pip.
"""

import base64, configparser, hashlib, html, http.client, io, os, re, ssl, subprocess, sys, time
import urllib.error, urllib.parse, urllib.request, zipfile, zlib

# group, file, bytes, sha256. NAME-VERSION.headers: the headers in that wheel, the bytes to download for them, and digest_of() them
WHEELS = """
torch torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl 530604548 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a
cudart nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 2243632 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
torch nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl 10715597 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
cuda nvidia_cublas-13.1.0.3-py3-none-manylinux_2_27_x86_64.whl 423133236 ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
cuda nvidia_cusparse-12.6.3.3-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 145942937 2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b
cuda nvidia_cusolver-12.0.4.66-py3-none-manylinux_2_27_x86_64.whl 200941980 0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112
cuda nvidia_cufft-12.0.0.61-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 214085489 6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3
cuda nvidia_curand-10.4.0.35-py3-none-manylinux_2_27_x86_64.whl 59544258 1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc
cuda nvidia_nvjitlink-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl 40713933 13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b
cuda nvidia_cufile-1.15.1.6-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 1223672 08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44
cuda nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl 90215200 ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575
cuda nvidia_cudnn_cu13-9.19.0.56-py3-none-manylinux_2_27_x86_64.whl 366066321 d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf
cuda nvidia_cusparselt_cu13-0.8.0-py3-none-manylinux2014_x86_64.whl 169884119 25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd
cuda nvidia_nccl_cu13-2.28.9-py3-none-manylinux_2_18_x86_64.whl 196493177 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
cuda nvidia_nvshmem_cu13-3.4.5-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 60412546 290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80
nvcc nvidia_cuda_nvcc-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 37384532 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvcc nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 134086 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvcc nvidia_nvvm-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl 61601415 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvcc nvidia_cuda_cccl-13.0.85-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 3120526 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
arrow pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl 55016622 39cb0f2418282c24bea6ceda77b03e5a8f0a5766b63a8bf194d4e2a2c423548c
headers nvidia_cublas-13.1.0.3.headers 132293 e0ad60d7bf58d770c5e5d1b8a42f8fd84b2c34514de62ce4b23526a8282f15a6
headers nvidia_cusparse-12.6.3.3.headers 131849 ea66344955353b36e7206851a8ad5d0145c0f49ceba382b4e91cb9e86daf065a
headers nvidia_cusolver-12.0.4.66.headers 132270 edb858fa89ff541a37058072b48bd5a6896f62e1f9bd91167a2ee2a61327e2f3
headers nvidia_cudnn_cu13-9.19.0.56.headers 133436 c63f95b013a152ee9cdfb66d7cf5aa774679c7e986aeb935a5ead3f256286acf
headers nvidia_nccl_cu13-2.28.9.headers 136196 71b787060190629e1710a3b864af90f548c224bd8fe6d3295bcb2a4bd5b38dd5
tools cmake-3.31.6-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl 27800904 1c8b05df0602365da91ee6a3336fe57525b137706c4ab5675498f662ae1dbcec
tools ninja-1.11.1.4-py3-none-manylinux_2_12_x86_64.manylinux2010_x86_64.whl 422814 096487995473320de7f65d622c3f1d16c3ad174797602218ca8c967f51ec38a0
"""
# Files that a build or a run opens. The rest of the torch wheel is Python.
WANTED = re.compile(r"(torch/(include|lib|share)|nvidia|cmake/data/(bin|share)|pyarrow/include)/|pyarrow/lib(arrow|parquet)\.so|ninja-[^/]*\.data/scripts/ninja$")
HEADER = re.compile(r"nvidia/[^/]+/include/.+\.h$")
LICENCE = re.compile(r"\.dist-info/(licenses/.*|[^/]*(LICEN[CS]E|NOTICE)[^/]*)$", re.IGNORECASE)
RECORDED = re.compile(r"[^/]*\.dist-info/(METADATA|RECORD)$")
TRIES = 5
PATIENCE = 15  # seconds without an answer until "try" gives up
CHUNK = 1 << 20
READ_AHEAD = 1 << 17  # of a file of which parts are downloaded
EXIT_DATA, EXIT_MISSING, EXIT_NETWORK, EXIT_IO, EXIT_CONFIGURATION = 65, 66, 69, 74, 78


class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def say(message):
    print("setup: " + message, file=sys.stderr, flush=True)


def pip_settings():
    """pip's settings: its files from general to specific, then PIP_* of the environment."""
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME", os.path.join(home, ".config"))
    named = os.environ.get("PIP_CONFIG_FILE", "")
    users = [] if named and os.path.exists(named) else [home + "/.pip/pip.conf", config + "/pip/pip.conf"]
    files = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", *users, sys.prefix + "/pip.conf", *([named] if named else [])]
    if named == os.devnull:
        files = []
    parser = configparser.RawConfigParser()
    for file in files:
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise Failure(EXIT_CONFIGURATION, "pip's configuration %s is broken: %s" % (file, str(error).replace("\n", " ")))
    settings = {}
    for section in ("global", "install", "download"):
        if parser.has_section(section):
            settings.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    for key, value in os.environ.items():
        if key.startswith("PIP_") and value:
            settings[key[4:].lower().replace("_", "-")] = value
    return settings


def is_true(settings, key):
    """Parses a switch as pip does."""
    value = settings.get(key, "no").lower()
    if value in ("y", "yes", "t", "true", "on", "1"):
        return True
    if value in ("n", "no", "f", "false", "off", "0"):
        return False
    raise Failure(EXIT_CONFIGURATION, "pip's %s is %s: want yes or no" % (key, value))


def seconds(settings):
    value = settings.get("default-timeout", settings.get("timeout", "60"))
    try:
        return float(value)
    except ValueError:
        raise Failure(EXIT_CONFIGURATION, "pip's timeout is %s: want a number of seconds" % value)


def certificates(settings):
    """A context that trusts the certificates of pip's configuration, else those of the system."""
    cert = settings.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if not cert:
        return ssl.create_default_context()
    if not os.path.exists(cert):
        raise Failure(EXIT_MISSING, "there is no certificate file %s, which PIP_CERT, REQUESTS_CA_BUNDLE or pip's configuration names" % cert)
    try:
        return ssl.create_default_context(**{"capath" if os.path.isdir(cert) else "cafile": cert})
    except OSError as error:
        raise Failure(EXIT_CONFIGURATION, "%s holds no certificates: %s" % (cert, error))


class Index:
    """Finds a wheel's URL and opens it, according to pip's configuration."""

    def __init__(self, patient):
        settings = pip_settings()
        self.links = settings.get("find-links", "").split()
        self.indexes = []
        if not is_true(settings, "no-index"):
            self.indexes = [settings.get("index-url", "https://pypi.org/simple"), *settings.get("extra-index-url", "").split()]
        self.timeout = seconds(settings)
        self.tries = TRIES
        if not patient:
            self.timeout, self.tries = min(self.timeout, PATIENCE), 1
        self.trusted = set(settings.get("trusted-host", "").split())
        self.context = certificates(settings)
        self.proxies = None  # use the environment's proxies
        if settings.get("proxy"):
            proxy = settings["proxy"] if "://" in settings["proxy"] else "http://" + settings["proxy"]
            self.proxies = {"http": proxy, "https": proxy}
        self.pages = {}

    def open(self, url, start=0, last=None):
        """Opens the file at `url`, or its bytes from `start` on, up to and with `last`."""
        parts = urllib.parse.urlsplit(url)
        headers = {"User-Agent": "bert-setup", "Accept": "text/html, */*;q=0.1"}
        if start or last is not None:
            headers["Range"] = "bytes=%d-%s" % (start, "" if last is None else last)
        if parts.username:
            pair = urllib.parse.unquote(parts.username) + ":" + urllib.parse.unquote(parts.password or "")
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
            url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        context = self.context
        if parts.hostname in self.trusted or (parts.hostname or "") + ":" + str(parts.port) in self.trusted:
            context = ssl._create_unverified_context()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(self.proxies), urllib.request.HTTPSHandler(context=context))
        return opener.open(urllib.request.Request(url, headers=headers), timeout=self.timeout)

    def listed(self, page, file):
        """URL of `file` on a page of links, or None. The second value is the reason for None."""
        try:
            if page not in self.pages:
                with self.open(page) as answer:
                    self.pages[page] = (answer.geturl(), answer.read().decode("utf-8", "replace"))
            base, text = self.pages[page]
        except (OSError, ValueError, http.client.HTTPException) as error:
            return None, "%s: %s" % (without_password(page), getattr(error, "reason", error))
        for reference in re.findall(r"""href=["']([^"']+)["']""", text):
            url = urllib.parse.urljoin(base, html.unescape(reference)).partition("#")[0]
            parts, place = urllib.parse.urlsplit(url), urllib.parse.urlsplit(page)
            if urllib.parse.unquote(url.rpartition("/")[2]) == file:
                if parts.hostname == place.hostname and "@" in place.netloc:
                    user = place.netloc.rpartition("@")[0]
                    url = parts._replace(netloc=user + "@" + parts.netloc.rpartition("@")[2]).geturl()
                return url, ""
        return None, "%s does not list %s" % (without_password(page), file)

    def find(self, file):
        """URL or path of the wheel, or None. The second value is the reason for None."""
        why = "no index is configured (PIP_NO_INDEX)"
        pages = [index.rstrip("/") + "/" + file.split("-")[0].replace("_", "-").lower() + "/" for index in self.indexes]
        for place in self.links:
            path = place[7:] if place.startswith("file://") else place
            if "://" in path or os.path.isfile(path):  # a page of links, a URL or a local file
                pages.insert(0, path if "://" in path else "file://" + os.path.abspath(path))
            elif os.path.isfile(os.path.join(path, file)):
                return os.path.join(path, file), ""
        for page in pages:
            url, why = self.listed(page, file)
            if url:
                return urllib.parse.unquote(url[7:]) if url.startswith("file://") else url, ""
        return None, why


def without_password(url):
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(CHUNK), b""):
            digest.update(block)
    return digest.hexdigest()


class Progress:
    """Progress: one line that is updated on a terminal, otherwise a line for every quarter."""

    def __init__(self, file, size):
        self.name, self.size, self.shown = "-".join(file.split("-")[:2]), size, -1

    def show(self, done):
        step = int(done * (100 if sys.stderr.isatty() else 4) // self.size)
        if step != self.shown and self.size > 20 * CHUNK:
            self.shown = step
            line = "setup: %s %d %% of %d MB" % (self.name, done * 100 // self.size, self.size // 1000000)
            print("\r" + line if sys.stderr.isatty() else line, end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
            if done == self.size and sys.stderr.isatty():
                print(file=sys.stderr)


def transfer(index, url, path, file, size):
    """Downloads the missing rest of the `size` bytes at `url` and appends it to `path`."""
    if os.path.isfile(url):
        with open(url, "rb") as source, open(path, "wb") as target:
            for block in iter(lambda: source.read(CHUNK), b""):
                target.write(block)
        return
    progress = Progress(file, size)
    for attempt in range(index.tries):
        have = os.path.getsize(path) if os.path.exists(path) else 0
        if have >= size:
            return
        if have:
            say("%s: going on at %d of %d MB" % (progress.name, have // 1000000, size // 1000000))
        try:
            with index.open(url, have) as answer, open(path, "ab" if answer.status == 206 else "wb") as target:
                have = target.tell()
                for block in iter(lambda: answer.read(CHUNK), b""):
                    try:
                        target.write(block)
                    except OSError as error:
                        raise Failure(EXIT_IO, "cannot write %s: %s; free some space and run this again" % (path, error.strerror))
                    have += len(block)
                    progress.show(have)
            if have >= size:
                return
            reason = "the connection ended early"
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", error))
        if attempt + 1 < index.tries:
            say("%s: %s; trying again" % (progress.name, reason))
            time.sleep(2 ** attempt)
    raise Failure(EXIT_NETWORK, "cannot download %s: %s; run this again, it goes on where it stopped" % (file, reason))


def download_with_pip(index, directory, file):
    """Tries pip, which supports more kinds of index and login. Returns True if pip got the file."""
    name, version, python, _, platforms = file[: -len(".whl")].split("-")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", directory]
    command += ["--retries=%d" % index.tries, "--timeout=%d" % index.timeout]
    command += ["--platform=" + platform for platform in platforms.split(".")]
    command += ["--python-version=311", "--implementation=cp"] if python == "cp311" else []
    return subprocess.run(command + [name + "==" + version], stderr=subprocess.DEVNULL).returncode == 0


def fetch(index, directory, file, size, digest):
    """Path of the checked wheel."""
    path, part = os.path.join(directory, file), os.path.join(directory, file + ".part")
    if not os.path.exists(path):
        url, why = index.find(file)
        if url:
            transfer(index, url, part, file, size)
            os.replace(part, path)
        elif not download_with_pip(index, directory, file):
            raise Failure(EXIT_NETWORK, "cannot find %s: %s; check the network, or the index in PIP_INDEX_URL" % (file, why))
    got = sha256(path)
    if got != digest:
        os.remove(path)
        raise Failure(EXIT_DATA, "%s: sha256 is %s, not %s; removed, run this again" % (file, got, digest))
    return path


class Remote(io.RawIOBase):
    """A file of `size` bytes at `url`. Only what is read of it is downloaded."""

    def __init__(self, index, url, file, size):
        self.index, self.url, self.file, self.size, self.place = index, url, file, size, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.place

    def seek(self, offset, whence=os.SEEK_SET):
        self.place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.place, os.SEEK_END: self.size}[whence]
        return self.place

    def readinto(self, buffer):
        count = max(0, min(len(buffer), self.size - self.place))
        if count:
            buffer[:count] = self.part(self.place, count)
            self.place += count
        return count

    def part(self, start, count):
        for attempt in range(self.index.tries):
            try:
                with self.index.open(self.url, start, start + count - 1) as answer:
                    if answer.status != 206:
                        raise Failure(EXIT_NETWORK, "cannot download parts of %s: the server knows whole files only" % self.file)
                    data = answer.read(count)
                if len(data) == count:
                    return data
                reason = "the connection ended early"
            except (OSError, ValueError, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", error))
            if attempt + 1 < self.index.tries:
                say("%s: %s; trying again" % (self.file, reason))
                time.sleep(2 ** attempt)
        raise Failure(EXIT_NETWORK, "cannot download parts of %s: %s; run this again" % (self.file, reason))


def digest_of(headers):
    digest = hashlib.sha256()
    for name in sorted(headers):
        digest.update(name.encode() + b"\0" + headers[name])
    return digest.hexdigest()


def read_headers(index, file, size):
    """The headers in the wheel, by name."""
    url, why = index.find(file)
    if not url:
        raise Failure(EXIT_NETWORK, "cannot find %s: %s; check the network, or the index in PIP_INDEX_URL" % (file, why))
    try:
        with open(url, "rb") if os.path.isfile(url) else io.BufferedReader(Remote(index, url, file, size), READ_AHEAD) as stream:
            with zipfile.ZipFile(stream) as archive:
                return {name: archive.read(name) for name in archive.namelist() if HEADER.match(name)}
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise Failure(EXIT_DATA, "%s: %s" % (file, error))


def install_headers(index, directory, file, size, digest):
    headers = read_headers(index, file, size)
    got = digest_of(headers)
    if got != digest:
        raise Failure(EXIT_DATA, "%s: sha256 of the headers is %s, not %s" % (file, got, digest))
    for name, text in headers.items():
        target = os.path.join(directory, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target + ".new", "wb") as stream:
            stream.write(text)
        os.replace(target + ".new", target)


def is_text(name):
    return LICENCE.search(name) or RECORDED.match(name)


def unpack(path, directory, texts_only=False):
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            wanted = is_text(member.filename) or (not texts_only and WANTED.match(member.filename))
            if not wanted or member.is_dir():
                continue
            name = "bin/ninja" if member.filename.endswith("scripts/ninja") else member.filename
            target = os.path.join(directory, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.open(member) as source, open(target + ".new", "wb") as stream:
                for block in iter(lambda: source.read(CHUNK), b""):
                    stream.write(block)
            os.chmod(target + ".new", (member.external_attr >> 16) & 0o777 or 0o644)
            os.replace(target + ".new", target)


def link_cuda(directory):
    """Adds parts of a toolkit that the wheels lack: lib64, and library names without a version."""
    root = os.path.join(directory, "nvidia", "cu13")
    if not os.path.islink(os.path.join(root, "lib64")):
        os.symlink("lib", os.path.join(root, "lib64"))
    for name in os.listdir(os.path.join(root, "lib")):
        plain = os.path.join(root, "lib", name.partition(".so.")[0] + ".so")
        if ".so." in name and not os.path.lexists(plain):
            os.symlink(name, plain)


def main(action, directory, groups):
    table = [row.split() for row in WHEELS.split("\n") if row]
    stamps = os.path.join(directory, "installed")
    texts_only = action == "texts"

    def is_installed(file):
        return os.path.exists(os.path.join(stamps, file))

    def is_there(file):
        record = os.path.join(directory, "-".join(file.split("-")[:2]) + ".dist-info", "RECORD")
        return os.path.exists(record) if texts_only else is_installed(file)

    def wheel_of(headers):
        """File and size of the wheel that holds the headers."""
        return next((file, int(size)) for _, file, size, _ in table if file.startswith(headers[: -len(".headers")] + "-"))

    rows = [(file, int(size), digest) for group, file, size, digest in table if group in groups and not is_there(file)]
    downloads = os.path.join(os.path.dirname(os.path.abspath(directory)), "wheels")

    def missing(file, size):
        path = os.path.join(downloads, file)
        if os.path.exists(path) or file.endswith(".headers") and is_installed(wheel_of(file)[0]):
            return 0
        return size - (os.path.getsize(path + ".part") if os.path.exists(path + ".part") else 0)

    if action == "size":
        print(sum(missing(file, size) for file, size, _ in rows))
        return
    os.makedirs(downloads, exist_ok=True)
    os.makedirs(stamps, exist_ok=True)
    index = Index(patient=action != "try")
    for file, size, digest in rows:
        if file.endswith(".headers"):
            wheel, wheel_size = wheel_of(file)
            if not is_installed(wheel):  # the headers are a part of it
                say("fetching the headers of " + file[: -len(".headers")])
                install_headers(index, directory, wheel, wheel_size, digest)
            open(os.path.join(stamps, file), "w").close()
            continue
        path = fetch(index, downloads, file, size, digest)
        say("unpacking " + "-".join(file.split("-")[:2]))
        unpack(path, directory, texts_only)
        if not texts_only:
            if "nvidia" in file:
                link_cuda(directory)
            open(os.path.join(stamps, file), "w").close()
        os.remove(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["headers"] and len(sys.argv) == 3:
        sys.argv[1:] = ["install", sys.argv[2], "headers"]
    if len(sys.argv) < 4 or sys.argv[1] not in ("size", "install", "try", "texts"):
        sys.exit(__doc__)
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3:])
    except Failure as failure:
        say(str(failure))
        sys.exit(failure.code)
    except OSError as error:
        say("%s: %s" % (error.filename or "cannot write", error.strerror))
        sys.exit(EXIT_IO)
    except KeyboardInterrupt:
        sys.exit(130)
