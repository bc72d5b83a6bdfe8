"""A Slurm cluster of one node for tests: munged, slurmctld and slurmd on ports and in a folder of their own, ended with the test."""
import os
import shutil
import socket
import subprocess
import time

from t import SLOW, Skip

CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={top}/munge/socket,cred_expire=3
StateSaveLocation={top}/state
SlurmdSpoolDir={top}/spool
SlurmctldPidFile={top}/slurmctld.pid
SlurmdPidFile={top}/slurmd.pid
SlurmctldLogFile={top}/slurmctld.log
SlurmdLogFile={top}/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,sched_interval=1
SwitchType=switch/none
ReturnToService=2
KillWait=5
InactiveLimit=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")


def free_ports(n):
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Cluster:
    """Raises Skip with the reason where it cannot be had."""

    def __init__(self, top):
        self.top, self.daemons = top, []
        missing = [x for x in NEEDED if not self.find(x)]
        if missing:
            raise Skip("%s not installed (slurm-wlm, munge)" % ", ".join(missing))
        if os.geteuid() != 0:
            raise Skip("slurmd must be started by root")
        for name in ("munge", "state", "spool"):
            os.makedirs(os.path.join(top, name), mode=0o755)
        with open(os.path.join(top, "munge", "key"), "wb") as f:
            f.write(os.urandom(1024))
        os.chmod(os.path.join(top, "munge", "key"), 0o600)
        self.host = socket.gethostname().split(".")[0]
        with open(os.path.join(top, "slurm.conf"), "w") as f:
            f.write(CONF.format(top=top, host=self.host, ports=free_ports(2)))
        with open(os.path.join(top, "cgroup.conf"), "w") as f:
            f.write("CgroupAutomount=no\n")
        self.env = dict(os.environ, SLURM_CONF=os.path.join(top, "slurm.conf"))
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    @staticmethod
    def find(name):
        return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

    def daemon(self, name, *words):
        with open(os.path.join(self.top, name + ".out"), "w") as out:
            self.daemons.append(subprocess.Popen([self.find(name), *words], env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                                 stderr=out, start_new_session=True))

    def start(self):
        munge = os.path.join(self.top, "munge")
        self.daemon("munged", "--foreground", "--force", "--key-file=%s/key" % munge, "--socket=%s/socket" % munge,
                    "--pid-file=%s/pid" % munge, "--log-file=%s/log" % munge, "--seed-file=%s/seed" % munge)
        self.wait(lambda: os.path.exists(os.path.join(munge, "socket")), "munged")
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D", "-N", self.host)
        self.wait(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%t"), "slurmd")

    def wait(self, what, who):
        end = time.monotonic() + 30 * SLOW
        while time.monotonic() < end:
            if what():
                return
            if [p for p in self.daemons if p.poll() is not None]:
                break
            time.sleep(0.1)
        told = ""
        for name in sorted(os.listdir(self.top)):
            if name.endswith((".log", ".out")):
                told += "".join(open(os.path.join(self.top, name), errors="replace").readlines()[-3:])
        raise Skip("no Slurm cluster on this machine: %s did not start: %s" % (who, told.replace("\n", "; ")[-600:]))

    def ask(self, *words):
        return subprocess.run(words, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).stdout.decode()

    def stop(self):
        for p in reversed(self.daemons):
            p.terminate()
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
