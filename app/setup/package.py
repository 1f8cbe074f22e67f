#!/usr/bin/env python3
"""Makes an archive of an installation, which then runs on a machine without a compiler. app/setup.sh --package calls it. Standard library only.

    package.py STAGE OUTPUT VERSION SECONDS WHEELS...

STAGE    what `cmake --install` has installed; its last name is the archive's directory. It is changed: every library is stripped, those of
         Debian's packages that the programs need are copied into lib/bert/debian, and share/doc/bert gets licences and sbom.spdx.json
OUTPUT   the archive: FILE.tar.gz, FILE.tar.zst or FILE.deb, written whole or not at all
SECONDS  since 1970: the time of every file, so that equal input gives equal bytes
WHEELS   directories of unpacked wheels (app/setup/wheels.py), with their dist-info
"""

import csv, glob, os, re, shutil, subprocess, sys, tempfile, urllib.parse

sys.dont_write_bytecode = True
import sbom, wheels

EXIT_MISSING, EXIT_INTERNAL, EXIT_IO = 66, 70, 74
# A machine has these: glibc and the runtime of g++, of its release of Debian or of a newer one than the build's.
OF_THE_MACHINE = re.compile(r"(ld-linux-x86-64|lib(c|m|mvec|dl|rt|pthread|util|resolv|anl|stdc\+\+|gcc_s))\.so\.\d+$")
DEBIAN = "lib/bert/debian"  # beside lib/bert/torch
COMPILED_IN = ("nlohmann-json3-dev", "libcli11-dev")  # header-only libraries
LICENCES = "share/doc/bert/licences"


class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def run(*command):
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout
    except FileNotFoundError:
        raise Failure(EXIT_MISSING, "there is no %s; install it" % command[0])
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "no message").strip().split("\n")
        raise Failure(EXIT_INTERNAL, "%s: %s" % (" ".join(command[:2]), lines[-1]))


def is_elf(path):
    with open(path, "rb") as stream:
        return stream.read(4) == b"\x7fELF"


def programs_in(top):
    """Programs and libraries below `top`, relative to it; no links."""
    found = []
    for directory, _, names in os.walk(top):
        paths = [os.path.join(directory, name) for name in names]
        found += [os.path.relpath(path, top) for path in paths if not os.path.islink(path) and is_elf(path)]
    return sorted(found)


def change(path, *command):
    """Runs `command` on a copy of `path`, then puts the copy in its place: `path` may be a hard link to a file of somebody else."""
    copy = path + ".new"
    shutil.copy2(path, copy)
    run(*command, copy)
    os.replace(copy, path)


def copy_debian_libraries(top):
    """Copies what the loader finds outside of `top`, apart from what every machine has. Returns {path in top: path on this machine}."""
    copied = {}
    for file in programs_in(top):
        for name, path in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", run("ldd", os.path.join(top, file)), re.MULTILINE):
            if path == "not found":
                raise Failure(EXIT_INTERNAL, "%s needs %s, which is nowhere; run app/setup.sh again" % (file, name))
            inside = os.path.realpath(path).startswith(os.path.realpath(top) + "/")
            if inside or OF_THE_MACHINE.match(name) or os.path.join(DEBIAN, name) in copied:
                continue
            target = os.path.join(DEBIAN, name)
            os.makedirs(os.path.join(top, DEBIAN), exist_ok=True)
            shutil.copyfile(path, os.path.join(top, target))
            copied[target] = path
    return copied


def strip_and_point(top):
    """Strips every program and library; makes ours and Debian's look for libraries in DEBIAN. LibTorch's and CUDA's find theirs by themselves."""
    for file in programs_in(top):
        path = os.path.join(top, file)
        change(path, "strip", "--strip-unneeded")
        if file.startswith(DEBIAN + "/"):
            change(path, "patchelf", "--set-rpath", "$ORIGIN")
        elif not file.startswith("lib/bert/"):
            change(path, "patchelf", "--set-rpath", run("patchelf", "--print-rpath", path).strip() + ":$ORIGIN/../" + DEBIAN)


def copy_text(top, name, source):
    """Copies a licence to licences/NAME/; returns its path in `top`."""
    target = os.path.join(LICENCES, name, os.path.basename(source))
    os.makedirs(os.path.dirname(os.path.join(top, target)), exist_ok=True)
    shutil.copyfile(source, os.path.join(top, target))
    return target


