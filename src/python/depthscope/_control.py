"""control.sock of a run: a thread that talks to clients, and the commands that the training thread carries out between steps.

The protocol is include/io/FORMATS.md, section 2.  A handler never runs on the control thread.
"""
from __future__ import annotations

import collections
import json
import os
import selectors
import socket
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Mapping, NamedTuple, Optional, Tuple

if TYPE_CHECKING:
    from ._run import Run

CLIENTS_MAX = 8
LINE_MAX = 4096  # bytes
WAITING_MAX = 16
PATIENCE_SECONDS = 0.5  # within this time the client gets the result itself, later "pending"
_ADDRESS_MAX = 103  # bytes that every system's socket address holds
_ORDER = ("pause", "resume", "checkpoint", "probe", "set", "stop")
_FROM = "from the control socket"


class Request(NamedTuple):
    """One line of a client, checked."""

    command: str
    key: str
    value: Any
    line: str  # as the plain protocol writes it
    is_json: bool


class Refused(Exception):
    """The line is not a command that can be carried out: the text says why."""


class Confirm(Exception):
    """The command is carried out when it is sent again with a confirmation."""


class _Entry:
    """A command on its way to the training thread."""

    def __init__(self, number: int, request: Request) -> None:
        self.number = number
        self.request = request
        self.is_pending = False  # its client was answered "pending", or left
        self.is_ok = False
        self.answer: Optional[str] = None


class _Client:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.data = b""
        self.entry: Optional[_Entry] = None
        self.until = 0.0
        self.used = time.monotonic()


class _Setting(NamedTuple):
    apply: Callable[[float], Any]
    low: Optional[float]
    high: Optional[float]


def _answer(is_json: bool, is_ok: bool, text: str) -> bytes:
    text = " ".join(text.split())
    if is_json:
        return json.dumps({"ok": is_ok, "text" if is_ok else "error": text}).encode() + b"\n"
    return ("%s %s" % ("ok" if is_ok else "error", text)).strip().encode("utf-8", "replace")[:LINE_MAX] + b"\n"


def _parse(line: str) -> Tuple[str, str, Any, bool, bool]:
    """(command, key, value, is confirmed, is JSON) of a line in either form."""
    if line.startswith("{"):
        try:
            got = json.loads(line)
        except (ValueError, RecursionError):
            raise Refused("not a JSON object on one line")
        command = got.get("command")
        if not isinstance(command, str):
            raise Refused('"command": expected text such as "pause"')
        return command, str(got.get("key", "")), got.get("value"), got.get("yes") is True, True
    words = line.split()
    if not words:
        raise Refused("empty line")
    if words[0] != "set":
        if len(words) > 1:
            raise Refused("unknown command %.80s" % line)
        return words[0], "", None, False, False
    if len(words) not in (3, 4) or len(words) == 4 and words[3] != "yes":
        raise Refused("set: expected KEY NUMBER, such as lr 1e-4")
    try:
        return "set", words[1], float(words[2]), len(words) == 4, False
    except ValueError:
        raise Refused("set %s: %s is not a number" % (words[1], words[2]))


