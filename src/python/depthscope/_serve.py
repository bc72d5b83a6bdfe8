"""Answers the requests of `depthscope serve` about a PyTorch model: JSON lines in, records out (include/eval/job.h).

The workbench's Stepper and Generate use it.  A forced skip replaces a token's output of a block by its input; other tokens still
attend to that token's keys and values in this layer.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket as sockets
import stat
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._blocks import Blocks, find_blocks, first_input, first_tensor, need, runner, unwrap
from ._experts import Experts, find_routers
from ._log import frame
from ._msgpack import pack
from ._probe import METRICS, Prober, eager_of, encode, evaluation
from ._run import Run
from ._version import __version__

LINE_MAX = 4 << 20
TOKENS_DEFAULT = 64
TOKENS_MAX = 4096


class Refused(Exception):
    """A request that is answered with an error."""


class Answers(Run):
    """A run whose records are the answers of a session."""

    def __init__(self, out: int) -> None:
        super().__init__("", "", is_active=False)
        self._active = True
        self._out = out
        self._seq = 0

    def _put(self, kind: str, make: Callable[[], Optional[Dict[str, Any]]], weight: int = 0) -> None:
        body = make()
        if body is not None:
            self.send(body)

    def send(self, body: Dict[str, Any]) -> bytes:
        self._seq += 1
        data = frame(self._seq, pack(body))
        at = 0
        while at < len(data):
            at += os.write(self._out, data[at:])
        return data

    def answer(self, kind: str, **keys: Any) -> None:
        self.send({"kind": kind, "step": 0, "time": time.time(), **keys})


class Forced:
    """Cells that are forced to skip, by hooks on the blocks."""

    def __init__(self, blocks: List[Any]) -> None:
        self.cells: Dict[Tuple[int, int], int] = {}
        self.is_on = False
        self._x: Any = None
        self._hooks = []
        for layer, block in enumerate(blocks):
            self._hooks.append(block.register_forward_pre_hook(self._enter(layer), with_kwargs=True))
            self._hooks.append(block.register_forward_hook(self._leave(layer)))

    def _skipped(self, layer: int) -> List[int]:
        return [t for (l, t), run in self.cells.items() if l == layer and run == 0] if self.is_on else []

    def _enter(self, layer: int) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            if self._skipped(layer):
                self._x = first_input(args, kwargs).clone()

        return hook

    def _leave(self, layer: int) -> Any:
        def hook(module: Any, args: Any, out: Any) -> Any:
            tokens = self._skipped(layer)
            if not tokens:
                return None
            y, x = first_tensor(out), self._x
            y = y.clone()
            for t in tokens:
                if y.dim() == 3 and y.shape[0] == 1:
                    y[0, t] = x[0, t]
                else:  # (T, 1, C) or (T, C)
                    y[t] = x[t]
            if isinstance(out, tuple):
                return (y, *out[1:])
            if isinstance(out, list):
                return [y, *out[1:]]
            return y

        return hook

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


class Lines:
    """Requests as they arrive on a descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._data = b""
        self._looked = 0
        self.is_stopped = False

    def _more(self) -> bool:
        chunk = os.read(self.fd, 65536)
        self._data += chunk
        return bool(chunk)

    def next(self) -> Optional[bytes]:
        """The next line; None at the end of input.  Raises ValueError for a line without end."""
        while b"\n" not in self._data:
            if len(self._data) > LINE_MAX:
                raise ValueError("request longer than %d bytes" % LINE_MAX)
            if not self._more():
                return None
        line, _, self._data = self._data.partition(b"\n")
        self._looked = 0
        self.is_stopped = False
        return line

    def must_stop(self) -> bool:
        """Has a request `stop` arrived behind the one that is being answered?"""
        if not self.is_stopped and len(self._data) <= LINE_MAX and select.select([self.fd], [], [], 0)[0]:
            self._more()
        while not self.is_stopped:
            end = self._data.find(b"\n", self._looked)
            if end < 0:
                break
            try:
                request = json.loads(self._data[self._looked:end])
                self.is_stopped = isinstance(request, dict) and request.get("do") == "stop"
            except ValueError:
                pass
            self._looked = end + 1
        return self.is_stopped