def debian_package(path):
    """Name of the installed Debian package that has the file `path`."""
    real = os.path.realpath(path)
    for place in (path, real, re.sub("^/usr", "", path), re.sub("^/usr", "", real), "/usr" + real):
        found = subprocess.run(["dpkg-query", "-S", place], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if found.returncode == 0:
            return found.stdout.split(": ")[0].split(",")[0]
    raise Failure(EXIT_MISSING, "no Debian package has %s, so its licence is unknown; --package needs packages that dpkg has installed" % path)


def debian_part(top, package):
    """The part of the Debian package `package`, whose licences are copied."""
    fields = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}"
    name, version, architecture, source, source_version = run("dpkg-query", "-W", "-f", fields, package).split("\t")
    part = sbom.Part(name, version, "Organization: Debian", "pkg:deb/debian/%s@%s?arch=%s" % (name, urllib.parse.quote(version), architecture),
                     source="Debian's source package %s %s" % (source, source_version))
    text = "/usr/share/doc/%s/copyright" % name
    if not os.path.exists(text):
        raise Failure(EXIT_MISSING, "there is no %s; install %s with its documentation" % (text, name))
    part.texts = [copy_text(top, name, text)]
    with open(text, encoding="utf-8", errors="replace") as stream:
        content = stream.read()
    names = sorted(set(re.findall(r"^License:[ \t]*(\S.*?)[ \t]*$", content, re.MULTILINE))) if content.startswith("Format:") else []
    part.comment = "Debian names: %s." % ", ".join(names) if names else ""
    for common in sorted(set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", content))):
        if os.path.exists("/usr/share/common-licenses/" + common):
            copy_text(top, "common-licenses", "/usr/share/common-licenses/" + common)
    return part


def wheel_part(top, information):
    """The part of the wheel whose dist-info is the directory `information`."""
    with open(os.path.join(information, "METADATA"), encoding="utf-8") as stream:
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stream.read().split("\n\n")[0], re.MULTILINE))
    name, version = fields["Name"], fields["Version"]
    stem = os.path.basename(information)[: -len(".dist-info")]
    sums = [row.split()[3] for row in wheels.WHEELS.split("\n") if row and row.split()[1].startswith(stem + "-")]
    if not sums:
        raise Failure(EXIT_MISSING, "%s is no wheel of app/setup/wheels.py; remove it and run this again" % information)
    part = sbom.Part(name, version, "NOASSERTION", "pkg:pypi/%s@%s" % (name, version), fields.get("License-Expression", fields.get("License")),
                     source="a wheel of PyPI, https://pypi.org/project/%s/%s/" % (name, version), sha256=sums[0])
    texts = [path for path in glob.glob(information + "/**", recursive=True) if wheels.LICENCE.search(path) and os.path.isfile(path)]
    if not texts:
        raise Failure(EXIT_MISSING, "there is no licence in %s; remove it and run this again" % information)
    part.texts = [copy_text(top, name, path) for path in sorted(texts)]
    return part


def recorded_libraries(directories):
    """{file name of a library: dist-info of its wheel}"""
    owners = {}
    for information in sorted(path for directory in directories for path in glob.glob(directory + "/*.dist-info")):
        with open(os.path.join(information, "RECORD"), encoding="utf-8", newline="") as stream:
            owners.update({os.path.basename(row[0]): information for row in csv.reader(stream) if ".so" in row[0]})
    return owners


