"""A server of netfs.c and its clients: what befalls the network is set here."""
import errno
import os
import struct
import subprocess
import time

import t
from preload import build_program

FIELDS = ("error", "fails", "holes", "quota", "boot", "replies", "away_ns", "hits")  # struct control of netfs.c
CALM = {"error": 0, "fails": 0, "holes": 0, "quota": -1, "replies": 0, "away_ns": 0}


def can_mount():
    """Why no network file system can be mounted here, or None."""
    try:
        build_program("netfs", "fuse3")
    except t.Skip as x:
        return str(x)
    if os.geteuid() != 0:
        return "no right to mount"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as x:
        return "/dev/fuse: %s" % x.strerror
    return None


class Server:
    """A directory on a small file system of its own, mounted at several places as by several clients."""

    def __init__(self, work, places, size):
        self.work, self.path, self.control = work, os.path.join(work, "server"), os.path.join(work, "control")
        self.places, self.clients = [], []
        os.makedirs(self.path)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % size, "none", self.path], capture_output=True).returncode != 0:
            raise t.Skip("no right to mount")
        with open(self.control, "wb") as f:
            f.write(struct.pack("=%dq" % len(FIELDS), *(CALM.get(k, 0) for k in FIELDS)))
        try:
            for place in places:
                self.join(place)
        except BaseException:
            self.close()
            raise

    def join(self, place):
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(self.work, "clients"), "ab") as f:
            p = subprocess.Popen([build_program("netfs", "fuse3"), self.path, self.control, place, "-f", "-o", "max_threads=8"],
                                 stdin=subprocess.DEVNULL, stdout=f, stderr=f)
        self.clients.append(p)
        self.places.append(place)
        end = time.monotonic() + 10 * t.SLOW
        while not os.path.ismount(place):
            if p.poll() is not None or time.monotonic() > end:
                with open(f.name, encoding="utf-8", errors="replace") as log:
                    raise t.Skip("not mounted: %s" % log.read()[-200:].strip())
            time.sleep(0.01)

    def get(self, field):
        with open(self.control, "rb") as f:
            return struct.unpack_from("=q", f.read(), 8 * FIELDS.index(field))[0]

    def set(self, **what):
        """The order counts: what switches a fault on comes last."""
        with open(self.control, "r+b", buffering=0) as f:
            for field, value in what.items():
                f.seek(8 * FIELDS.index(field))
                f.write(struct.pack("=q", value))

    def calm(self):
        self.set(**CALM)

    def fail(self, name, times, holes):
        self.set(error=getattr(errno, name), holes=holes, fails=times)

    def go_away(self, seconds):
        self.set(away_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(1e9 * seconds))

    def restart(self):
        self.set(boot=self.get("boot") + 1)

    def close(self):
        self.calm()
        for place in self.places:
            subprocess.run(["umount", "-l", place], capture_output=True)
        for p in self.clients:
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        subprocess.run(["umount", "-l", self.path], capture_output=True)
