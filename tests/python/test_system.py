"""Records of the machine, by the program and by the package: the same values from the same stand-in for NVIDIA's library, the same
files of amdgpu and the same nvidia-smi, and what doctor and the Machine view print of them."""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import PROGRAM, ROOT, wait_for  # noqa: E402
import t  # noqa: E402
from t import Skip, TINY, run, test  # noqa: E402

import depthscope as ds  # noqa: E402
from depthscope import _log, _system  # noqa: E402

BUILD = os.path.join(ROOT, os.environ.get("BUILD_DIR", "build/release"), "tests", "unit")
VALUES = """count 3
0 name NVIDIA H100 80GB HBM3
0 use 87
0 memory 40000000000 85899345920 600000000
0 power 612345
0 limit 700000
0 temperature 64
0 sm 1755
0 clock_memory 2619
0 reasons 0x24
0 process 11 1000000
0 process 4242 39000000000
0 process 12 18446744073709551615
1 name \x1b[31mred\xff
1 use 4294967295
1 memory 5 4 0
1 power 4294967295
1 temperature 900
1 sm 4294967295
1 reasons 0
2 lost 1
"""
AMD = {"vendor": "0x1002", "device": "0x74a1", "product_name": "AMD Instinct MI300X", "gpu_busy_percent": "93",
       "mem_info_vram_used": "150000000000", "mem_info_vram_total": "206141652992", "hwmon/hwmon4/power1_average": "701000000",
       "hwmon/hwmon4/power1_input": "1", "hwmon/hwmon4/power1_cap": "750000000", "hwmon/hwmon4/temp1_input": "71500",
       "hwmon/hwmon4/freq1_input": "2100000000", "hwmon/hwmon4/freq2_input": "1300000000"}
WANT = [
    {"source": "nvml", "name": "NVIDIA H100 80GB HBM3", "use": 0.87, "memory_used": 40e9, "memory_total": 85899345920, "power": 612.345,
     "power_limit": 700, "temperature": 64, "clock_sm": 1755, "clock_memory": 2619, "throttle": ["power", "thermal"],
     "processes": [{"pid": 4242, "name": "python3", "memory": 39e9}, {"pid": 11, "memory": 1e6}, {"pid": 12}]},
    {"source": "nvml", "name": "?[31mred?", "memory_total": 4, "throttle": [], "processes": []},
    {"source": "nvml", "lost": True},
    {"source": "amdgpu", "name": "AMD Instinct MI300X", "use": 0.93, "memory_used": 150e9, "memory_total": 206141652992, "power": 701,
     "power_limit": 750, "temperature": 71.5, "clock_sm": 2100, "clock_memory": 1300},
]
HOST = ("host", "cpus", "load", "memory_used", "memory_total", "disk_free", "disk_total", "seconds", "cpu", "process_cpu", "net_in", "net_out")


def put(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="latin-1") as f:
        f.write(text)
    os.chmod(path, mode)


def use(library="libnvml.so", values=VALUES, amd=AMD):
    """The machine that both see from here on."""
    if library and not os.path.exists(os.path.join(BUILD, library)):
        raise Skip("%s is not built: make programs" % library)
    root = os.path.abspath("root")
    put("root/values", values)
    put("root/proc/4242/comm", "python3\n")
    put("root/proc/loadavg", "1.5 2.5 3.5 1/2 3\n")
    put("root/proc/stat", "cpu  1 0 1 8 0 0 0 0\ncpu0 1 0 1 8 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n")
    put("root/proc/net/dev", "a\nb\n  lo: 9 9 9 9 9 9 9 9 9 9\neth0: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n")
    for name, text in amd.items():
        put("root/sys/class/drm/card1/device/" + name, text + "\n")
    put("root/sys/class/drm/card0/device/vendor", "0x8086\n")
    os.environ.update(DEPTHSCOPE_SYSROOT=root, NVML_STUB=os.path.join(root, "values"),
                      DEPTHSCOPE_NVML=os.path.join(BUILD, library) if library else "/nonexistent/library.so")


def same(got, want):
    assert len(got) == len(want), got
    for g, w in zip(got, want):
        assert sorted(g) == sorted(w), "%s: keys %s, expected %s" % (w.get("name"), sorted(g), sorted(w))
        for key in w:
            ok = abs(g[key] - w[key]) <= 1e-9 * abs(w[key]) if isinstance(w[key], float) else g[key] == w[key]
            assert ok, "%s: %r, expected %r" % (key, g[key], w[key])


def of_run(name):
    lines = run("stream", "--json", "--no-follow", "runs/" + name).splitlines()
    return [x for x in map(json.loads, lines) if x["kind"] == "system"]


@test
def the_program_and_the_package_record_the_same():
    use()
    run("train", "quick", *TINY, "--run", "c", "--quiet", "train.steps=30", "train.system_every=0.1")
    with ds.init(name="p", system_every=0.1) as r:
        r.log({"loss": 1}, step=7)
        wait_for(lambda: os.path.getsize("runs/p/log.mp") > 3000, what="two records of the machine")
    c, p = of_run("c"), of_run("p")
    assert c and p
    for x in c + p:
        same(x["gpus"], WANT)
        assert sorted(x) == sorted(HOST + ("kind", "step", "time", "gpus")) or x is c[0] or "cpu" not in x, sorted(x)
        assert x["cpus"] == 2 and x["load"] == [1.5, 2.5, 3.5] and x["seconds"] > 0 and x["net_in"] == x["net_out"] == 0
        assert 0 < x["disk_free"] <= x["disk_total"] and 0 < x["memory_used"] < x["memory_total"]
    back = ds.read("runs/p").systems
    assert len(back) == len(p) and back[0]["step"] == 7 and back[-1]["gpus"][0]["power"] == 612.345
    assert abs(c[-1]["memory_total"] - p[-1]["memory_total"]) < 1 and c[-1]["host"] == p[-1]["host"] and p[-1]["step"] == 7
    assert "system" in run("inspect", "runs/c") and "system/gpu.0.gpu" in run("inspect", "runs/c")


