"""Builds the wheel: for `make wheel` as a program, for pip as the build backend that pyproject.toml names (PEP 517, PEP 660).

Standard library only, so that a machine without network can build; equal sources give equal bytes.

    build_wheel.py DIRECTORY [PROGRAM]     PROGRAM: the program `depthscope`, which becomes part of the wheel
"""
import ast
import base64
import gzip
import hashlib
import io
import os
import re
import struct
import sys
import tarfile
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATE = max((1980, 1, 1, 0, 0, 0), time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "0")))[:6])  # the oldest that a zip file can hold


def text_of(*path):
    with open(os.path.join(HERE, *path), encoding="utf-8") as f:
        return f.read()


def project():
    """Names and values of [project] and its optional dependencies: every value of pyproject.toml is on one line."""
    got, section = {}, ""
    for line in text_of("pyproject.toml").splitlines():
        m = re.match(r"\[(.+)\]$", line)
        section = m.group(1) if m else section
        m = re.match(r"([\w-]+) = (.+)$", line)
        if m and section.startswith("project"):
            value = re.sub(r"^\{text = (.*)\}$", r"\1", m.group(2))
            got[section.partition(".")[2], m.group(1)] = ast.literal_eval(value)
    got["", "version"] = re.search(r'__version__ = "(.+)"', text_of("depthscope", "_version.py")).group(1)
    return got


def metadata(p):
    lines = ["Metadata-Version: 2.1", "Name: " + p["", "name"], "Version: " + p["", "version"], "Summary: " + p["", "description"],
             "License: " + p["", "license"], "Requires-Python: " + p["", "requires-python"]]
    for (section, extra), packages in p.items():
        if section == "optional-dependencies":
            lines += ["Provides-Extra: " + extra] + ['Requires-Dist: %s; extra == "%s"' % (x, extra) for x in packages]
    return "\n".join(lines + ["Description-Content-Type: text/markdown", "", text_of("README.md")])


def sources():
    """Paths of the package, in a fixed order."""
    return sorted("depthscope/" + n for n in os.listdir(os.path.join(HERE, "depthscope")) if n.endswith(".py") or n == "py.typed")


def platforms(path, data):
    """Where a program runs, as tags of wheels.  A static one needs no C library, so all that name an old enough kernel are true."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("%s: not a 64-bit ELF program; make wheel BINARY= builds the package without one" % path)
    version = project()["", "version"]
    if ("depthscope %s\n" % version).encode() not in data:
        raise SystemExit("%s: not depthscope %s, the version of the package" % (path, version))
    machine = {62: "x86_64", 183: "aarch64"}[struct.unpack_from("<H", data, 18)[0]]
    at, (size, number) = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<HH", data, 54)
    has_loader = any(struct.unpack_from("<I", data, at + i * size)[0] == 3 for i in range(number))  # PT_INTERP
    return [x + machine for x in (["linux_"] if has_loader else ["manylinux2014_", "manylinux_2_17_", "musllinux_1_1_"])]


def write(directory, files, tag):
    """A wheel of these files: name -> bytes."""
    p = project()
    stem = "%s-%s" % (p["", "name"], p["", "version"])
    info = stem + ".dist-info/"
    files = dict(files)
    files[info + "METADATA"] = metadata(p).encode()
    tags = ["py3-none-" + x for x in tag.rpartition("-")[2].split(".")]
    files[info + "WHEEL"] = ("Wheel-Version: 1.0\nGenerator: depthscope\nRoot-Is-Purelib: %s\n%s" %
                             (str(tags == ["py3-none-any"]).lower(), "".join("Tag: %s\n" % x for x in tags))).encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record += "%s,sha256=%s,%d\n" % (name, digest, len(data))
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    wheel = "%s-%s.whl" % (stem, tag)
    temporary = os.path.join(directory, ".%s.%d.tmp" % (wheel, os.getpid()))
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            item = zipfile.ZipInfo(name, DATE)
            item.compress_type, item.external_attr = zipfile.ZIP_DEFLATED, (0o100755 if ".data/scripts/" in name else 0o100644) << 16
            z.writestr(item, data)
    os.replace(temporary, os.path.join(directory, wheel))
    return wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write(wheel_directory, {n: text_of(n).encode() for n in sources()}, "py3-none-any")


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return write(wheel_directory, {"depthscope.pth": (HERE + "\n").encode()}, "py3-none-any")


def build_with(wheel_directory, program):
    """The package, and the program among its scripts: pip leaves one alone that does not begin with #!python."""
    p = project()
    with open(program, "rb") as f:
        data = f.read()
    files = {n: text_of(n).encode() for n in sources()}
    files["%s-%s.data/scripts/depthscope" % (p["", "name"], p["", "version"])] = data
    return write(wheel_directory, files, "py3-none-" + ".".join(platforms(program, data)))


def build_sdist(sdist_directory, config_settings=None):
    p = project()
    stem = "%s-%s" % (p["", "name"], p["", "version"])
    with open(os.path.join(sdist_directory, stem + ".tar.gz"), "wb") as f, gzip.GzipFile("", "wb", fileobj=f, mtime=0) as z, \
            tarfile.open(fileobj=z, mode="w") as t:
        for name, data in [("PKG-INFO", metadata(p))] + [(n, text_of(n)) for n in sources() + ["pyproject.toml", "README.md", "build_wheel.py"]]:
            item = tarfile.TarInfo("%s/%s" % (stem, name))
            item.size = len(data.encode())
            t.addfile(item, io.BytesIO(data.encode()))
    return stem + ".tar.gz"


if __name__ == "__main__":
    target = sys.argv[1]
    os.makedirs(target, exist_ok=True)
    print(os.path.join(target, build_with(target, sys.argv[2]) if len(sys.argv) > 2 else build_wheel(target)))
