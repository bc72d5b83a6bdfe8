"""depthscope get against a server of this machine: whole, resumed, corrupted, cut off, refused, interrupted.
DEPTHSCOPE names the program."""
import hashlib
import http.server
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, SLOW, refused, test  # noqa: E402

BODY = bytes((i * 7 + i // 251) & 255 for i in range(300000))
SUM = hashlib.sha256(BODY).hexdigest()
served = []  # (path, Range or None) of each GET
poured = [0]  # bytes that an endless answer sent beyond the file


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        served.append((self.path, self.headers.get("Range")))
        self.answer(True)

    def endless(self, start, body):
        """The right bytes, and then more for as long as anyone listens, with no word about a length."""
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, len(BODY) - 1, len(BODY)))
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        try:
            self.wfile.write(BODY[start:])
            for _ in range(2000 if body else 0):
                self.wfile.write(b"more" * 16384)
                poured[0] += 65536
        except OSError:
            pass

    def answer(self, body):
        mode = self.path.strip("/").split("/")[0]
        if mode == "redirect":
            self.send_response(302)
            self.send_header("Location", "/endless/x")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if mode == "endless":
            self.endless(int((self.headers.get("Range") or "=0-").split("=")[1].split("-")[0]), body)
            return
        data, start, status = BODY, 0, 200
        if mode == "missing":
            data, status = b"not here", 404
        elif mode == "page":
            data = b"<!DOCTYPE html><html>sign in</html>"
        elif mode == "corrupt":
            data = BODY[:1000] + b"\x55" + BODY[1001:]
        elif mode == "short":
            data = BODY[:-10]
        wanted = self.headers.get("Range")
        if wanted and mode != "norange" and status == 200:
            start = int(wanted.split("=")[1].split("-")[0])
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.send_header("Content-Range", "bytes */%d" % len(data))  # with it, curl calls the 416 an error
                self.end_headers()
                return
            status = 206
        self.send_response(status)
        if mode == "nolength":
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(data) - start))
        if status == 206:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, len(data) - 1, len(data)))
        if mode == "hub":
            self.send_header("X-Linked-ETag", '"%s"' % SUM)
            self.send_header("X-Linked-Size", str(len(BODY)))
        self.end_headers()
        if not body:
            return
        end = len(data)
        if mode == "cut":  # 100,000 bytes an answer, then the connection breaks
            end = min(end, start + 100000)
        if mode == "stuck":
            end = max(start, 50000)
        if mode == "slow" and not wanted:
            for at in range(0, end, 10000):
                try:
                    self.wfile.write(data[at:at + 10000])
                except OSError:
                    return
                time.sleep(0.1)
            return
        try:
            self.wfile.write(data[start:end])
        except OSError:
            pass
        if end < len(data):
            self.close_connection = True


def table(mode, size=len(BODY), sha=SUM, name="a.bin"):
    with open("known.yaml", "w") as f:
        f.write("thing:\n  kind: model\n  licence: MIT\n  about: a thing\n  f1: %s %s %s https://example.invalid/%s/x\n"
                % (name, size, sha, mode))