@test
def zero_seconds_record_nothing():
    use()
    run("train", "quick", *TINY, "--run", "c", "--quiet", "train.steps=30", "train.system_every=0")
    with ds.init(name="p", system_every=0) as r:
        r.log({"loss": 1})
        time.sleep(0.3)
    assert not of_run("c") and not of_run("p")
    records = run("stream", "--json", "--no-follow", "runs/c")
    assert '"metric"' in records and "peak_" not in records and '"mfu":' not in records  # nor is the peak measured


@test
def rates_of_the_package_are_differences():
    use(amd={})
    m = _system.Machine(".")
    first = m.sample()
    assert not {"seconds", "cpu", "net_in", "net_out", "process_cpu"} & set(first)
    put("root/proc/stat", "cpu  31 10 11 68 40 0 0 0 0 0\ncpu0 1 0 1 8 0 0 0 0\n")  # 50 of 150 ticks were busy
    put("root/proc/net/dev", "eth0: 60100 1 0 0 0 0 0 0 3200 1 0 0 0 0 0 0\n")
    x = m.sample()
    assert abs(x["cpu"] - 50 / 150) < 1e-12 and abs(x["net_in"] * x["seconds"] - 60000) < 1e-6
    assert abs(x["net_out"] * x["seconds"] - 3000) < 1e-6
    put("root/proc/stat", "cpu  1 0 0 0 0\n")
    put("root/proc/net/dev", "eth0: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n")
    assert not {"cpu", "net_in", "net_out"} & set(m.sample())


@test
def a_library_without_some_functions_leaves_their_values_out():
    use("libnvml_old.so", amd={})
    g = _system.Machine(".").sample()["gpus"][0]
    assert g["use"] == 0.87 and g["memory_used"] == 40.6e9 and not {"power", "power_limit", "throttle", "processes"} & set(g)


@test
def nvidia_smi_serves_both_where_the_library_is_missing():
    use(None, amd={})
    path = os.environ["PATH"]
    put("bin/nvidia-smi", "#!/bin/sh\ncase $1 in *reasons*) exit 2 ;; esac\n"
                          "echo 'Tesla T4, X, [N/A], 1, 15360, 9.5, 70, 40, 300, 405'\n", 0o755)
    os.environ["PATH"] = os.path.abspath("bin") + ":" + path
    want = {"source": "nvidia-smi", "name": "Tesla T4, X", "memory_used": 2.0**20, "memory_total": 15360 * 2.0**20, "power": 9.5,
            "power_limit": 70, "temperature": 40, "clock_sm": 300, "clock_memory": 405}
    same(_system.Machine(".").sample()["gpus"], [want])
    assert "1 x Tesla T4, X, 16.1GB each (nvidia-smi)" in run("doctor")
    put("bin/nvidia-smi", "#!/bin/sh\necho asked >>calls\nexec sleep 60\n", 0o755)
    _system.SMI_SECONDS = 0.2
    m = _system.Machine(".")
    assert m.sample()["gpus"] == [] and m.sample()["gpus"] == []
    with open("calls") as f:
        assert f.read() == "asked\n"  # it would hang again
    os.environ["PATH"] = path


@test
def doctor_and_the_view_show_what_is_there():
    use()
    text = run("doctor")
    assert "1 x NVIDIA H100 80GB HBM3, 85.9GB each (nvml)" in text and "lost, no longer answers" in text, text
    assert "1 x AMD Instinct MI300X, 206GB each (amdgpu)" in text and "\x1b" not in text
    text = run("show", "machine", "--size=80x24")
    for part in ("load 1.50 2.50 3.50", "H100 80GB HBM3", "87 %", "40/86 GB", "612/700 W", "power, the", "lost", "MI300X", "2 processors",
                 "processes 4242 python3 39.0GB, 11 - 1.00MB, 12 - -"):
        assert part in text, "%r is missing:\n%s" % (part, text)
    use(None, amd={})
    os.environ["DEPTHSCOPE_SYSROOT"] = os.path.abspath("empty")
    path, os.environ["PATH"] = os.environ["PATH"], os.path.abspath("empty")
    assert "none found" in run("doctor") and " no GPU" in run("show", "machine", "--size=80x24")
    os.environ["PATH"] = path


def watched(path, part):
    """Whether the workbench on a terminal shows `part` in the view Machine of a run."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", LC_ALL="C.UTF-8", XDG_STATE_HOME=os.path.abspath("state"))
        os.execv(PROGRAM, [PROGRAM, "--view", "machine", path])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown = bytearray()

    def has_shown():
        try:
            while select.select([fd], [], [], 0)[0]:
                shown.extend(os.read(fd, 65536))
        except OSError:
            raise AssertionError("it ended: %r" % bytes(shown[-400:]))
        return part.encode() in shown
    try:
        wait_for(has_shown, what="%r on the screen" % part)
    finally:
        os.kill(pid, signal.SIGTERM)
        os.close(fd)
        os.waitpid(pid, 0)


@test
def the_view_shows_the_present_of_a_run_that_lives_here():
    use()
    with ds.init(name="p", system_every=3600) as r:
        r.log({"loss": 1}, step=7)
        watched("runs/p", "612/700")  # of this machine: nothing is recorded
    watched("runs/p", "train.system_every")  # it has ended, and says how it would have been recorded


t.main(fresh=True)
