"""Commands to a run whose step is long, from the socket and from the workbench; a process that does not answer."""
from kit_run import *

SLOW_STEP = "slow:3+"  # every step from the third on takes two seconds


class Screen:
    """The workbench on a terminal; what it shows after a full repaint."""

    def __init__(self, run):
        self.main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.p = subprocess.Popen([PROGRAM, "--color", "never", path(run)], env=environment(TERM="xterm"), stdin=other,
                                  stdout=other, stderr=other, start_new_session=True)
        os.close(other)
        self.seen = b""

    def read(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ready, _, _ = select.select([self.main], [], [], 0.05)
            if ready:
                self.seen += os.read(self.main, 65536)

    def type(self, text):
        os.write(self.main, text.encode())

    def wait(self, what, seconds=15, repaint=True):
        """Until a screen holds the words; a question would take the key that repaints for an answer."""
        end = time.monotonic() + seconds * SLOW
        while time.monotonic() < end:
            if repaint:
                self.seen = b""
                self.type("\x0c")
            self.read(0.15)
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen.decode("utf-8", "replace"))
            if what in text:
                return
        raise AssertionError("no screen with %r: %r" % (what, self.seen[-2500:]))

    def close(self):
        self.p.terminate()
        self.p.wait(10 * SLOW)
        os.close(self.main)


def last_step(run):
    return max([x["step"] for _, x in records(run) if x["kind"] == "metric"], default=0)


def a_long_step_answers_at_once_and_obeys_afterwards():
    p = start(*TINY, "train.steps=4", "--run", "long", "--quiet", DEPTHSCOPE_FAIL=SLOW_STEP)
    wait_for(is_up("long"))
    wait_for(lambda: last_step("long") == 2)
    check(ask_once("long", "status").startswith("ok step 2 "), "status is known")
    check(ask_once("long", "set lr 0.002") == "ok pending 1: set lr 0.002: after the current step", "pending")
    check(ask_once("long", "checkpoint").startswith("ok pending 2: checkpoint"), "and the next")
    check(ask_once("long", "set lr 99") == "error train.lr: 99: must be 1e-12 to 1", "what is wrong is said at once")
    check(ask_once("long", "set lr 0.5").startswith("confirm train.lr = 0.5 is 167 times the current 0.003"), "far",
          ask_once("long", "set lr 0.5"))
    check(ask_once("long", "garbage").startswith("error unknown command"), "and what is unknown")
    check(last_step("long") == 2 and events("long", "set") == [], "the step was still running")
    check(finish(p)[0] == 0, "done")
    check([x["text"] for x in events("long", "command")] ==
          ["1 set lr 0.002: ok lr 0.002", "2 checkpoint: ok checkpoint"], "told when", str(events("long", "command")))
    check([(x["step"], x["text"]) for x in events("long", "set")] == [(3, "lr 0.002")], "once", str(events("long", "set")))


def a_far_value_is_set_when_it_is_confirmed():
    p = start(*TINY, "train.steps=1000000", "train.checkpoint_every=1000000", "--run", "far", "--quiet")
    wait_for(is_up("far"))
    check(ask("far", "set lr 0.5").startswith("confirm ") and events("far", "set") == [], "asked")
    check(ask("far", "set lr 0.5 yes") == "ok lr 0.5", "confirmed")
    check(ask("far", "set lr 99 yes").startswith("error train.lr: 99: must be"), "a range cannot be confirmed away")
    check(ask("far", "set lr 0.5 no").startswith("error"), "no other word")
    ask("far", "stop")
    check(finish(p)[0] == 0, "stopped")


def json_lines_are_answered_in_json():
    def tell(**command):
        return json.loads(ask_once("objects", json.dumps(command)))
    p = start(*TINY, "train.steps=1000000", "train.checkpoint_every=1000000", "--run", "objects", "--quiet")
    wait_for(is_up("objects"))
    status = tell(command="status")
    check(status["ok"] and status["text"].startswith("step "), "status", str(status))
    check(tell(command="status", key=None, value=None)["text"].startswith("step "), "null is as if it were not there")
    check(tell(command="set", key="lr", value=0.002) == {"ok": True, "text": "lr 0.002"}, "a setting")
    far = tell(command="set", key="lr", value=0.5)
    check(not far["ok"] and "times the current" in far["error"], "a far value asks", str(far))
    check(tell(command="set", key="lr", value=0.5, yes=True)["ok"], "and is set when it is confirmed")
    check("unknown command" in tell(command="garbage")["error"], "unknown")
    for broken in ('{"command":3}', "{", '{"command":"set\\nstop","key":"lr"}', "{}"):
        answer = json.loads(ask_once("objects", broken))
        check(answer["ok"] is False and answer["error"], "refused: " + broken)
    check(ask_once("objects", "status").startswith("ok step "), "plain lines get plain answers")
    check(tell(command="stop")["ok"], "stop")
    finish(p)


