"""What the machine is doing: records of kind `system` (processors, memory, disk, network, GPUs), by the standard library only.

NVIDIA's GPUs are read from the library of the driver, or from nvidia-smi where that is missing, AMD's from /sys.  What cannot be read
is absent, never invented.  For tests: DEPTHSCOPE_NVML names the library, DEPTHSCOPE_SYSROOT a folder in place of / for /proc and /sys.
"""
from __future__ import annotations

import ctypes
import os
import re
import socket
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

THROTTLE = ("idle", "application clocks", "power", "hardware slowdown", "sync boost", "thermal", "hardware thermal", "power brake",
            "display clocks")  # bit i of the driver's reasons
GPUS_MAX = 16
PROCESSES_MAX = 16
SMI_SECONDS = 5.0
_BYTES, _WATTS, _CELSIUS, _MHZ = 2.0**60, 1e4, 200.0, 1e5  # what is more is not believed
_LOST = 15
_UNKNOWN = 0xFFFFFFFF
_SMI_FIELDS = ["utilization.gpu", "memory.used", "memory.total", "power.draw", "enforced.power.limit", "temperature.gpu", "clocks.sm",
               "clocks.mem", "clocks_throttle_reasons.active"]
Keys = Dict[str, Any]


def _path(path: str) -> str:
    return os.environ.get("DEPTHSCOPE_SYSROOT", "") + path


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            return f.read(1 << 16)
    except OSError:
        return ""


def _put(out: Keys, key: str, x: Optional[float], most: float) -> None:
    """Adds a plausible reading."""
    if x is not None and 0 <= x <= most:
        out[key] = x


def _number(text: str, unit: float = 1.0) -> Optional[float]:
    try:
        return float(text) * unit
    except ValueError:
        return None


def _name(name: str) -> str:
    """Without anything that a terminal interprets."""
    return "".join(c if c.isprintable() else "?" for c in name.strip())[:63]


