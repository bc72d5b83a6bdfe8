"""What users install: `make install` and `make uninstall` are exact inverses, and the Debian package.  DEPTHSCOPE names the program."""
import gzip
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, ROOT, SANITIZED, Skip, run, test  # noqa: E402

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k not in "MFLAGS DESTDIR PREFIX DATADIR MANDIR BASHDIR ZSHDIR FISHDIR".split()}


def command(*words, code=0, cwd=None, **env):
    p = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**CLEAN, **env}, cwd=cwd, timeout=300)
    text = p.stdout.decode("utf-8", "replace")
    assert p.returncode == code, "%s: exit status %d\n%s" % (words, p.returncode, text)
    return text


def make(*words):
    """Installs the program under test; nothing is built."""
    if not shutil.which("make"):
        raise Skip("make is not installed")
    return command("make", "--no-print-directory", "-o", "all", "BIN=" + PROGRAM, *words, cwd=ROOT)


def tree(top):
    """Every path below a folder with its mode, and what files hold."""
    found = {}
    for folder, folders, names in os.walk(top):
        for n in folders + names:
            path = os.path.join(folder, n)
            data = b""
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    data = f.read()
            found[os.path.relpath(path, top)] = (os.lstat(path).st_mode, data)
    return found


def write(path, text="mine\n"):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)


@test
def uninstall_removes_what_install_wrote_and_nothing_else():
    to = "DESTDIR=" + os.path.abspath("a folder")
    for path in ("usr/local/bin/other", "usr/local/share/man/man1/other.1", "usr/local/share/depthscope/themes/mine.theme"):
        write(os.path.join("a folder", path))
    os.makedirs("a folder/usr/local/share/fish")  # empty, and not made by the program
    before = tree("a folder")
    old = os.umask(0o077)
    make("install", to)
    first = tree("a folder")
    make("install", to)
    os.umask(old)
    assert tree("a folder") == first, "a second install is not the first"
    new = set(first) - set(before)
    assert {p: v for p, v in first.items() if p in before} == before, "files that were there have changed"
    base = "usr/local/share/depthscope/"
    for path in ("usr/local/bin/depthscope", "usr/local/share/man/man1/depthscope.1", base + "data/quick.yaml", base + "data/known/known.yaml",
                 base + "themes/dark.theme", base + "data/reference/KEYS.md", "usr/local/share/bash-completion/completions/depthscope",
                 "usr/local/share/zsh/site-functions/_depthscope", "usr/local/share/fish/vendor_completions.d/depthscope.fish"):
        assert path in new, path
    for path in new:
        mode = first[path][0] & 0o7777
        assert mode == (0o755 if os.path.isdir(os.path.join("a folder", path)) or path.endswith("bin/depthscope") else 0o644), (path, oct(mode))
    with open(os.path.join("a folder", base, "installed.txt")) as f:
        listed = {line[3:-1] for line in f}
    assert new <= listed and all(p in new or os.path.isdir(os.path.join("a folder", p)) for p in listed), new ^ listed
    assert command("a folder/usr/local/bin/depthscope", "--version") == run("--version")
    assert "a folder/usr/local/bin/../share/depthscope/data" in command("a folder/usr/local/bin/depthscope", "doctor"), "its data is not found"
    make("uninstall", to)
    assert tree("a folder") == before, set(tree("a folder")) ^ set(before)
    assert "nothing was installed there" in make("uninstall", to) and tree("a folder") == before


@test
def a_newer_version_removes_files_that_it_no_longer_has():
    to = ["DESTDIR=" + os.path.abspath("b"), "PREFIX=/opt/with blank"]
    make("install", *to)
    write("b/opt/with blank/share/depthscope/data/old/gone.yaml")
    with open("b/opt/with blank/share/depthscope/installed.txt", "a") as f:
        f.write("d /opt/with blank/share/depthscope/data/old\nf /opt/with blank/share/depthscope/data/old/gone.yaml\n")
    make("install", *to)
    assert not os.path.exists("b/opt/with blank/share/depthscope/data/old/gone.yaml")
    assert os.path.exists("b/opt/with blank/share/depthscope/data/quick.yaml")
    make("uninstall", *to)
    assert os.listdir("b") == [], tree("b").keys()