def the_client_that_was_silent_longest_makes_room():
    p = start(*TINY, "train.steps=1000000", "train.checkpoint_every=1000000", "--run", "idle", "--quiet")
    wait_for(is_up("idle"))
    def client():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10 * SLOW)
        s.connect(path("idle", "control.sock"))
        return s
    def answers(s):
        try:
            s.sendall(b"status\n")
            return s.recv(500).startswith(b"ok step")
        except OSError:
            return False
    clients = []
    for _ in range(8):
        clients.append(client())
        check(answers(clients[-1]), "a client")
    check(answers(clients[0]), "the first is not the silent one any more")
    for _ in range(3):
        clients.append(client())
        check(answers(clients[-1]), "a newcomer")
    alive = [answers(s) for s in clients]
    check(alive == [True] + [False] * 3 + [True] * 7, "who is left", str(alive))
    ask("idle", "stop")
    check(finish(p)[0] == 0, "stopped")


def the_workbench_shows_pending_and_stays_awake():
    p = start(*TINY, "train.steps=6", "--run", "bench", "--quiet", DEPTHSCOPE_FAIL=SLOW_STEP)
    wait_for(is_up("bench"))
    wait_for(lambda: last_step("bench") == 2)
    s = Screen("bench")
    try:
        s.wait("live")
        s.type(":set lr 0.002\r")
        s.wait("pending: set lr 0.002")
        s.type(":log\r")  # keys are taken meanwhile
        s.wait("Log")
        s.wait("set lr 0.002: ok lr 0.002")
        s.type(":set lr 0.9\r")
        s.wait("450 times the current 0.002: set it anyway?", repaint=False)
        s.type("n")
        s.read(0.3)
    finally:
        s.close()
    check(finish(p)[0] == 0, "done")
    check([x["text"] for x in events("bench", "set")] == ["lr 0.002"], "what was not confirmed is not set")


def a_stopped_process_is_one_clear_line():
    p = start(*TINY, "train.steps=1000000", "train.checkpoint_every=1000000", "--run", "stuck", "--quiet")
    wait_for(is_up("stuck"))
    s = Screen("stuck")
    try:
        s.wait("live")
        p.send_signal(signal.SIGSTOP)
        s.type(":probe\r")
        s.type(":log\r")  # keys are taken meanwhile
        s.wait("Log")
        s.wait("no answer within 2 s: process %d is stopped or stuck" % p.pid)
        p.send_signal(signal.SIGCONT)
        p.kill()
        p.wait()
        s.type(":probe\r")
        s.wait("no running process")
    finally:
        s.close()


def ds_stop(*args):
    p = subprocess.run([PROGRAM, "stop", *args], env=environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * SLOW)
    return p.returncode, p.stdout.decode() + p.stderr.decode()


def a_stop_is_taken_however_many_commands_wait():
    p = start(*TINY, "train.steps=1000000", "--run", "full", "--quiet", DEPTHSCOPE_FAIL="slow:5+")
    wait_for(lambda: is_up("full")() and step_of("full") >= 4)
    clients = []
    for _ in range(7):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20 * SLOW)
        s.connect(path("full", "control.sock"))
        s.sendall(b"probe\n" * 3)
        clients.append(s)
    wait_for(lambda: "16 commands are already queued" in ask_once("full", "probe") or p.poll() is not None)
    status, text = ds_stop("full")
    check(status == 0 and "full: stopped at step" in text, "stopped", text)
    check(finish(p)[0] == 0, "and ended in order")


def a_stop_of_a_suspended_process_says_what_it_waits_for():
    p = start(*TINY, "train.steps=1000000", "--run", "asleep", "--quiet")
    wait_for(is_up("asleep"))
    p.send_signal(signal.SIGSTOP)
    status, text = ds_stop("asleep", "--timeout", "2.5")
    p.send_signal(signal.SIGCONT)
    check(status == 1 and "kill -CONT %d" % p.pid in text, "the process and what to do", text)
    check(finish(p)[0] == 0, "and it was asked all the same")