class Control:
    """Commands of one run.  `on` says which; the socket is opened with the first."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.is_paused = False
        self._plain: Dict[str, Callable[[], Any]] = {}
        self._settings: Dict[str, _Setting] = {}
        self._set_any: Optional[Callable[[str, float], Any]] = None
        self._current: Dict[str, Tuple[float, float]] = {}  # as run._last, of what was set
        self._lock = threading.Condition()
        self._handling = threading.Lock()
        self._entries: Deque[_Entry] = collections.deque()
        self._taken: Optional[_Entry] = None
        self._last_number = 0
        self._told: Optional[Tuple[str, ...]] = None
        self._is_closing = False
        self._clients: List[_Client] = []
        self._thread: Optional[threading.Thread] = None
        self._path = os.path.join(run.dir, "control.sock")
        self._socket: Optional[socket.socket] = None
        self._wake: Tuple[Optional[socket.socket], Optional[socket.socket]] = (None, None)

    # ---- what is answered ----

    def on(self, command: str, handler: Any = True, min: Optional[float] = None, max: Optional[float] = None) -> None:
        words = command.split()
        if words[:1] == ["set"]:
            self._on_set(words[1:], handler, min, max)
        elif len(words) != 1 or not words[0].replace("_", "").isalnum() or words[0] == "status":
            raise ValueError("command %r: expected one word, or set KEY" % command)
        elif words[0] == "pause" and handler is True:
            self._plain.update(pause=self._pause, resume=self._resume)
        elif words[0] == "resume" and handler is True:
            self._plain["resume"] = self._resume
        elif words[0] == "stop" and (handler is True or handler == "interrupt"):
            self._plain["stop"] = self._interrupt if handler == "interrupt" else self._stop
        elif words[0] == "stop" and callable(handler):
            self._plain["stop"] = lambda: self._stop_with(handler)
        elif callable(handler):
            self._plain[words[0]] = handler
        else:
            raise TypeError("command %s: expected a function, found %r" % (words[0], handler))

    def _on_set(self, words: List[str], handler: Any, low: Optional[float], high: Optional[float]) -> None:
        if not words and isinstance(handler, Mapping):
            for key, h in handler.items():
                self._on_set([str(key)], h, low, high)
        elif not callable(handler) or len(words) > 1:
            raise TypeError("command set: expected \"set KEY\" with a function of the value, or a dict of keys and functions")
        elif not words:
            self._set_any = handler
        else:
            self._settings[words[0]] = _Setting(handler, low, high)
            self.run._head_changed = True

    def commands(self) -> Tuple[str, ...]:
        has_set = ("set",) if self._settings or self._set_any else ()
        names = (*self._plain, *has_set)
        return tuple(n for n in _ORDER if n in names) + tuple(sorted(n for n in names if n not in _ORDER)) + ("status",)

    def describe(self) -> Dict[str, Any]:
        """The keys of a head."""
        self._told = self.commands()
        got: Dict[str, Any] = {"commands": list(self._told)}
        if self._settings:
            got["live"] = [{k: v for k, v in (("key", key), ("min", s.low), ("max", s.high)) if v is not None}
                           for key, s in self._settings.items()]
        return got

    def changed(self) -> Optional[str]:
        """The text of the event `commands` when they are not those that were logged last, else None."""
        now = self.commands()
        if now == self._told:
            return None
        self._told = now
        return " ".join(now)

    # ---- built-in handlers ----

    def _pause(self) -> None:
        self.is_paused = True

    def _resume(self) -> None:
        self.is_paused = False

    def _stop(self) -> None:
        self.run.should_stop = True
        self.is_paused = False

    def _stop_with(self, handler: Callable[[], Any]) -> Any:
        self._stop()
        return handler()

    def _interrupt(self) -> None:
        self._stop()
        raise KeyboardInterrupt("stop " + _FROM)

    # ---- the training thread's side ----

    def poll(self) -> None:
        if not self._entries and not self.is_paused:
            return
        if not self._handling.acquire(blocking=False):
            return  # a handler logs, or another thread is at it
        try:
            self._handle_all()
            while self.is_paused and not self._is_closing:
                with self._lock:
                    if not self._entries:
                        self._lock.wait(1.0)
                self._handle_all()
        finally:
            self._handling.release()

    def _handle_all(self) -> None:
        while True:
            with self._lock:
                if not self._entries:
                    return
                entry = self._entries.popleft()
            interrupt: Optional[KeyboardInterrupt] = None
            was_paused = self.is_paused
            try:
                text = self._handle(entry.request)
                is_news = entry.request.command not in ("pause", "resume") or was_paused != self.is_paused
                self._done(entry, True, text, is_news)
            except KeyboardInterrupt as x:
                interrupt = x
                self._done(entry, True, entry.request.line)
            except Exception as x:  # a handler's failure is the client's answer, not the end of training
                self._done(entry, False, "%s: %s: %s" % (entry.request.line, type(x).__name__, x))
            if interrupt is not None:
                raise interrupt

    def _handle(self, request: Request) -> str:
        if request.command == "set":
            key, value = request.key, request.value
            setting = self._settings.get(key)
            if setting is not None:
                setting.apply(value)
            elif self._set_any is not None:
                self._set_any(key, value)
            self._current[key] = time.time(), value
            return "%s %g" % (key, value)
        got = self._plain[request.command]()
        return "%s: %s" % (request.command, got) if isinstance(got, str) and got else request.command

    def _done(self, entry: _Entry, is_ok: bool, text: str, is_news: bool = True) -> None:
        request = entry.request
        with self._lock:
            entry.is_ok, entry.answer = is_ok, text
            is_pending = entry.is_pending
        if is_pending:
            self.run.event("command", "%d %s: %s %s" % (entry.number, request.line, "ok" if is_ok else "error", text))
        elif not is_ok:
            self.run.event("command", "%s: error %s" % (request.line, text), level="warn")
        if is_ok and is_news:  # after "command": viewers take the newest event as the state of a paused run
            said = text[len(request.command) + 2:]  # what the handler returned
            self.run.event(request.command, "%s %r" % (request.key, request.value) if request.command == "set" else said or _FROM)
        self._wake_up()

    # ---- checking a line, on the control thread ----

    def _status(self) -> str:
        run = self.run
        planned, last = run._head.get("steps"), run._last
        text = "step %d" % max(run.step, 0) + (" of %d" % planned if isinstance(planned, int) else "")
        text += ", loss %s" % ("%.4f" % last["loss"][1] if "loss" in last else "-")
        text += ", lr %.3g" % last["lr"][1] if "lr" in last else ""
        return text + (", paused" if self.is_paused else ", running")

    def _find_key(self, key: str) -> str:
        """The registered key that is meant: `lr` and `train.lr` name the same one when it is the only one."""
        if key in self._settings or not self._settings:
            return key
        last = key.rsplit(".", 1)[-1]
        near = [k for k in self._settings if k.rsplit(".", 1)[-1] == last]
        return near[0] if len(near) == 1 else key

    def _now(self, key: str) -> Optional[float]:
        """The newer of what was logged and what was set, else what the settings say."""
        known = [x for x in (self.run._last.get(key), self._current.get(key)) if x is not None]
        if known:
            return max(known)[1]
        try:
            return float(self.run.config[key])
        except (KeyError, ValueError):
            return None

    def _check(self, line: str) -> Request:
        command, key, value, is_confirmed, is_json = _parse(line)
        if command == "status":
            return Request("status", "", None, "status", is_json)
        if command not in self.commands():
            raise Refused("unknown command %.80s (%s)" % (command, ", ".join(self.commands())))
        if command != "set":
            return Request(command, "", None, command, is_json)
        key = self._find_key(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -sys.float_info.max <= value <= sys.float_info.max:
            raise Refused("set %s: expected a finite number" % key)
        value = float(value)
        setting = self._settings.get(key)
        if setting is None and self._set_any is None or not key or len(key) > 63:
            raise Refused("set: unknown key %.80s (%s)" % (key, ", ".join(self._settings)))
        if setting is not None and setting.low is not None and value < setting.low:
            raise Refused("%s = %g: must be at least %g" % (key, value, setting.low))
        if setting is not None and setting.high is not None and value > setting.high:
            raise Refused("%s = %g: must be at most %g" % (key, value, setting.high))
        now = self._now(key)
        if now is not None and now > 0 and value > 10 * now and not is_confirmed:
            raise Confirm("%s = %g is more than 10 times the current %g; to set it: set %s %r yes" % (key, value, now, key, value))
        return Request("set", key, value, "set %s %r" % (key, value), is_json)

    # ---- the control thread ----

    def open(self) -> None:
        """Listens.  The log's lock is held, so a socket that is there belongs to a dead process.  OSError when it cannot."""
        if self._socket is not None:
            return
        if os.path.lexists(self._path):
            os.unlink(self._path)
        address, holder = self._path, -1
        if len(os.fsencode(address)) > _ADDRESS_MAX:
            holder = os.open(self.run.dir, os.O_RDONLY | os.O_DIRECTORY)
            address = "/proc/self/fd/%d/control.sock" % holder
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            try:
                os.fchmod(sock.fileno(), 0o600)  # before bind: there is no moment when others may connect
            except OSError:
                pass
            sock.bind(address)
            os.chmod(address, 0o600)
            sock.listen(CLIENTS_MAX)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        finally:
            if holder >= 0:
                os.close(holder)
        self._socket = sock
        self._wake = socket.socketpair()
        for s in self._wake:
            if s is not None:
                s.setblocking(False)
        self._thread = threading.Thread(target=self._listen, name="depthscope-control", daemon=True)
        self._thread.start()

    def _wake_up(self) -> None:
        try:
            if self._wake[1] is not None:
                self._wake[1].send(b"x")
        except OSError:  # full: it is awake already
            pass

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
        with self._lock:
            if client.entry is not None:
                client.entry.is_pending = True
        client.sock.close()

    def _say(self, client: _Client, data: bytes) -> bool:
        """Never blocks: a client that does not read its answers is disconnected."""
        try:
            return client.sock.send(data) == len(data)
        except OSError:
            return False

    def _accept(self) -> None:
        assert self._socket is not None
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            sock.setblocking(False)
            if not _is_same_user(sock):
                sock.close()
                continue
            if len(self._clients) >= CLIENTS_MAX:
                self._drop(min(self._clients, key=lambda c: (c.entry is not None, c.used)))
            self._clients.append(_Client(sock))

    def _serve_line(self, client: _Client, raw: bytes) -> bool:
        line = raw.rstrip(b"\r").decode("utf-8", "replace").strip()
        is_json = line.startswith("{")
        try:
            request = self._check(line)
            if request.command == "status":
                return self._say(client, _answer(is_json, True, self._status()))
            with self._lock:
                if len(self._entries) >= WAITING_MAX and request.command != "stop":
                    raise Refused("%d commands are already queued for the end of the current step" % WAITING_MAX)
                self._last_number += 1
                client.entry = _Entry(self._last_number, request)
                client.until = time.monotonic() + PATIENCE_SECONDS
                self._entries.append(client.entry)
                self._lock.notify()
            return True
        except Confirm as x:
            return self._say(client, _answer(True, False, "confirm %s" % x) if is_json else ("confirm %s\n" % x).encode())
        except Refused as x:
            return self._say(client, _answer(is_json, False, str(x)))

    def _serve_lines(self, client: _Client) -> bool:
        """Handles received lines until one has to wait; False: drop the client."""
        while client.entry is None:
            line, mark, rest = client.data.partition(b"\n")
            if not mark:
                if len(client.data) >= LINE_MAX:
                    self._say(client, b"error line too long\n")
                    return False
                return True
            client.data = rest
            if not self._serve_line(client, line):
                return False
        return True

    def _read(self, client: _Client) -> bool:
        try:
            data = client.sock.recv(LINE_MAX)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if not data:
            return False
        client.used = time.monotonic()
        client.data += data
        return self._serve_lines(client)

    def _answer_waiting(self, client: _Client) -> bool:
        entry = client.entry
        if entry is None:
            return True
        request = entry.request
        with self._lock:
            if entry.answer is not None:
                data = _answer(request.is_json, entry.is_ok, entry.answer)
            elif self._is_closing:
                data = _answer(request.is_json, False, 'the run ended before "%s" was carried out' % request.line)
            elif time.monotonic() >= client.until:
                entry.is_pending = True
                data = _answer(request.is_json, True, "pending %d: %s: after the current step" % (entry.number, request.line))
            else:
                return True
        client.entry = None
        return self._say(client, data) and self._serve_lines(client)

    def _listen_once(self) -> None:
        assert self._socket is not None and self._wake[0] is not None
        due = [c.until for c in self._clients if c.entry is not None]
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._wake[0], selectors.EVENT_READ)
            for c in self._clients:
                if c.entry is None:
                    selector.register(c.sock, selectors.EVENT_READ, c)
            ready = selector.select(max(0.0, min(due) - time.monotonic()) + 0.001 if due else None)
        has_new = False
        for key, _ in ready:
            if key.fileobj is self._wake[0]:
                try:
                    self._wake[0].recv(64)
                except OSError:
                    pass
            elif key.fileobj is self._socket:
                has_new = True
            elif not self._read(key.data):
                self._drop(key.data)
        for c in list(self._clients):
            if not self._answer_waiting(c):
                self._drop(c)
        if has_new:
            self._accept()

    def _listen(self) -> None:
        while not self._is_closing:
            try:
                self._listen_once()
            except Exception:  # a client's trick must not end the thread; a closed socket ends the loop
                if self._socket is None:
                    return
                time.sleep(0.05)

    def close(self) -> None:
        """Ends the thread; clients that wait are told that the run has ended."""
        with self._lock:
            self._is_closing = True
            self._lock.notify_all()
        self._wake_up()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)
        for c in list(self._clients):
            self._answer_waiting(c)
            self._drop(c)
        if self._socket is not None:
            try:
                os.unlink(self._path)
            except OSError:
                pass
        self._close_sockets()

    def _close_sockets(self) -> None:
        for s in (self._socket, *self._wake):
            if s is not None:
                s.close()
        self._socket, self._wake = None, (None, None)

    def abandon(self) -> None:
        """In a forked child: the socket belongs to the parent."""
        self._thread = None
        for c in self._clients:
            c.sock.close()
        self._clients = []
        self._close_sockets()


def _is_same_user(sock: socket.socket) -> bool:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True  # the socket's mode is 0600
    try:
        _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, option, 12))
    except OSError:
        return False
    return uid in (0, os.geteuid())