# ---- Debian ----

built = {}


def package():
    """The package of the program under test, made and checked once: its path, and what was printed."""
    for name in ("dpkg-deb", "dpkg-shlibdeps", "strip"):
        if not shutil.which(name):
            raise Skip("%s is not installed (dpkg-dev, binutils)" % name)
    if SANITIZED:
        raise Skip("an instrumented program is not packaged")
    if json.loads(run("--version", "--json"))["static"]:
        raise Skip("a static program is not for Debian, whose libraries it would hold")
    if not built:
        built["text"] = pack(os.path.abspath("out"))
        built["path"] = re.search(r"^(.*\.deb)$", built["text"], re.M).group(1)
    return built["path"], built["text"]


def pack(directory, **env):
    return command("sh", "src/packages/deb.sh", PROGRAM, directory, cwd=ROOT, DEBFULLNAME="Some One", DEBEMAIL="some@one.invalid", **env)


@test
def the_debian_package_is_clean_and_reproducible():
    path, out = package()
    version = run("--version").split()[1]
    fields = dict(line.split(": ", 1) for line in command("dpkg-deb", "-f", path).splitlines() if not line.startswith(" "))
    assert fields["Version"] == version and fields["Maintainer"] == "Some One <some@one.invalid>", fields
    for library in ("libc6 ", "libcairo2 ", "libncursesw6 "):
        assert library in fields["Depends"], fields["Depends"]
    again = pack(os.path.abspath("again"), LINTIAN="").strip()
    with open(path, "rb") as one, open(again, "rb") as two:
        assert one.read() == two.read(), "equal inputs gave other bytes"
    command("dpkg-deb", "-x", path, "x")
    write("./sums", command("dpkg-deb", "-I", path, "md5sums"))
    command("md5sum", "-c", "--quiet", os.path.abspath("sums"), cwd="x")
    files = {p for p in tree("x") if os.path.isfile(os.path.join("x", p))}
    with open("sums") as f:
        assert {line.split("  ", 1)[1].rstrip("\n") for line in f} == files
    for name in ("usr/share/man/man1/depthscope.1.gz", "usr/share/doc/depthscope/copyright", "usr/share/zsh/vendor-completions/_depthscope",
                 "usr/share/bash-completion/completions/depthscope", "usr/share/fish/vendor_completions.d/depthscope.fish"):
        assert name in files, name
    with gzip.open("x/usr/share/doc/depthscope/changelog.gz", "rt") as f:
        changes = f.read()
    assert changes.startswith("depthscope (%s) " % version) and max(map(len, changes.splitlines())) <= 80
    if "lintian is not installed" in out:
        raise Skip("lintian is not installed: the package was not checked")


@test
def the_debian_package_installs_runs_and_leaves_nothing():
    if os.geteuid() != 0:
        raise Skip("only root installs packages, also below another folder")
    if not shutil.which("dpkg"):
        raise Skip("dpkg is not installed")
    path, _ = package()
    for name in ("info", "updates", "triggers"):
        os.makedirs("root/var/lib/dpkg/" + name)
    for name in ("status", "available"):
        open("root/var/lib/dpkg/" + name, "w").close()
    write("root/usr/share/man/man1/other.1")

    def dpkg(*words):
        # dependencies are those of the machine; nothing in the package runs at installation
        return command("dpkg", "--root=" + os.path.abspath("root"), "--force-depends", "--log=/dev/null", *words,
                       PATH=CLEAN.get("PATH", "") + ":/usr/sbin:/sbin")

    def ours():
        return {p for p in tree("root") if not p.startswith("var/")}

    before = ours()
    dpkg("-i", path)
    assert command("root/usr/bin/depthscope", "--version") == run("--version")
    assert "root/usr/bin/../share/depthscope/data" in command("root/usr/bin/depthscope", "doctor")
    assert dpkg("--verify", "depthscope") == ""
    dpkg("-r", "depthscope")
    assert ours() == before, ours() ^ before
    dpkg("-P", "depthscope")
    left = [n for n in os.listdir("root/var/lib/dpkg/info") if n.startswith("depthscope")]
    assert not left and "Package: depthscope" not in open("root/var/lib/dpkg/status").read(), left


t.main(fresh=True)