class _ProcessInfo(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


class _Use(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Nvml:
    """The library of NVIDIA's driver.  A function that it lacks leaves its value unknown."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ.get("DEPTHSCOPE_NVML") or "libnvidia-ml.so.1")  # OSError: there is none
        self._known: Dict[int, str] = {}
        self._count = 0
        self.is_up = self._call("nvmlInit_v2") == 0

    def _call(self, name: str, *args: Any, older: str = "") -> int:
        fn: Optional[Callable[..., int]] = getattr(self._library, name, None) or (getattr(self._library, older, None) if older else None)
        return -1 if fn is None else int(fn(*args))

    def close(self) -> None:
        if self.is_up:
            self._call("nvmlShutdown")

    def gpus(self) -> List[Keys]:
        count = ctypes.c_uint()
        if not self.is_up or self._call("nvmlDeviceGetCount_v2", ctypes.byref(count)) != 0:
            return []
        return [self._gpu(i) for i in range(min(count.value, 1024))]

    def _gpu(self, i: int) -> Keys:
        g: Keys = {"source": "nvml"}
        gpu = ctypes.c_void_p()

        def ok(status: int) -> bool:
            if status == _LOST:
                g["lost"] = True
            return status == 0

        if ok(self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(i), ctypes.byref(gpu))):
            name = ctypes.create_string_buffer(96)
            if ok(self._call("nvmlDeviceGetName", gpu, name, ctypes.c_uint(96))):
                self._known[i] = _name(name.value.decode("utf-8", "surrogateescape"))
            self._values(gpu, g, ok)
        if self._known.get(i):
            g["name"] = self._known[i]
        return g

    def _values(self, gpu: ctypes.c_void_p, g: Keys, ok: Callable[[int], bool]) -> None:
        def number(key: str, unit: float, most: float, name: str, *args: Any, older: str = "") -> None:
            x = ctypes.c_uint(_UNKNOWN)
            if ok(self._call(name, gpu, *args, ctypes.byref(x), older=older)) and x.value != _UNKNOWN:
                _put(g, key, x.value * unit, most)

        use = _Use()
        if ok(self._call("nvmlDeviceGetUtilizationRates", gpu, ctypes.byref(use))):
            _put(g, "use", use.gpu / 100.0, 1)
        self._memory(gpu, g, ok)
        number("power", 1e-3, _WATTS, "nvmlDeviceGetPowerUsage")
        number("power_limit", 1e-3, _WATTS, "nvmlDeviceGetEnforcedPowerLimit", older="nvmlDeviceGetPowerManagementLimit")
        number("temperature", 1, _CELSIUS, "nvmlDeviceGetTemperature", ctypes.c_int(0))
        number("clock_sm", 1, _MHZ, "nvmlDeviceGetClockInfo", ctypes.c_int(1))
        number("clock_memory", 1, _MHZ, "nvmlDeviceGetClockInfo", ctypes.c_int(2))
        bits = ctypes.c_ulonglong()
        if ok(self._call("nvmlDeviceGetCurrentClocksEventReasons", gpu, ctypes.byref(bits),
                         older="nvmlDeviceGetCurrentClocksThrottleReasons")):
            g["throttle"] = _reasons(bits.value)
        self._processes(gpu, g, ok)

    def _memory(self, gpu: ctypes.c_void_p, g: Keys, ok: Callable[[int], bool]) -> None:
        new = _Memory2(version=ctypes.sizeof(_Memory2) | 2 << 24)
        old = _Memory()
        if ok(self._call("nvmlDeviceGetMemoryInfo_v2", gpu, ctypes.byref(new))):
            used, total = new.used, new.total
        elif ok(self._call("nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(old))):
            used, total = old.used, old.total
        else:
            return
        _put(g, "memory_total", float(total), _BYTES)
        _put(g, "memory_used", float(used), g.get("memory_total", -1))

    def _processes(self, gpu: ctypes.c_void_p, g: Keys, ok: Callable[[int], bool]) -> None:
        room = (_ProcessInfo * 256)()
        count = ctypes.c_uint(256)
        if not ok(self._call("nvmlDeviceGetComputeRunningProcesses_v3", gpu, ctypes.byref(count), room,
                             older="nvmlDeviceGetComputeRunningProcesses_v2")) or count.value > 256:
            return
        found = sorted(room[:count.value], key=lambda p: p.memory if p.memory <= _BYTES else -1, reverse=True)
        g["processes"] = []
        for p in found[:PROCESSES_MAX]:
            got: Keys = {"pid": int(p.pid)}
            name = _name(_text(_path("/proc/%d/comm" % p.pid)))
            if name:
                got["name"] = name
            _put(got, "memory", float(p.memory), _BYTES)
            g["processes"].append(got)
        if len(found) > PROCESSES_MAX:
            g["processes_more"] = len(found) - PROCESSES_MAX


def _reasons(bits: int) -> List[str]:
    return [THROTTLE[i] for i in range(len(THROTTLE)) if bits >> i & 1]


class _Smi:
    """The program nvidia-smi, where the library cannot be loaded."""

    def __init__(self) -> None:
        self._fields = list(_SMI_FIELDS)
        self._is_absent = False

    def _ask(self) -> str:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name," + ",".join(self._fields), "--format=csv,noheader,nounits"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=SMI_SECONDS, check=True)
        return done.stdout.decode("utf-8", "surrogateescape")

    def gpus(self) -> List[Keys]:
        if self._is_absent:
            return []
        try:
            try:
                text = self._ask()
            except subprocess.CalledProcessError:  # other drivers name the reasons differently
                if len(self._fields) < len(_SMI_FIELDS):
                    raise
                self._fields.pop()
                text = self._ask()
        except (OSError, subprocess.SubprocessError):
            self._is_absent = True  # one that hangs would hang again
            return []
        lines = [line.rsplit(",", len(self._fields)) for line in text.splitlines()]
        return [_smi_gpu(x[0], [v.strip() for v in x[1:]]) for x in lines if len(x) == len(self._fields) + 1]


def _smi_gpu(name: str, v: List[str]) -> Keys:
    g: Keys = {"source": "nvidia-smi"}
    if _name(name):
        g["name"] = _name(name)
    if any("is lost" in x for x in v):
        g["lost"] = True
    for i, (key, unit, most) in enumerate((("use", 0.01, 1.0), ("memory_used", 2.0**20, _BYTES), ("memory_total", 2.0**20, _BYTES),
                                           ("power", 1.0, _WATTS), ("power_limit", 1.0, _WATTS), ("temperature", 1.0, _CELSIUS),
                                           ("clock_sm", 1.0, _MHZ), ("clock_memory", 1.0, _MHZ))):
        _put(g, key, _number(v[i], unit), most)
    if len(v) > 8 and re.fullmatch("0x[0-9a-fA-F]+", v[8]):
        g["throttle"] = _reasons(int(v[8], 16))
    return g


def _amd_gpus() -> List[Keys]:
    root = _path("/sys/class/drm")
    try:
        cards = sorted(int(x[4:]) for x in os.listdir(root) if re.fullmatch("card[0-9]{1,4}", x))
    except OSError:
        return []
    devices = [os.path.join(root, "card%d" % i, "device") for i in cards]
    return [_amd_gpu(d) for d in devices if _text(os.path.join(d, "vendor")).strip() == "0x1002"]


def _amd_gpu(device: str) -> Keys:
    g: Keys = {"source": "amdgpu"}
    ident = _text(os.path.join(device, "device")).strip()
    name = _name(_text(os.path.join(device, "product_name"))) or (_name("AMD GPU " + ident) if ident else "")
    if name:
        g["name"] = name
    try:
        sensors = os.path.join(device, "hwmon", next(x for x in sorted(os.listdir(os.path.join(device, "hwmon"))) if x.startswith("hwmon")))
    except (OSError, StopIteration):
        sensors = ""
    for key, place, file, unit, most in (("use", device, "gpu_busy_percent", 0.01, 1.0), ("memory_used", device, "mem_info_vram_used", 1.0, _BYTES),
                                         ("memory_total", device, "mem_info_vram_total", 1.0, _BYTES),
                                         ("power", sensors, "power1_input", 1e-6, _WATTS), ("power", sensors, "power1_average", 1e-6, _WATTS),
                                         ("power_limit", sensors, "power1_cap", 1e-6, _WATTS), ("temperature", sensors, "temp1_input", 1e-3, _CELSIUS),
                                         ("clock_sm", sensors, "freq1_input", 1e-6, _MHZ), ("clock_memory", sensors, "freq2_input", 1e-6, _MHZ)):
        if place:
            _put(g, key, _number(_text(os.path.join(place, file)).strip(), unit), most)
    return g


def _memory() -> Tuple[Optional[float], Optional[float]]:
    """Used and total: of the machine, or of the tightest cgroup limit."""
    info = dict(re.findall(r"^(\w+):\s+(\d+) kB", _text("/proc/meminfo"), re.M))
    total = float(info["MemTotal"]) * 1024 if "MemTotal" in info else None
    left = float(info["MemAvailable"]) * 1024 if "MemAvailable" in info else None
    for line in _text("/proc/self/cgroup").splitlines():
        _, names, group = (line.split(":", 2) + ["", ""])[:3]
        if names and "memory" not in names.split(",") or ".." in group:
            continue
        root = "/sys/fs/cgroup" + ("/memory" if names else "")
        most, now, prefix = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_") if names else ("memory.max", "memory.current", "")
        here = root + group.rstrip("/")
        while len(here) >= len(root):
            limit, used = _number(_text(os.path.join(here, most)).strip()), _number(_text(os.path.join(here, now)).strip())
            if limit is not None and used is not None and 0 < limit <= _BYTES and (total is None or limit < total):
                caches = dict(re.findall(r"^(\w+) (\d+)$", _text(os.path.join(here, "memory.stat")), re.M))
                total = limit
                left = min(limit, limit - used + float(caches.get(prefix + "inactive_file", 0)) + float(caches.get(prefix + "active_file", 0)))
            here = os.path.dirname(here)
    if total is None or left is None or not 0 <= left <= total:
        return None, None
    return total - left, total


class Machine:
    """Samples of this machine.  Rates are between two samples, so the first one has none."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._before: Optional[Tuple[float, Keys]] = None
        self._nvml: Optional[_Nvml] = None
        self._smi: Optional[_Smi] = None
        try:
            self._nvml = _Nvml()
        except OSError:
            self._smi = _Smi()

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()

    def _counters(self, out: Keys) -> Keys:
        now: Keys = {"process": time.process_time()}
        lines = [x.split() for x in _text(_path("/proc/stat")).splitlines() if x.startswith("cpu")]
        if len(lines) > 1:
            out["cpus"] = len(lines) - 1
        if lines and len(lines[0]) > 4:
            ticks = [int(x) for x in lines[0][1:9]]
            now["total"] = sum(ticks)
            now["busy"] = now["total"] - sum(ticks[3:5])
        for line in _text(_path("/proc/net/dev")).splitlines():
            name, colon, rest = line.partition(":")
            v = rest.split()
            if colon and name.strip() != "lo" and len(v) >= 9:
                now["in"] = now.get("in", 0) + int(v[0])
                now["out"] = now.get("out", 0) + int(v[8])
        return now

    def _rates(self, out: Keys) -> None:
        at, now = time.monotonic(), self._counters(out)
        if self._before is not None:
            seconds, before = at - self._before[0], self._before[1]
            out["seconds"] = seconds
            if "total" in now and "total" in before and now["total"] > before["total"]:
                _put(out, "cpu", (now["busy"] - before["busy"]) / (now["total"] - before["total"]), 1)
            for key, counter in (("process_cpu", "process"), ("net_in", "in"), ("net_out", "out")):
                if counter in now and counter in before and seconds > 0:
                    _put(out, key, (now[counter] - before[counter]) / seconds, _BYTES)
        self._before = (at, now)

    def sample(self) -> Keys:
        """The keys of a record of kind `system`."""
        out: Keys = {"host": socket.gethostname()}
        self._rates(out)
        load = [_number(x) for x in _text(_path("/proc/loadavg")).split()[:3]]
        if len(load) == 3 and None not in load:
            out["load"] = load
        used, total = _memory()
        _put(out, "memory_used", used, _BYTES)
        _put(out, "memory_total", total, _BYTES)
        try:
            disk = os.statvfs(self._folder)
            out["disk_free"] = float(disk.f_bavail * disk.f_frsize)
            out["disk_total"] = float(disk.f_blocks * disk.f_frsize)
        except OSError:
            pass
        gpus = (self._nvml.gpus() if self._nvml is not None else self._smi.gpus() if self._smi is not None else []) + _amd_gpus()
        out["gpus"] = gpus[:GPUS_MAX]
        if len(gpus) > GPUS_MAX:
            out["gpus_more"] = len(gpus) - GPUS_MAX
        return out


class Watch:
    """Calls put(sample) every `seconds` from a thread of its own: a driver that hangs delays neither training nor the log."""

    def __init__(self, folder: str, seconds: float, put: Callable[[Keys], None]) -> None:
        self._folder = folder
        self._seconds = max(float(seconds), 0.1)
        self._put = put
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="depthscope-machine", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            machine = Machine(self._folder)
            machine.sample()  # rates are since here
            while not self._ends.wait(self._seconds):
                self._put(machine.sample())
            machine.close()
        except Exception:  # a machine that cannot be read is not worth a run
            pass

    def close(self) -> None:
        self._ends.set()
        self._thread.join(0.5)