def start(*words, **env):
    return subprocess.Popen([PROGRAM, "get", "thing", "known=known.yaml", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, start_new_session=True,
                            env={**os.environ, "DEPTHSCOPE_MIRROR": URL, "NO_PROXY": "*", "XDG_STATE_HOME": os.path.abspath("state"), **env})


def get(*words, code=0, **env):
    p = start(*words, **env)
    out, err = p.communicate(timeout=60 * SLOW)
    err = err.decode()
    assert p.returncode == code, (p.returncode, err)
    if code:
        assert err.startswith("depthscope: ") and err.count("\n") == 1, "not one line: %r" % err
    return out.decode() if code == 0 else err


def whole(path="thing/a.bin"):
    with open(path, "rb") as f:
        assert f.read() == BODY
    assert not os.path.exists(path + ".part")


@test
def a_file_is_fetched_once_and_complete():
    table("plain")
    assert "checksum verified" in get()
    whole()
    n = len(served)
    assert "already present" in get()
    assert len(served) == n
    x = json.loads(get("--json", "-o", "other"))
    whole("other/a.bin")
    assert x["files"] == [{"name": "a.bin", "bytes": len(BODY), "sha256": SUM, "checked": True, "was_there": False}]


@test
def an_earlier_try_is_resumed():
    table("plain")
    os.mkdir("thing")
    with open("thing/a.bin.part", "wb") as f:
        f.write(BODY[:123456])
    get()
    whole()
    assert served[-1][1] == "bytes=123456-", served[-1]


@test
def a_server_without_ranges_restarts_the_transfer():
    table("norange")
    os.mkdir("thing")
    with open("thing/a.bin.part", "wb") as f:
        f.write(BODY[:1000])
    get()
    whole()


@test
def a_complete_part_needs_no_server():
    table("missing")
    os.mkdir("thing")
    with open("thing/a.bin.part", "wb") as f:
        f.write(BODY)
    get()
    whole()


@test
def a_complete_part_of_unknown_size_is_verified_by_checksum():
    table("nolength", size="-")
    os.mkdir("thing")
    with open("thing/a.bin.part", "wb") as f:
        f.write(BODY)
    assert "checksum verified" in get()
    whole()
    os.rename("thing/a.bin", "thing/a.bin.part")
    with open("thing/a.bin.part", "ab") as f:
        f.write(b"more")
    assert "a.bin.bad" in get(code=1)
    get()
    whole()


@test
def a_part_without_size_and_checksum_is_reported():
    table("nolength", size="-", sha="-")
    os.mkdir("thing")
    with open("thing/a.bin.part", "wb") as f:
        f.write(BODY)
    err = get(code=1)
    assert "thing/a.bin.part" in err and "remove it" in err and str(len(BODY)) in err, err
    assert os.listdir("thing") == ["a.bin.part"]
    os.remove("thing/a.bin.part")
    get()
    whole()


@test
def a_broken_connection_is_retried():
    table("cut")
    get()
    whole()
    assert [r for _, r in served] == [None, "bytes=100000-", "bytes=200000-"], served


@test
def a_retry_without_progress_is_reported_and_resumed_later():
    table("stuck")
    err = get(code=1)
    assert "transfer interrupted, 50000 bytes received" in err, err
    assert os.path.getsize("thing/a.bin.part") == 50000
    table("plain")
    get()
    whole()
    assert served[-1][1] == "bytes=50000-", served


@test
def a_checksum_mismatch_reports_both_and_keeps_the_file():
    table("corrupt")
    err = get(code=1)
    assert SUM in err and err.count("SHA-256") == 1 and "a.bin.bad" in err, err
    assert not os.path.exists("thing/a.bin") and not os.path.exists("thing/a.bin.part")
    assert os.path.getsize("thing/a.bin.bad") == len(BODY)
    table("plain")
    get()
    whole()


@test
def a_size_mismatch_reports_both():
    table("short")
    err = get(code=1)
    assert str(len(BODY)) in err and str(len(BODY) - 10) in err, err
    table("plain", size=len(BODY) - 5)
    err = get(code=1)
    assert "larger than the expected %d bytes" % (len(BODY) - 5) in err, err
    assert os.listdir("thing") == ["a.bin.bad"]


@test
def an_endless_response_is_stopped_at_the_known_size():
    for mode, begun in (("endless", 0), ("redirect", 0), ("endless", 100000), ("redirect", 299999)):
        table(mode)
        os.mkdir("thing")
        if begun:
            with open("thing/a.bin.part", "wb") as f:
                f.write(BODY[:begun])
        poured[0] = 0
        err = get(code=1)
        assert "larger than the expected %d bytes of a.bin" % len(BODY) in err and "a.bin.bad" in err, err
        assert os.listdir("thing") == ["a.bin.bad"] and os.path.getsize("thing/a.bin.bad") == len(BODY), os.listdir("thing")
        assert poured[0] < 64 << 20, poured  # what pipes and sockets hold, not all of it
        shutil.rmtree("thing")


@test
def two_downloads_to_one_name_do_not_mix():
    table("slow")
    p = start()
    end = time.time() + 30 * SLOW
    while time.time() < end and not os.path.exists("thing/a.bin.part"):
        time.sleep(0.02)
    assert "locked by another download" in get(code=1)
    out, err = p.communicate(timeout=60 * SLOW)
    assert p.returncode == 0, err
    whole()


@test
def a_download_ends_with_the_process_that_asked_for_it():
    table("slow")
    p = start()
    end = time.time() + 30 * SLOW
    while time.time() < end and not (os.path.exists("thing/a.bin.part") and os.path.getsize("thing/a.bin.part")):
        time.sleep(0.02)
    p.kill()
    p.wait()
    have = os.path.getsize("thing/a.bin.part")
    get()  # nobody writes there any more, or this one would be refused
    whole()
    assert served[-1][1] == "bytes=%d-" % have, (served[-1], have)


@test
def a_file_size_limit_is_one_line():
    table("plain")
    p = subprocess.run(["sh", "-c", "ulimit -f 100; exec \"$0\" get thing known=known.yaml", PROGRAM], stderr=subprocess.PIPE,
                       timeout=60 * SLOW, env={**os.environ, "DEPTHSCOPE_MIRROR": URL, "NO_PROXY": "*"})
    assert p.returncode == 1 and b"File too large" in p.stderr and p.stderr.count(b"\n") == 1, p.stderr
    get()
    whole()


@test
def a_missing_file_reports_url_and_status():
    table("missing")
    err = get(code=1)
    assert "404" in err and "/missing/x" in err, err
    assert os.listdir("thing") == []


@test
def an_html_page_instead_of_a_file_is_detected():
    table("page")
    assert "HTML page" in get(code=1)
    table("page", size="-", sha="-")
    assert "HTML page" in get(code=1)
    assert not os.path.exists("thing/a.bin")


@test
def a_checksum_from_the_server_is_used_and_a_missing_one_is_reported():
    table("hub", size="-", sha="-")
    assert "checksum verified" in get()
    whole()
    shutil.rmtree("thing")
    table("plain", size="-", sha="-")
    out = get()
    assert "NOT VERIFIED" in out and SUM in out, out
    whole()


@test
def a_first_download_is_recorded_and_later_ones_compared():
    def listed(**env):
        out = subprocess.run([PROGRAM, "get", "--list", "known=known.yaml", "--json"], stdout=subprocess.PIPE, timeout=60,
                             env={**os.environ, "XDG_STATE_HOME": os.path.abspath("state"), **env})
        return json.loads(out.stdout)[0]["files"][0]["verified"]

    table("plain", size="-", sha="-")
    assert listed() is False
    assert "recorded for later downloads" in get()
    assert open("state/depthscope/downloads").read() == "%s %d https://example.invalid/plain/x\n" % (SUM, len(BODY))
    assert listed() is True and listed(XDG_STATE_HOME="/nonexistent") is False
    shutil.rmtree("thing")
    x = json.loads(get("--json"))["files"][0]
    assert x["checked"] and x["first_download"] and x["sha256"] == SUM, x
    shutil.rmtree("thing")
    with open("state/depthscope/downloads", "w") as f:
        f.write("junk\n%s %d https://example.invalid/plain/x\n" % ("0" * 64, len(BODY)))
    err = get(code=1)
    assert SUM in err and "0" * 64 in err and "first download" in err and "state/depthscope/downloads" in err, err
    assert os.listdir("thing") == ["a.bin.bad"]
    shutil.rmtree("thing")
    os.remove("state/depthscope/downloads")
    os.rename("state", "kept")
    open("state", "w").close()
    assert "NOT VERIFIED" in get()  # a warning, no failure
    whole()


@test
def a_mirror_is_an_address():
    table("plain")
    for mirror, code, part in (("ftp://example.invalid", 2, "get: mirror ftp://example.invalid: must begin with https:// or http://"),
                               ("http://" + "a" * 600, 1, "get: mirror URL too long")):
        err = get(code=code, DEPTHSCOPE_MIRROR=mirror)
        assert part in err, err
    assert "checksum verified" in get(DEPTHSCOPE_MIRROR=URL + "//")
    shutil.rmtree("thing")


@test
def a_download_shows_its_progress_on_a_terminal():
    table("slow")
    master, slave = pty.openpty()
    env = {**os.environ, "DEPTHSCOPE_MIRROR": URL, "NO_PROXY": "*", "XDG_STATE_HOME": os.path.abspath("state")}
    p = subprocess.Popen([PROGRAM, "get", "thing", "known=known.yaml"], stdout=subprocess.DEVNULL, stderr=slave, env=env)
    os.close(slave)
    seen, end = b"", time.time() + 30 * SLOW
    while b"B/s" not in seen and time.time() < end:
        try:
            seen += os.read(master, 65536)
        except OSError:
            break
    p.send_signal(signal.SIGTERM)
    while True:
        try:
            if not os.read(master, 65536):
                break
        except OSError:
            break
    os.close(master)
    assert p.wait(30 * SLOW) == 1
    assert re.search(rb"\ra\.bin: [\d.]+k?B of 300kB, [\d.]+k?B/s\033\[K", seen), seen
    shutil.rmtree("thing", ignore_errors=True)


@test
def an_interrupted_download_is_kept_and_resumed():
    table("slow")
    for number in (signal.SIGTERM, signal.SIGINT):
        p = start()
        end = time.time() + 30 * SLOW
        while time.time() < end and not (os.path.exists("thing/a.bin.part") and
                                         os.path.getsize("thing/a.bin.part") >= 16384):
            time.sleep(0.02)
        if number == signal.SIGINT:  # as a terminal does: to the whole group
            os.killpg(p.pid, number)
        else:
            p.send_signal(number)
        _, err = p.communicate(timeout=30 * SLOW)
        assert p.returncode == 1 and b"interrupted" in err and err.count(b"\n") == 1, err
        have = os.path.getsize("thing/a.bin.part")
        assert 0 < have < len(BODY)
        get()
        whole()
        assert served[-1][1] == "bytes=%d-" % have, (served[-1], have)
        shutil.rmtree("thing")


@test
def no_network_is_one_line():
    table("plain")
    assert "network unreachable" in get("base_url=http://127.0.0.1:9", code=1)
    p = subprocess.run([PROGRAM, "get", "thing", "known=known.yaml", "base_url=http://127.0.0.1:9"], stderr=subprocess.PIPE,
                       timeout=60, env={**os.environ, "NO_PROXY": "*"},
                       preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert p.returncode == 1 and b"network unreachable" in p.stderr, p.stderr  # the status of curl is not lost
    p = subprocess.run([PROGRAM, "get", "thing", "known=known.yaml"], stderr=subprocess.PIPE, timeout=60,
                       env={**os.environ, "DEPTHSCOPE_MIRROR": URL, "PATH": "/nowhere"})
    assert p.returncode == 1 and b"curl not found" in p.stderr, p.stderr


@test
def an_existing_file_of_that_name_is_kept():
    table("plain")
    os.mkdir("thing")
    with open("thing/a.bin", "w") as f:
        f.write("mine")
    err = get(code=1)
    assert "move it away" in err and SUM in err, err
    assert open("thing/a.bin").read() == "mine"
    table("plain", sha="-")
    err = get(code=1)
    assert "exists with 4 bytes, expected %d" % len(BODY) in err and "move it away" in err, err
    with open("thing/a.bin", "wb") as f:
        f.write(b"x" + BODY[1:])
    table("plain")
    assert "move it away" in get(code=1)


@test
def text_of_the_table_is_sanitised():
    with open("known.yaml", "w") as f:
        f.write("thing:\n  kind: \"mo\\x1b[31mdel\"\n  licence: \"M\\x1b[2JIT\"\n  about: \"a \\x1b]0;x\\x07thing\"\n"
                "  f1: a.bin %d %s https://example.invalid/plain/x\n" % (len(BODY), SUM))
    for words in (("--list", "known=known.yaml"), ("thing", "known=known.yaml")):
        p = subprocess.run([PROGRAM, "get", *words], stdout=subprocess.PIPE, timeout=60, check=True,
                           env={**os.environ, "DEPTHSCOPE_MIRROR": URL, "NO_PROXY": "*"})
        assert b"<0x1B>[31mdel" in p.stdout and b"<0x1B>[2JIT" in p.stdout, p.stdout
        assert not any(c < 32 and c != 10 for c in p.stdout), p.stdout


@test
def columns_of_the_list_stay_aligned():
    table("plain")
    out = subprocess.run([PROGRAM, "get", "--list", "known=known.yaml"], stdout=subprocess.PIPE, timeout=60, check=True).stdout
    assert out == b"thing                model         300kB  a thing (MIT)\n", out


@test
def invalid_tables_are_rejected():
    for line, part in (("../x 1 - https://e/x", "not a valid file name"), ("a 1 - ftp://e/x", "must begin with https://"),
                       ("a x - https://e/x", "must be a non-negative integer"), ("a 1 abc https://e/x", "expected 64 hex digits"), ("a 1", "FILE BYTES")):
        with open("known.yaml", "w") as f:
            f.write("thing:\n  kind: model\n  licence: MIT\n  about: x\n  f1: %s\n" % line)
        assert part in get(code=1)
    table("plain")
    p = subprocess.run([PROGRAM, "get", "thang", "known=known.yaml"], stderr=subprocess.PIPE, timeout=60)
    assert p.returncode == 1 and b"did you mean thing" in p.stderr


@test
def the_list_has_every_name_and_its_addresses_are_pinned():
    out = subprocess.run([PROGRAM, "get", "--list", "--json"], stdout=subprocess.PIPE, timeout=60, check=True).stdout
    known = json.loads(out)
    assert {"stories260k", "tinystories-656k", "tinyshakespeare"} <= {k["name"] for k in known}
    for k in known:
        assert k["licence"] and k["about"] and k["files"], k
        for f in k["files"]:
            assert f["url"].startswith("https://"), f
            assert f["sha256"] or "huggingface.co" in f["url"], f


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
URL = "http://127.0.0.1:%d" % server.server_address[1]
threading.Thread(target=server.serve_forever, daemon=True).start()
t.main(lambda: served.clear(), fresh=True, needs="curl")