def another_user_is_not_answered():
    """Even where the socket's mode and the folders would let him in."""
    if os.geteuid() != 0:
        raise Skip("only root can be another user")
    p = start(*TINY, "train.steps=1000000", "train.checkpoint_every=1000000", "--run", "own", "--quiet")
    wait_for(is_up("own"))
    for where in (RUNS, path("own")):
        os.chmod(where, 0o755)
    def as_another():
        """What comes back, as a user that is not this one."""
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setuid(65534)
                s = socket.socket(socket.AF_UNIX)
                s.settimeout(10 * SLOW)
                s.connect(path("own", "control.sock"))
                s.sendall(b"stop\n")
                os.write(w, b"answer: " + s.recv(500))
            except OSError as x:
                os.write(w, type(x).__name__.encode())
            finally:
                os._exit(0)
        os.close(w)
        os.waitpid(pid, 0)
        with os.fdopen(r, "rb") as f:
            return f.read()
    check(as_another() == b"PermissionError", "the socket's mode", repr(as_another()))
    os.chmod(path("own", "control.sock"), 0o777)
    got = as_another()
    check(got in (b"answer: ", b"BrokenPipeError", b"ConnectionResetError"), "the peer's user", repr(got))
    before = step_of("own")
    wait_for(lambda: step_of("own") > before + 2)
    check(p.poll() is None and events("own", "command") == [], "nothing was done")
    check(ask("own", "stop") == "ok stop", "the owner is answered as ever")
    check(finish(p)[0] == 0, "stopped")



def a_second_checkpoint_of_a_step_is_not_called_saved():
    p = start(*TINY, "train.steps=1000000", "train.checkpoint_every=1000000", "--run", "twice", "--quiet")
    wait_for(lambda: is_up("twice")() and step_of("twice") >= 1)
    ask("twice", "pause")
    texts = []
    for n in (1, 2):
        ask("twice", "checkpoint")
        wait_for(lambda: len(events("twice", "checkpoint")) == n)
        texts = [x["text"] for x in events("twice", "checkpoint")]
        ask("twice", "set train.lr 0.002")
    check(texts == ["saved", "kept: the checkpoint of this step is there already"], "what the events say", str(texts))
    check(ask("twice", "stop", 60) == "ok stop" and finish(p)[0] == 0, "stopped")


def a_disk_that_is_slow_to_sync_delays_the_run_and_no_answer():
    """Every fsync takes half a second: the save is waited for, commands are answered meanwhile, and the record has its time."""
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:delay_enter=500000"]
    if not shutil.which("strace") or subprocess.run(strace + ["true"], capture_output=True).returncode != 0:
        raise Skip("strace is not installed or may not trace here")
    p = subprocess.Popen(strace + [PROGRAM, "train", *TINY, "train.steps=1000000", "train.checkpoint_every=1000000", "--run", "disk", "--quiet"],
                         env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for(is_up("disk"), 60)
        wait_for(lambda: last_step("disk") > 0, 60)
        check(ask_once("disk", "checkpoint").startswith(("ok pending", "ok checkpoint")), "asked")
        wait_for(lambda: [n for n in os.listdir(path("disk", "checkpoints")) if ".tmp-" in n] if os.path.isdir(path("disk", "checkpoints")) else [])
        slowest = 0
        while not [n for n in os.listdir(path("disk", "checkpoints")) if re.fullmatch(r"step-\d+", n)]:
            began = time.monotonic()
            check(ask_once("disk", "status").startswith("ok step"), "status while it saves")
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.1)
        check(0 < slowest < 0.4 * SLOW, "answered at once", "%.2f s" % slowest)
        wait_for(lambda: events("disk", "checkpoint"), 60)
        check(ask("disk", "stop", 60) == "ok stop", "stop")
    finally:
        status, _, err = finish(p, 120)
    check(status == 0, "stopped", err)


TESTS = [another_user_is_not_answered, a_disk_that_is_slow_to_sync_delays_the_run_and_no_answer, a_long_step_answers_at_once_and_obeys_afterwards, a_far_value_is_set_when_it_is_confirmed,
         json_lines_are_answered_in_json, the_client_that_was_silent_longest_makes_room, the_workbench_shows_pending_and_stays_awake,
         a_stopped_process_is_one_clear_line, a_second_checkpoint_of_a_step_is_not_called_saved,
         a_stop_is_taken_however_many_commands_wait, a_stop_of_a_suspended_process_says_what_it_waits_for]

if __name__ == "__main__":
    run_tests(TESTS)