def _int(q: Dict[str, Any], key: str, default: int, low: int, high: int, what: str) -> int:
    v = q.get(key, default)
    if isinstance(v, float) and v == int(v):
        v = int(v)
    if not isinstance(v, int) or isinstance(v, bool) or not low <= v <= high:
        raise Refused('%s: "%s" must be %d to %d' % (what, key, low, high))
    return v


class Session:
    """One client: a current text and its forced cells."""

    def __init__(self, server: "Server", fd_in: int, fd_out: int) -> None:
        self.server = server
        self.lines = Lines(fd_in)
        self.answers = Answers(fd_out)
        self.ids: List[int] = []
        self.forced: Dict[Tuple[int, int], int] = {}
        self.lens_k = 0
        self.logits: Any = None  # of its last pass

    # ---- passes ----

    def _look(self, lens_k: int, forced: Optional[Dict[Tuple[int, int], int]] = None) -> Dict[str, Any]:
        s = self.server
        with s.turn:
            s.force.cells = forced or {}
            s.force.is_on = bool(forced)
            try:
                with evaluation(s.model):
                    body = s.prober.look(self.answers, self.ids, lens_k)
            finally:
                s.force.is_on = False
            self.logits = s.prober.logits
        assert body is not None
        return body

    def _probe(self, lens_k: int) -> Dict[str, Any]:
        if not self.ids:
            raise Refused("no text yet: send a trace request first")
        if not self.forced:
            return self._look(lens_k)
        plain = self._look(0)
        body = self._look(lens_k, self.forced)
        for (layer, token), run in self.forced.items():
            if run == 1 and not bool(body["run"][layer][token]):
                del self.forced[layer, token]
                raise Refused("force: the model skips this cell itself; a served model's cells can be forced to skip, not to run")
        if "inferred" not in plain:  # what is forced is known
            body.pop("inferred", None)
        if "nll" in body and "nll" in plain:
            body["token"] = {"delta_loss": body["nll"] - plain["nll"]}
        return body

    def _answer_probe(self) -> None:
        self.answers.probe(name="session", **self._probe(self.lens_k))

    def _set(self, ids: List[int]) -> None:
        self.ids = ids
        self.forced = {}

    # ---- requests ----

    def _ids(self, given: Any, what: str) -> List[int]:
        vocab = self.server.vocab
        ids: List[int] = []
        for i, x in enumerate(given):
            if not isinstance(x, int) or isinstance(x, bool) or x < 0 or (vocab and x >= vocab):
                raise Refused("%s: ids[%d]: must be in 0..%d" % (what, i, vocab - 1))
            ids.append(x)
        return ids

    def _encode(self, text: str, is_whole: bool = True) -> List[int]:
        tokenizer, pieces = self.server.tokenizer, self.server.prober.pieces
        if tokenizer is None:
            raise Refused('this server has no tokenizer; send "ids"')
        ids = encode(tokenizer, text, is_whole)
        if not is_whole and len(text) > 1 and text[0] == " " and b"".join(map(pieces, ids)) == b" " + text.encode():
            ids = encode(tokenizer, text[1:], is_whole)  # the vocabulary puts a space before every text
        if not ids:
            raise Refused("empty text")
        return ids

    def _fit(self, ids: List[int]) -> List[int]:
        if len(ids) > self.server.context:
            raise Refused("the text has %d tokens, expected at most %d, the model's context" % (len(ids), self.server.context))
        return ids

    def do_trace(self, q: Dict[str, Any]) -> None:
        make = _int(q, "generate", 0, 0, TOKENS_MAX, "trace")
        self.lens_k = _int(q, "lens", 0, 0, 16, "trace")
        if isinstance(q.get("text"), str):
            ids = self._encode(q["text"])
        elif isinstance(q.get("ids"), list) and q["ids"]:
            ids = self._ids(q["ids"], "trace")
        else:
            raise Refused('trace: expected "text", or 1 to %d "ids"' % self.server.context)
        self._set(self._fit(ids))
        for _ in range(make):
            if len(self.ids) >= self.server.context or self._append({}) in self.server.ends:
                break
        self._answer_probe()

    def _sampling(self, q: Dict[str, Any], what: str) -> Dict[str, float]:
        got: Dict[str, float] = {}
        for key, default, low, high in (("temperature", 0, 0, 100), ("top_p", 1, 0, 1), ("top_k", 0, 0, 1 << 24),
                                        ("seed", 1, 0, 1 << 62)):
            v = q.get(key, default)
            if not isinstance(v, (int, float)) or isinstance(v, bool) or not low <= v <= high or (key == "top_p" and v == 0):
                raise Refused("%s: temperature must be 0 to 100, top_p above 0 and at most 1, top_k and seed 0 or more" % what)
            got[key] = v
        if q.get("speculate"):
            raise Refused("%s: drafts are unsupported by a served PyTorch model" % what)
        return got

    def _draw(self, sampling: Dict[str, float], top: int = 0) -> Tuple[int, float, List[Tuple[int, float]]]:
        """A token after the last pass: its id, its log probability, the most likely ones."""
        torch = need("torch", "serve")
        if self.logits is None:
            raise Refused("the model returns no logits over its vocabulary")
        logits = self.logits[-1].float().cpu()
        logp = torch.log_softmax(logits, -1)
        token = pick(logits, sampling, len(self.ids))
        best = logp.topk(min(top, logp.numel())) if top else None
        return token, float(logp[token]), [] if best is None else list(zip(best[1].tolist(), best[0].tolist()))

    def _append(self, sampling: Dict[str, float]) -> int:
        if len(self.ids) >= self.server.context:
            raise Refused("context full: %d tokens" % len(self.ids))
        self._look(0, self.forced)
        token = self._draw(sampling)[0]
        self.ids = self.ids + [token]
        return token

    def do_next(self, q: Dict[str, Any]) -> None:
        sampling = self._sampling(q, "next")
        if not self.ids:
            raise Refused("no text yet: send a trace request first")
        self._append(sampling)
        self._answer_probe()

    def do_force(self, q: Dict[str, Any]) -> None:
        if not self.ids:
            raise Refused("no text yet: send a trace request first")
        layer, token, run = q.get("layer", -1), q.get("token", -1), q.get("run", -2)
        layers, n = self.server.layout.layers, len(self.ids)
        is_good = all(isinstance(x, int) for x in (layer, token, run))
        if not is_good or not 0 <= layer < layers or not 0 <= token < n or not -1 <= run <= 1:
            raise Refused("force: layer must be 0..%d, token 0..%d, run 0, 1 or -1" % (layers - 1, n - 1))
        self.forced.pop((layer, token), None)
        if run >= 0:
            self.forced[layer, token] = run
        self._answer_probe()

    def do_offset(self, q: Dict[str, Any]) -> None:
        if q.get("value") == 0:
            self._answer_probe()
            return
        raise Refused("offset: unsupported, a served PyTorch model has no known threshold")

    def do_generate(self, q: Dict[str, Any]) -> None:
        text, given = q.get("text"), q.get("ids")
        most = _int(q, "max_tokens", TOKENS_DEFAULT, 0, 1 << 24, "generate")
        top = _int(q, "top", 0, 0, 20, "generate")
        sampling = self._sampling(q, "generate")
        keep = q.get("keep", 0 if isinstance(text, str) else len(self.ids))
        if not isinstance(keep, int) or not 0 <= keep <= len(self.ids):
            raise Refused('generate: "keep" must be 0..%d, the tokens of the text' % len(self.ids))
        if not isinstance(text, str) and not isinstance(given, list) and not self.ids:
            raise Refused('generate: expected "text", the session has no text')
        prompt = self.ids[:keep]
        if isinstance(given, list):
            prompt = prompt + self._ids(given, "generate")
        elif isinstance(text, str) and text:
            prompt = prompt + self._encode(text, keep == 0)
        if not prompt:
            raise Refused("empty text")
        self._set(self._fit(prompt))
        self._stream(len(prompt), most, top, sampling)

    def _stream(self, prompt: int, most: int, top: int, sampling: Dict[str, float]) -> None:
        s, began, reason, text = self.server, time.monotonic(), "length", b""
        body = self._look(0)
        nll = body.get("nll")
        for at in range(prompt):
            self._tell(at, body, True, float("nan") if nll is None else -float(nll[at]), [])
        while len(self.ids) - prompt < most:
            if self.lines.must_stop():
                reason = "stopped"
                break
            if len(self.ids) >= s.context:
                reason = "context full"
                break
            token, logprob, ranked = self._draw(sampling, top)
            self.ids = self.ids + [token]
            body = self._look(0)
            self._tell(len(self.ids) - 1, body, False, logprob, ranked)
            text += s.prober.pieces(token)
            if token in s.ends:
                reason = "end of text"
                break
        self.answers.answer("generated", stop=reason, prompt=prompt, tokens=len(self.ids), text=text,
                            tok_s=(len(self.ids) - prompt) / max(time.monotonic() - began, 1e-9),
                            block_ratio=float(body["run"].float().mean()))

    def _tell(self, at: int, body: Dict[str, Any], is_prompt: bool, logprob: float, ranked: List[Tuple[int, float]]) -> None:
        """A record `token`.  FLOPs are unknown, so they are not among its keys."""
        pieces = self.server.prober.pieces
        run = body["run"][:, at]
        keys: Dict[str, Any] = {"index": at, "id": self.ids[at], "text": pieces(self.ids[at]), "is_prompt": is_prompt,
                                "depth": int(run.sum()), "run": bytes(int(b) for b in run.tolist())}
        if not math.isnan(logprob):
            keys["logprob"] = logprob
        if ranked:
            keys.update(top_id=[i for i, _ in ranked], top_logprob=[p for _, p in ranked], top_text=[pieces(i) for i, _ in ranked])
        self.answers.answer("token", **keys)

    def do_chat(self, q: Dict[str, Any]) -> None:
        raise Refused("chat: unsupported by a served PyTorch model; use generate")

    def do_compare(self, q: Dict[str, Any]) -> None:
        raise Refused("compare: unsupported by a served PyTorch model")

    def do_stop(self, q: Dict[str, Any]) -> None:
        """What it stops has ended when its turn comes."""

    def do_save(self, q: Dict[str, Any]) -> None:
        path = q.get("file")
        lens = _int(q, "lens", 0, 0, 16, "save")
        if not isinstance(path, str) or not path:
            raise Refused('save: expected "file", and "lens" 0 to 16')
        if os.path.exists(path) or os.path.basename(path) == "log.mp":
            raise Refused("%s exists, or is the name of a run's log; choose another name" % path)
        body = self._probe(lens)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        temporary = "%s.%d.tmp" % (os.path.join(os.path.dirname(path), "." + os.path.basename(path)), os.getpid())
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            trace = Answers(fd)
            trace.answer("head", **self.server.head())
            trace.probe(name="session", **body)
            os.fsync(fd)
            os.replace(temporary, path)
        finally:
            os.close(fd)
            if os.path.exists(temporary):
                os.unlink(temporary)

    def do_info(self, q: Dict[str, Any]) -> None:
        self.answers.answer("head", context=self.server.context, **self.server.head())

    # ---- the loop ----

    def _line(self, line: bytes) -> None:
        what = None
        try:
            q = json.loads(line)
            what = q.get("do") if isinstance(q, dict) else None
            handler = getattr(self, "do_%s" % what, None) if isinstance(what, str) and what.isalpha() else None
            if handler is None:
                raise Refused('request: "do" must be trace, next, force, offset, generate, chat, stop, compare, save or info')
            handler(q)
        except (BrokenPipeError, ConnectionError):
            raise
        except Refused as e:
            self.answers.answer("error", text=str(e))
        except ValueError as e:
            self.answers.answer("error", text=("request: not valid JSON: %s" if what is None else "%s") % e)
        except Exception as e:  # of the model: the session goes on
            self.answers.answer("error", text="%s: %s" % (type(e).__name__, str(e).partition("\n")[0][:400]))
        else:
            self.answers.answer("done", do=what)

    def run(self) -> None:
        try:
            while True:
                line = self.lines.next()
                if line is None:
                    return
                if line.strip():
                    self._line(line)
        except (BrokenPipeError, ConnectionError):
            return
        except ValueError as e:
            self.answers.answer("error", text=str(e))