def parts_of(top, version, copied, directories):
    """Our part, and a list of the others."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ours = sbom.Part("bert", version, "NOASSERTION", "", "Apache-2.0")
    ours.texts = [copy_text(top, "bert", root + "/LICENSE")]
    recorded, parts = recorded_libraries(directories), {}
    for file in programs_in(top):
        name = os.path.basename(file)
        if file in copied:
            key = debian_package(copied[file])
            part = parts.get(key) or debian_part(top, key)
        elif not file.startswith("lib/bert/"):
            ours.files.append(file)
            continue
        elif name in recorded:
            key = recorded[name]
            part = parts.get(key) or wheel_part(top, key)
        else:
            raise Failure(EXIT_MISSING, "%s is of no wheel in %s, so its licence is unknown" % (file, " ".join(directories)))
        parts[key] = part
        part.files.append(file)
    for package in COMPILED_IN:
        parts[package] = debian_part(top, package)
    return ours, list(parts.values())


def make_tar(stage, output, seconds):
    tar = ["tar", "-C", os.path.dirname(stage), "--sort=name", "--mtime=@%d" % seconds, "--owner=0", "--group=0", "--numeric-owner",
           "--mode=u=rwX,go=rX", "--format=gnu", "-cf", "-", os.path.basename(stage)]
    packer = ["zstd", "-q", "-19", "-T2", "-c"] if output.endswith(".zst.new") else ["gzip", "-n", "-9", "-c"]
    if not shutil.which(packer[0]):
        raise Failure(EXIT_MISSING, "there is no %s; install it" % packer[0])
    with open(output, "wb") as stream:
        writer = subprocess.Popen(tar, stdout=subprocess.PIPE)
        code = subprocess.run(packer, stdin=writer.stdout, stdout=stream).returncode
        writer.stdout.close()
        if writer.wait() != 0 or code != 0:
            raise Failure(EXIT_IO, "tar or %s failed while it wrote %s" % (packer[0], output))


def devices(stage):
    """The devices that the LibTorch in `stage` computes on, in words."""
    cuda = any("libtorch_cuda.so" in names for _, _, names in os.walk(stage))
    return "NVIDIA GPUs and the CPU" if cuda else "the CPU"


def make_deb(stage, output, version, seconds):
    """The tree goes to /opt/bert, and the programs are linked from /usr/bin. Its libraries are inside, so it depends on little."""
    libc = run("dpkg-query", "-W", "-f", "${Version}", "libc6").partition("-")[0]
    libstdcxx = run("dpkg-query", "-W", "-f", "${Version}", "libstdc++6").partition(".")[0]
    with tempfile.TemporaryDirectory(dir=os.path.dirname(stage)) as top:
        os.chmod(top, 0o755)
        for directory in ("DEBIAN", "opt", "usr/bin"):
            os.makedirs(os.path.join(top, directory))
        shutil.copytree(stage, top + "/opt/bert", symlinks=True, copy_function=os.link)
        for program in sorted(os.listdir(stage + "/bin")):
            os.symlink("../../opt/bert/bin/" + program, top + "/usr/bin/" + program)
        for directory in glob.glob(stage + "/share/man/man?") + glob.glob(stage + "/share/*-completion*/completions"):
            shutil.copytree(directory, os.path.join(top, "usr", os.path.relpath(directory, stage)), symlinks=True)
        size = int(run("du", "-sk", "--apparent-size", top + "/opt").split()[0])
        with open(top + "/DEBIAN/control", "w", encoding="utf-8") as stream:
            stream.write("Package: bert\nVersion: %s\nArchitecture: amd64\nMaintainer: the authors of bert <bert@localhost>\nInstalled-Size: %d\n"
                         "Depends: libc6 (>= %s), libstdc++6 (>= %s), libgcc-s1\nSection: science\nPriority: optional\n"
                         "Description: BERT pre-training in C++ on LibTorch, for %s\n" % (version, size, libc, libstdcxx, devices(stage)))
        run("chmod", "-R", "u=rwX,go=rX", top)
        environment = dict(os.environ, SOURCE_DATE_EPOCH=str(seconds))
        made = subprocess.run(["dpkg-deb", "-Zgzip", "--root-owner-group", "--build", top, output], env=environment, stdout=subprocess.DEVNULL)
        if made.returncode != 0:
            raise Failure(EXIT_IO, "dpkg-deb failed while it wrote %s" % output)


def main(stage, output, version, seconds, directories):
    copied = copy_debian_libraries(stage)
    strip_and_point(stage)
    ours, parts = parts_of(stage, version, copied, directories)
    sbom.write(os.path.join(stage, "share/doc/bert/sbom.spdx.json"), sbom.document(stage, ours, parts, seconds))
    new = output + ".new"
    try:
        if output.endswith(".deb"):
            make_deb(stage, new, version, seconds)
        else:
            make_tar(stage, new, seconds)
        os.replace(new, output)
    finally:
        if os.path.exists(new):
            os.remove(new)


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    try:
        main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5:])
    except Failure as failure:
        wheels.say(str(failure))
        sys.exit(failure.code)
    except OSError as error:
        wheels.say("%s: %s" % (error.filename or "cannot write", error.strerror))
        sys.exit(EXIT_IO)
    except KeyboardInterrupt:
        sys.exit(130)
