"""Real hosts for tests: an OpenSSH server per host on a port of its own, a client that knows them, and a relay between the two that
counts the bytes of the line, holds them back and cuts them.  Everything is in one folder and ends with the test."""
import collections
import getpass
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time

from t import PROGRAM, Skip

SERVER = shutil.which("sshd") or "/usr/sbin/sshd"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def children(pid):
    """Every process below pid, from the list of the kernel."""
    parent = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as f:
                    parent[int(name)] = int(f.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    out = [pid]
    for at in out:
        out += [p for p, its in parent.items() if its == at]
    return out[1:]


def command_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def rss(pid):
    """Bytes of memory that a process has now."""
    with open("/proc/%d/statm" % pid) as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Relay:
    """A line to a port of this machine.  rate: bytes a second in each direction, 0 = any; delay: seconds one way.  Without a
    `port` to go to, those who connect are refused."""
    HELD = 64 << 10  # bytes on the way in one direction, as in the buffer of a modem

    def __init__(self, port, rate=0, delay=0.0):
        self.port, self.rate, self.delay = port, rate, delay
        self.up = self.down = 0  # bytes to the server, and from it
        self.ends, self.is_closed = [], False
        self.lock = threading.Lock()
        self.wake_r, self.wake_w = os.pipe()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.here = self.server.getsockname()[1]
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()

    def total(self):
        return self.up + self.down

    def cut(self):
        """Every connection is reset."""
        with self.lock:
            ends, self.ends = self.ends, []
            for e in ends:
                e["from"].close()
        os.write(self.wake_w, b"x")

    def close(self):
        self.is_closed = True
        os.write(self.wake_w, b"x")
        self.thread.join()
        self.cut()
        self.server.close()
        os.close(self.wake_r)
        os.close(self.wake_w)

    def accept(self):
        near = self.server.accept()[0]
        try:
            far = socket.create_connection(("127.0.0.1", self.port)) if self.port else None
        except OSError:
            far = None
        if not far:
            near.close()
            return
        for a, b, way in ((near, far, "up"), (far, near, "down")):
            a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            a.setblocking(False)
            self.ends.append({"from": a, "to": b, "way": way, "queue": collections.deque(), "held": 0, "free": 0.0, "eof": False})

    def take(self, e, now):
        try:
            data = e["from"].recv(1400)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            e["eof"] = True
        setattr(self, e["way"], getattr(self, e["way"]) + len(data))
        e["free"] = max(e["free"], now) + (len(data) / self.rate if self.rate else 0)
        e["queue"].append((e["free"] + self.delay, data))
        e["held"] += len(data)

    def give(self, e, now):
        while e["queue"] and e["queue"][0][0] <= now:
            at, data = e["queue"].popleft()
            e["held"] -= len(data)
            try:
                if not data:
                    e["to"].shutdown(socket.SHUT_WR)
                else:
                    n = e["to"].send(data)
                    if n < len(data):
                        e["queue"].appendleft((at, data[n:]))
                        e["held"] += len(data) - n
                        return
            except BlockingIOError:
                e["queue"].appendleft((at, data))
                e["held"] += len(data)
                return
            except OSError:
                e["eof"] = True
                e["queue"].clear()

    def loop(self):
        while not self.is_closed:
            now = time.monotonic()
            with self.lock:
                for e in self.ends:
                    self.give(e, now)
                for e in [e for e in self.ends if e["eof"] and not e["queue"]]:
                    if not [o for o in self.ends if o is not e and o["from"] is e["to"]]:
                        e["from"].close()
                        e["to"].close()
                    self.ends.remove(e)
                reading = [e for e in self.ends if not e["eof"] and e["held"] < self.HELD]
                due = min([e["queue"][0][0] for e in self.ends if e["queue"]] or [now + 1])
            try:
                # a far end that takes nothing is asked again a little later
                got = select.select([self.wake_r, self.server] + [e["from"] for e in reading], [], [], min(1, max(due - now, 0.002)))[0]
            except (OSError, ValueError):
                continue  # one was closed meanwhile
            if self.wake_r in got:
                os.read(self.wake_r, 64)
            with self.lock:
                if self.server in got:
                    self.accept()
                for e in reading:
                    if e in self.ends and e["from"] in got:
                        self.take(e, time.monotonic())


class Host:
    """A server that lets this user in with one key; what it starts finds the program, and has `home` as its home folder."""

    def __init__(self, folder, name):
        self.name, self.port, self.p = name, free_port(), None
        self.folder = os.path.join(folder, name)
        self.home = os.path.join(self.folder, "home")
        os.makedirs(os.path.join(self.folder, "bin"))
        os.makedirs(self.home)
        os.symlink(PROGRAM, self.folder + "/bin/depthscope")
        keygen(self.folder + "/host_key")
        with open(self.folder + "/conf", "w") as f:
            f.write("Port %d\nListenAddress 127.0.0.1\nHostKey %s/host_key\nAuthorizedKeysFile %s/key.pub\nStrictModes no\nUsePAM no\n"
                    "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPidFile none\nMaxStartups 100\n"
                    "SetEnv PATH=%s/bin:%s HOME=%s\n" % (self.port, self.folder, folder, self.folder, os.environ["PATH"], self.home))

    def start(self):
        # a server of root wants a folder in /run that only a system which starts it has: it gets one that nobody else sees
        shell = "exec %s -D -e -f %s/conf" % (SERVER, shlex.quote(self.folder))
        argv = ["sh", "-c", shell]
        if os.geteuid() == 0 and not os.path.isdir("/run/sshd"):
            argv = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && " + shell]
        with open(self.folder + "/log", "a") as log:
            self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                time.sleep(0.02)
            if self.p.poll() is not None:
                break
        with open(self.folder + "/log") as log:
            text = log.read().strip()[-300:]
        self.stop()
        raise Skip("sshd does not start here: %s" % text)

    def sessions(self, words=""):
        """Processes of those who are logged in whose command line holds the words."""
        return [p for p in children(self.p.pid) if words in command_of(p)] if self.p else []

    def agents(self):
        return [p for p in self.sessions("depthscope agent") if command_of(p).startswith("depthscope")]

    def stop(self):
        """The server and everybody who is logged in."""
        if not self.p:
            return
        for pid in [self.p.pid] + children(self.p.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.p.wait()
        self.p = None


def keygen(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class Site:
    """Some hosts and their client: `ssh` is a program for DEPTHSCOPE_SSH.  relay: keys of Relay, for a relay in front of each."""

    def __init__(self, names, relay=None, known=True):
        for program in ("ssh", "ssh-keygen", SERVER):
            if not shutil.which(program):
                raise Skip("%s is not installed (openssh-client, openssh-server)" % os.path.basename(program))
        self.folder = os.path.abspath("site")
        n = 0
        while os.path.exists(self.folder):
            n += 1
            self.folder = os.path.abspath("site%d" % n)
        os.makedirs(self.folder)
        keygen(self.folder + "/key")
        self.host = {name: Host(self.folder, name) for name in names}
        self.relay = {}
        try:
            for name, h in self.host.items():
                h.start()
                if relay is not None:
                    self.relay[name] = Relay(h.port, **relay)
        except Skip:
            self.close()
            raise
        with open(self.folder + "/known", "w") as f:
            for name, h in self.host.items() if known else ():
                with open(h.folder + "/host_key.pub") as key:
                    f.write("%s %s\n" % (name, " ".join(key.read().split()[:2])))
        with open(self.folder + "/config", "w") as f:
            for name, h in self.host.items():
                port = self.relay[name].here if name in self.relay else h.port
                f.write("Host %s\n HostName 127.0.0.1\n HostKeyAlias %s\n Port %d\n" % (name, name, port))
            f.write("Host *\n User %s\n IdentityFile %s/key\n IdentitiesOnly yes\n UserKnownHostsFile %s/known\n GlobalKnownHostsFile /dev/null\n"
                    % (getpass.getuser(), self.folder, self.folder))
        self.ssh = self.folder + "/ssh"
        with open(self.ssh, "w") as f:
            f.write('#!/bin/sh\nfor x; do [ "$x" = -- ] && n=1 || { [ -z "$n" ] || { name=$x; break; }; }; done\n'
                    'echo $$ >%s/pid-$name\nexec ssh -F %s/config "$@"\n' % (shlex.quote(self.folder), shlex.quote(self.folder)))
        os.chmod(self.ssh, 0o755)

    def pid(self, name):
        """Of the newest ssh to that host."""
        with open("%s/pid-%s" % (self.folder, name)) as f:
            return int(f.read())

    def run(self, name, command, **kw):
        """A command at the far end, as a user would write it."""
        return subprocess.Popen(["ssh", "-F", self.folder + "/config", "-T", name, command], **kw)

    def close(self):
        for h in self.host.values():
            h.stop()
        for r in self.relay.values():
            r.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
