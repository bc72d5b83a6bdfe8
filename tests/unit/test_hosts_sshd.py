"""Lists and streams through a real server of ssh: paths with everything that a shell reads, thousands of runs, pipes that nobody empties.
DEPTHSCOPE names the program."""
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import sshd  # noqa: E402
import t  # noqa: E402
from records import Log  # noqa: E402
from t import PROGRAM, SLOW, refused, run_json, test  # noqa: E402

NAME = "it's \"a\" $(touch owned) `touch owned`; touch owned & x\\\n -oProxyCommand=x *\u00fc"


def run_at(path, steps=3):
    log = Log(path + "/log.mp")
    log.put("head", 0, run="x", run_id="ab", method="edp", layers=2, steps=steps)
    for i in range(1, steps + 1):
        log.put("metric", i, loss=5.0 - i)


def list_of(site, root, **kw):
    return run_json("runs", "a:" + root, DEPTHSCOPE_SSH=site.ssh, HOME=site.folder, XDG_STATE_HOME="", **kw)


@test
def a_shell_at_the_far_end_reads_nothing_of_a_path():
    with sshd.Site("a") as site:
        home = site.host["a"].home
        for top in (os.path.abspath(NAME), os.path.join(home, NAME)):
            run_at(os.path.join(top, NAME))
        for root in (os.path.abspath(NAME), "~/" + NAME):
            rows = list_of(site, root)
            assert [r["name"] for r in rows] == [NAME], (root, rows)
        os.remove(site.host["a"].folder + "/bin/depthscope")  # the script has the same to say
        os.symlink(sys.executable, site.host["a"].folder + "/bin/python3")
        assert [r["name"] for r in list_of(site, "~/" + NAME)] == [NAME]
        refused("no such folder", "runs", "a:~/$(touch owned)", code=1, DEPTHSCOPE_SSH=site.ssh, HOME=site.folder, XDG_STATE_HOME="")
        for folder in (".", home, site.folder):
            assert not os.path.exists(os.path.join(folder, "owned")), "a shell read the path"


@test
def a_host_key_that_changed_is_refused_in_one_line():
    with sshd.Site("a") as site:
        with open(site.folder + "/known", "w") as f, open(site.folder + "/key.pub") as other:
            f.write("a " + " ".join(other.read().split()[:2]) + "\n")
        refused("Host key verification failed", "runs", "a:x", code=1, DEPTHSCOPE_SSH=site.ssh, HOME=site.folder, XDG_STATE_HOME="")


@test
def thousands_of_runs_are_listed():
    runs = 10000 if t.LONG else 2000
    run_at("many/0")
    with open("many/0/log.mp", "rb") as f:
        data = f.read()
    for i in range(1, runs):
        os.mkdir("many/%d" % i)
        with open("many/%d/log.mp" % i, "wb") as f:
            f.write(data)
    with sshd.Site("a", relay={}) as site:
        start = time.time()
        rows = list_of(site, os.path.abspath("many"))
        took = time.time() - start
        assert len(rows) == runs and {r["name"] for r in rows} == {str(i) for i in range(runs)}
        print("  %d runs in %.1f s, %d B on the line" % (runs, took, site.relay["a"].total()))
        assert took < 20 * SLOW, took


@test
def the_slow_line_counts_every_byte_and_is_as_slow_as_it_says():
    up, down, rate, delay = b"q" * 10000, os.urandom(20000), 20000, 0.15
    for shaped in (0, 1):
        server = socket.create_server(("127.0.0.1", 0))
        heard = []

        def answer():
            with server.accept()[0] as s:
                while sum(map(len, heard)) < len(up):
                    heard.append(s.recv(65536))
                s.sendall(down)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        line = sshd.Relay(server.getsockname()[1], rate * shaped, delay * shaped)
        with socket.create_connection(("127.0.0.1", line.here)) as s:
            began = time.monotonic()
            s.sendall(up)
            got = s.recv(65536)
            first = time.monotonic() - began
            while len(got) < len(down):
                got += s.recv(65536)
            took = time.monotonic() - began
        thread.join()
        line.close()
        server.close()
        assert b"".join(heard) == up and got == down, "the line changed a byte"
        assert (line.up, line.down, line.total()) == (len(up), len(down), len(up) + len(down))
        if shaped:
            assert first >= len(up) / rate + 2 * delay, first
            assert took >= (len(up) + len(down)) / rate + 2 * delay, took


@test
def an_agent_whose_pipe_nobody_empties_waits_and_ends_with_it():
    for i in range(300):
        run_at("runs/%d" % i)
    p = subprocess.Popen([PROGRAM, "agent", "runs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdin.write(b'{"do":"open","protocol":1}\n{"do":"list"}\n' + b'{"do":"command","id":1,"run":"x","line":"status"}\n' * 700)  # their answers are more than a pipe holds
    p.stdin.flush()
    time.sleep(1.5)
    before = sshd.rss(p.pid)
    assert p.poll() is None and before < 60e6 * SLOW, before
    p.stdin.close()
    p.stdout.close()
    p.wait(10 * SLOW)


t.main(fresh=True)
