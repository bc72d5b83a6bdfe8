"""serve(): the requests of `depthscope serve` about a PyTorch model, on its own pipes, through the program, and from the Stepper."""
import atexit
import functools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from kit import PROGRAM, SLOW, environment, needs, script  # noqa: E402
import t  # noqa: E402
from t import run, test  # noqa: E402

from depthscope import _serve  # noqa: E402
from depthscope._log import frame_body, frame_length  # noqa: E402
from depthscope._msgpack import unpack  # noqa: E402

SERVER = os.path.join(HERE, "serve_tiny.py")
LAYERS, CONTEXT = 4, 40


class Session:
    """A client of a process that answers requests; by default `depthscope serve` of the shared server's socket."""

    def __init__(self, *words, **env):
        self.p = subprocess.Popen(words or [PROGRAM, "serve", shared_socket()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, env=environment(**env))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:  # the server must be free for the next test
            self.p.kill()
        self.p.stdin.close()
        status, rest = self.p.wait(60 * SLOW), self.p.stdout.read()
        assert kind or (status == 0 and rest == b""), (status, rest)

    def send(self, request):
        self.p.stdin.write((request if isinstance(request, str) else json.dumps(request)).encode() + b"\n")
        self.p.stdin.flush()

    def record(self):
        head = self.p.stdout.read(6)
        assert len(head) == 6, "the answers ended"
        n = frame_length(head)
        got = frame_body(head + self.p.stdout.read(n - len(head)))
        assert got is not None, "not a whole record"
        seq, body = got
        return unpack(body)

    def answers(self):
        """Records up to "done" or "error"."""
        got = []
        while not got or got[-1]["kind"] not in ("done", "error"):
            got.append(self.record())
        return got

    def ask(self, request):
        self.send(request)
        got = self.answers()
        assert got[-1]["kind"] == "done", got[-1].get("text")
        return got[0]


def start_server(path, **env):
    p = subprocess.Popen([needs("torch"), SERVER, path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                         env=environment(**env))
    line = p.stderr.readline().decode()
    assert "depthscope %s" % path in line, line
    return p


def end_server(p, path):
    p.send_signal(signal.SIGINT)
    p.wait(60 * SLOW)
    assert not os.path.exists(path)


@functools.lru_cache(maxsize=None)
def shared_socket():
    """The socket of the one server that most tests talk to, one session after the other; starting one takes seconds."""
    directory = tempfile.mkdtemp(prefix="ds-serve-")
    path = os.path.join(directory, "tiny.sock")
    try:
        p = start_server(path)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise

    def end():
        p.kill()
        p.wait()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(end)
    assert os.stat(path).st_mode & 0o077 == 0
    return path


def floats(x):
    return list(struct.unpack("<%df" % (len(x) // 4), x))


def near(got, want, tolerance=1e-5):
    assert len(got) == len(want) and all(abs(a - b) <= tolerance for a, b in zip(got, want)), (got, want)


@test
def a_session_traces_forces_and_continues():
    with Session() as s:
        head = s.ask({"do": "info"})
        assert (head["kind"], head["layers"], head["context"], head["run"]) == ("head", LAYERS, CONTEXT, "tiny")
        plain = s.ask({"do": "trace", "text": "hello there", "lens": 3})
        assert plain["ids"] == list(b"hello there") and plain["lens_k"] == 3 and "token" not in plain
        assert bytes(plain["run"]) == b"\1" * (LAYERS * 11) and "inferred" not in plain
        forced = s.ask({"do": "force", "layer": 2, "token": 4, "run": 0})
        want = bytearray(b"\1" * (LAYERS * 11))
        want[2 * 11 + 4] = 0
        assert bytes(forced["run"]) == bytes(want) and "inferred" not in forced
        nll, delta = floats(forced["nll"]), floats(forced["token"]["delta_loss"])
        near(delta[1:], [a - b for a, b in zip(nll[1:], floats(plain["nll"])[1:])])
        near(delta[1:5], [0] * 4)  # the past of a causal model
        assert max(abs(x) for x in delta[5:]) > 1e-4
        # on pipes: the same model, which skips the cell itself
        with Session(needs("torch"), SERVER, TINY_SKIP="2 4") as other:
            own = other.ask({"do": "trace", "text": "hello there"})
            near(nll[1:], floats(own["nll"])[1:])
            assert bytes(own["run"]) == bytes(want) and own["inferred"] == ["run"]
        freed = s.ask({"do": "force", "layer": 2, "token": 4, "run": -1})
        near(floats(freed["nll"])[1:], floats(plain["nll"])[1:])
        assert "token" not in freed
        more = s.ask({"do": "next", "temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 1})
        assert more["ids"][:11] == plain["ids"] and len(more["ids"]) == 12
        again = s.ask({"do": "trace", "ids": [1, 2, 3], "generate": 2})
        assert len(again["ids"]) == 5
        assert s.ask({"do": "offset", "value": 0})["kind"] == "probe"


@test
def wrong_requests_are_answered_and_the_session_lives_on():
    with Session() as s:
        for request, part in (({"do": "next"}, "no text yet"), ({"do": "dance"}, "trace, next"), ("{", "request"), ("[]", '"do"'),
                              ({"do": "trace", "text": ""}, "empty"), ({"do": "trace", "ids": [999]}, "ids[0]"), ({"do": "trace"}, "expected"),
                              ({"do": "trace", "text": "x" * 41}, "at most 40"), ({"do": "trace", "text": "a", "lens": 17}, '"lens"'),
                              ({"do": "force", "layer": 0, "token": 0, "run": 1}, "no text yet"), ({"do": "offset", "value": 1}, "no known threshold"),
                              ({"do": "generate"}, 'expected "text"'), ({"do": "generate", "text": "a", "keep": 1}, "keep"),
                              ({"do": "generate", "text": "a", "top": 21}, "0 to 20"), ({"do": "generate", "text": "a", "top_p": 0}, "top_p above 0"),
                              ({"do": "generate", "text": "a", "speculate": 4}, "drafts are unsupported"),
                              ({"do": "chat", "text": "a"}, "unsupported"), ({"do": "compare", "text": "a", "other": "b"}, "unsupported"),
                              ({"do": "save"}, 'expected "file"'), ({"do": "save", "file": "runs/a/log.mp"}, "log.mp"), ({"do": 3}, '"do"')):
            s.send(request)
            got = s.answers()
            assert got[-1]["kind"] == "error" and part in got[-1]["text"], (request, got[-1])
        assert s.ask({"do": "trace", "text": "ok"})["ids"] == list(b"ok")
        s.send({"do": "force", "layer": 9, "token": 0, "run": 1})
        assert "layer must be 0..3" in s.answers()[-1]["text"]


@test
def generated_text_is_that_of_single_steps_and_can_be_stopped():
    with Session() as s:
        s.send({"do": "generate", "text": "ab", "max_tokens": 5, "top": 2})
        got = s.answers()
        tokens, end = [b for b in got if b["kind"] == "token"], got[-2]
        assert [b["index"] for b in tokens] == list(range(7)) and [b["is_prompt"] for b in tokens] == [True] * 2 + [False] * 5
        assert end["kind"] == "generated" and (end["stop"], end["prompt"], end["tokens"]) == ("length", 2, 7)
        assert end["text"] == bytes(b["id"] for b in tokens[2:])
        assert all(b["depth"] == LAYERS and bytes(b["run"]) == b"\1" * LAYERS for b in tokens)
        assert all(b["top_id"][0] == b["id"] and b["top_logprob"][0] == b["logprob"] for b in tokens[2:])
        s.ask({"do": "trace", "text": "ab"})
        for b in tokens[2:]:
            step = s.ask({"do": "next", "temperature": 0})
            assert step["ids"][-1] == b["id"]
            assert abs(-floats(step["nll"])[-1] - b["logprob"]) < 1e-5
        again = [s.ask({"do": "trace", "text": "ab"}), s.ask({"do": "next", "temperature": 1, "seed": 7})][1]
        s.ask({"do": "trace", "text": "ab"})
        assert s.ask({"do": "next", "temperature": 1, "seed": 7})["ids"] == again["ids"]
        s.send('{"do":"generate","text":"ab","max_tokens":1000}\n{"do":"stop"}')
        got = s.answers()
        assert got[-2]["stop"] == "stopped" and got[-2]["tokens"] < CONTEXT, got[-2]
        assert s.answers()[-1]["do"] == "stop"
        s.send({"do": "generate", "text": "ab", "max_tokens": 1000})
        got = s.answers()
        assert got[-2]["stop"] == "context full" and got[-2]["tokens"] == CONTEXT


@test
def text_in_place_of_a_token_begins_no_text():
    with Session(needs("torch"), SERVER, TINY_BEGINS="1") as s:
        for request, want in (({"text": "a b"}, b"\1 a b"), ({"keep": 3, "text": " b"}, b"\1 a b"),
                              ({"keep": 3, "text": "  b"}, b"\1 a  b"), ({"keep": 0, "text": "b"}, b"\1 b")):
            s.send({"do": "generate", "max_tokens": 0, **request})
            assert bytes(b["id"] for b in s.answers() if b["kind"] == "token") == want, request
    with Session() as s:  # its tokenizer knows nothing of such tokens
        s.ask({"do": "trace", "text": "ab"})
        s.send({"do": "generate", "max_tokens": 0, "keep": 1, "text": " c"})
        assert bytes(b["id"] for b in s.answers() if b["kind"] == "token") == b"a c"


@test
def a_saved_trace_is_read_by_the_program():
    with Session() as s:
        path = os.path.abspath("out/a.mp")  # a relative one is in the server's directory
        s.ask({"do": "trace", "text": "hello"})
        s.ask({"do": "save", "file": path, "lens": 2})
        s.send({"do": "save", "file": path})
        assert "exists" in s.answers()[-1]["text"]
    text = run("inspect", path)
    assert "4 layers x 5 tokens" in text and os.listdir("out") == ["a.mp"], text


@test
def sessions_follow_each_other_and_large_answers_pass():
    for _ in range(2):
        with Session() as s:
            assert s.ask({"do": "info"})["layers"] == LAYERS
            assert len(s.ask({"do": "trace", "text": "x" * 40, "lens": 16})["ids"]) == 40


@test
def sessions_of_two_views_take_turns():
    with Session() as a, Session() as b:
        plain = a.ask({"do": "trace", "text": "hello"})
        forced = a.ask({"do": "force", "layer": 1, "token": 2, "run": 0})
        other = b.ask({"do": "trace", "text": "hello"})
        again = a.ask({"do": "force", "layer": 1, "token": 2, "run": 0})
    assert other["nll"] == plain["nll"] and again["nll"] == forced["nll"] != plain["nll"]


@test
def the_stepper_steps_through_a_served_model_and_forces_its_layers():
    text = run("show", "stepper", shared_socket(), "--size", "100x34", "--keys", "j;f")
    assert "tiny.sock" in text and "ready" in text and "1 forced" in text and "forced to skip" in text, text
    assert "threshold" not in text, text  # it has none that could be moved
    assert "Once upon a time" in text and "logit lens" in text, text


@test
def the_generate_view_shows_no_flops_where_none_are_known():
    text = run("show", "generate", shared_socket(), "--size", "120x40", "--keys", ":prompt Hi there")
    assert "40 tokens, 32 generated" in text and "of dense      -" in text and "nan" not in text, text


@test
def top_p_is_a_share_of_what_top_k_leaves():
    script("""
import torch
from depthscope._serve import pick
logits = torch.tensor([0.9, 0.05, 0.05]).log()  # of two tokens the first has 0.947
drawn = {pick(logits, {"temperature": 1, "top_k": 2, "top_p": 0.92, "seed": s}, 0) for s in range(200)}
assert drawn == {0}, drawn
assert {pick(logits, {"temperature": 1, "top_k": 2, "top_p": 0.96, "seed": s}, 0) for s in range(200)} == {0, 1}
""", python=needs("torch"))


@test
def a_socket_without_a_server_is_one_line():
    dead = socket.socket(socket.AF_UNIX)
    dead.bind("dead.sock")
    dead.close()
    answer = run("serve", "dead.sock", code=1, data=b"", raw=True)
    assert b"no server is listening" in answer and "no server is listening" in run.err


@test
def a_server_takes_the_place_of_one_that_has_ended_only():
    dead = socket.socket(socket.AF_UNIX)
    dead.bind("a.sock")
    dead.close()
    listener = _serve._listen("a.sock")
    for path, part in (("a.sock", "another server is listening"), ("file", "not a socket"), ("x" * 200, "at most 107 bytes")):
        if path == "file":
            open(path, "w").close()
        try:
            _serve._listen(path)
        except OSError as e:
            assert part in str(e), e
        else:
            raise AssertionError(path)
    listener.close()


@test
def an_interrupted_server_removes_its_socket():
    path = os.path.abspath("b.sock")
    end_server(start_server(path), path)


t.main(fresh=True)