def pick(logits: Any, sampling: Dict[str, float], position: int) -> int:
    """A token: the most likely one at temperature 0, else by a random draw that depends on the seed and the position alone."""
    torch = need("torch", "serve")
    t = float(sampling.get("temperature", 0))
    if t <= 0:
        return int(logits.argmax())
    order = torch.sort(logits / t, descending=True)
    p = torch.softmax(order[0].double(), -1)
    k = int(sampling.get("top_k", 0))
    if k > 0:
        p[k:] = 0
        p /= p.sum()
    before = p.cumsum(-1) - p
    p[before >= float(sampling.get("top_p", 1))] = 0
    g = torch.Generator().manual_seed((int(sampling.get("seed", 1)) * 1000003 + position) & (1 << 63) - 1)
    return int(order[1][torch.multinomial(p / p.sum(), 1, generator=g)])


class Server:
    """A model, for sessions that take turns with each pass."""

    def __init__(self, model: Any, tokenizer: Any, name: str, blocks: Blocks, forward: Optional[Callable[[Any], Any]],
                 context: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.layout = find_blocks(model, blocks)
        self.context = context or self.layout.context or 1024
        self.vocab = self.layout.vocab
        self.name = name or type(unwrap(model)).__name__
        self.turn = threading.Lock()
        # registered first, so that a forced skip is what the probe's own hooks see
        self.force = Forced(self.layout.blocks)
        routers = find_routers(self.layout)
        self.experts = Experts(routers) if routers else None
        self.prober = Prober(model, forward or runner(eager_of(model)), self.layout, tokenizer, True, self.experts)
        ends = [getattr(tokenizer, "eos_token_id", None), getattr(self.layout.config, "eos_token_id", None)]
        self.ends = {int(i) for e in ends for i in (e if isinstance(e, (list, tuple)) else [e]) if isinstance(i, int)}

    def head(self) -> Dict[str, Any]:
        torch = need("torch", "serve")
        head: Dict[str, Any] = {
            "format": 1, "version": __version__, "writer": "depthscope-python %s" % __version__, "run": self.name,
            "layers": self.layout.layers, "steps": 0, "params": sum(p.numel() for p in self.model.parameters()),
            "host": sockets.gethostname(), "pid": os.getpid(), "framework": "PyTorch %s" % torch.__version__, "commands": [],
            "metrics": [{"name": n, "unit": u, "help": h, "scope": s} for n, u, h, s in METRICS if s == "cell"],
        }
        if self.vocab:
            head["vocab"] = self.vocab
        if self.experts is not None:
            head.update(experts=self.experts.experts, experts_per_token=self.experts.top)
        return head

    def close(self) -> None:
        self.force.close()
        if self.experts is not None:
            self.experts.close()


def _listen(path: str) -> sockets.socket:
    """A socket that only this user can open; that of a process which has ended is replaced."""
    if os.path.lexists(path):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError("%s: exists and is not a socket" % path)
        with sockets.socket(sockets.AF_UNIX) as other:
            try:
                other.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            else:
                raise FileExistsError("%s: another server is listening" % path)
    listener = sockets.socket(sockets.AF_UNIX)
    before = os.umask(0o077)
    try:
        listener.bind(path)
    except OSError as e:
        listener.close()
        raise OSError("%s: %s; the path of a socket must be at most 107 bytes" % (path, e)) from e
    finally:
        os.umask(before)
    listener.listen(4)
    return listener


def serve(model: Any, tokenizer: Any = None, socket: Optional[str] = None, name: str = "", blocks: Blocks = None,
          forward: Optional[Callable[[Any], Any]] = None, context: int = 0) -> None:
    """Serves a model to the workbench until it is interrupted: `ds.serve(model, tokenizer, socket="model.sock")` here,
    `depthscope model.sock` in another terminal.  Without `socket` it speaks the protocol on standard input and output, and
    everything else that is printed goes to standard error.  Sessions, such as those of two views, take turns with each pass."""
    server = Server(model, tokenizer, name, blocks, forward, context)
    try:
        if socket is None:
            _serve_stdio(server)
        else:
            _serve_socket(server, os.fspath(socket))
    finally:
        server.close()


def _serve_stdio(server: Server) -> None:
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        Session(server, 0, out).run()
    finally:
        os.dup2(out, 1)
        os.close(out)


def _serve_client(server: Server, client: sockets.socket) -> None:
    with client:
        Session(server, client.fileno(), client.fileno()).run()


def _serve_socket(server: Server, path: str) -> None:
    listener = _listen(path)
    try:
        print("serving %s; open it with: depthscope %s" % (server.name, path), file=sys.stderr, flush=True)
        while True:
            threading.Thread(target=_serve_client, args=(server, listener.accept()[0]), daemon=True).start()
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
        os.unlink(path)
