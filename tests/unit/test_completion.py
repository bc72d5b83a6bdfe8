"""What shells complete, and the man page: from the same tables as the help.  DEPTHSCOPE names the program."""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, run, test  # noqa: E402


def complete(*words):
    return [line.split("\t")[0] for line in run("complete", *words).splitlines()]


@test
def commands_runs_presets_keys_and_values_are_completed():
    os.makedirs("runs/my-run")
    open("runs/my-run/log.mp", "w").close()
    assert {"train", "trace"} == set(complete("tr"))
    assert "my-run" in complete("my") and "my-run" in complete("stop", "") and "my-run" in complete("compare", "x", "my")
    assert "quick" in complete("train", "qu")
    assert complete("train", "train.lr") == ["train.lr="]
    assert "can be set while a run trains" in run("complete", "train", "train.lr")
    assert "can be set" not in run("complete", "train", "train.steps")
    assert "model.method=edp" in complete("train", "model.method=")
    assert complete("train", "compute=b") == ["compute=bf16"]
    assert complete("train", "--resume", "") == ["my-run"]
    assert "--allow-change" in complete("train", "--al")
    assert complete("train", "--mode", "q") == ["quick"]
    assert "training" in complete("figure", "trai")
    assert "--theme" in complete("--th")
    assert {"rename", "restore", "rm"} == set(complete("runs", "r")) and complete("runs", "tag", "m") == ["my-run"]
    assert complete("runs", "--sort", "-val") == ["-val_loss"] and complete("runs", "--group", "meth") == ["method"]
    assert complete("runs", "--filter", "state=em") == ["state=empty"] and complete("runs", "--filter", "x name=m") == ["x name=my-run"]
    formats = complete("import", "--format", "")
    assert "csv" in formats and complete("import", "--format", "mega") == ["megatron"]
    line = re.search(r"--format.*", run("help", "import")).group()  # written by hand
    assert sorted(formats) == sorted(re.findall(r"\w+", line.split("(")[0].split(" F ")[1].replace(" or ", " "))), (formats, line)
    assert complete("figure", "--format", "") == []
    assert complete("figure", "all", "") == ["my-run"] and "all" in complete("figure", "-o", "my-run", "")
    assert "depth" in complete("show", "") and "my-run" not in complete("show", "")
    assert complete("show", "depth", "") == ["my-run"]
    topics = re.search(r"^depthscope help \[COMMAND\|(.*)\]", run("help", "help")).group(1)
    assert not set(topics.split("|")) - set(complete("help", ""))
    assert complete("show", "--keys", "") == complete("compare", "--group", "") == []
    assert complete("train", "no.such.key") == [] and complete("nosuch", "word") == []


@test
def hostile_names_of_runs_are_safe_on_a_terminal():
    os.makedirs("runs/a\x1b]0;x\x07")
    open("runs/a\x1b]0;x\x07/log.mp", "w").close()
    assert "\x1b" not in run("complete", "stop", "")


@test
def the_man_page_has_every_command_and_option():
    page = run("help", "man").replace("\\-", "-")
    for line in run("help").splitlines():
        m = re.match(r"  depthscope ([a-z]+)", line)
        if m:
            assert "\n.SS %s " % m.group(1) in page, m.group(1)
            for option in re.findall(r"^  (--[a-z-]+)", run("help", m.group(1)), re.M):
                assert option in page or option in ("--help", "--version"), (m.group(1), option)
    assert not re.search(r"^'", page, re.M)
    if shutil.which("groff"):
        p = subprocess.run(["groff", "-man", "-ww", "-Tascii"], input=run("help", "man").encode(), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        assert not p.stderr, p.stderr


@test
def the_bash_script_completes_behind_an_equals_sign():
    bash = shutil.which("bash")
    if not bash:
        print("SKIP the_bash_script_completes_behind_an_equals_sign: bash is not installed")
        return "skipped"
    os.makedirs("bin", exist_ok=True)
    os.symlink(PROGRAM, "bin/depthscope")
    script = run("help", "bash") + """
COMP_LINE='depthscope train model.method=ed'; COMP_POINT=${#COMP_LINE}
_depthscope
printf '%s\\n' "${COMPREPLY[@]}"
"""
    p = subprocess.run([bash, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env={**os.environ, "PATH": os.path.abspath("bin") + ":" + os.environ["PATH"]})
    assert p.stdout == b"edp\n", (p.stdout, p.stderr)
    os.makedirs("runs/my run")
    with open("runs/my run/metrics.jsonl", "w") as f:
        f.writelines('{"step": %d, "loss": 1.5}\n' % i for i in range(3))
    p = subprocess.run([bash, "-c", script.replace("train model.method=ed", "export my")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env={**os.environ, "PATH": os.path.abspath("bin") + ":" + os.environ["PATH"]})
    assert p.stdout == b"my\\ run/metrics.jsonl\n", (p.stdout, p.stderr)


t.main(fresh=True)
