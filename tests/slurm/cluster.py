"""A real Slurm on this host: three nodes with four fake GPUs each, run by the current user.

`python -m tests.slurm.cluster` starts it, prints the variable to set, and stops it on Ctrl-C.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
NODES = ("n1", "n2", "n3")
GPUS = 4
START_S = 90.0
TRIES = 3  # another process may take a free port before a daemon opens it

CONF = """
ClusterName=fleet
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n.spool
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
TopologyPlugin=topology/tree
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=2
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
JobRequeue=0
KillWait=2
ReturnToService=2
MessageTimeout=60
BatchStartTimeout=120
NodeName=n[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[3]}] CPUs=8 Gres=gpu:{gpus}
PartitionName=gpu Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
"""
TOPOLOGY = """
SwitchName=rack1 Nodes=n[1-2]
SwitchName=rack2 Nodes=n3
SwitchName=spine Switches=rack[1-2]
"""


def lack() -> str | None:
    """Return why Slurm cannot start here, or None."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"Slurm is not installed: there is no {missing[0]} (apt-get install slurm-wlm munge)"
    return None


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class NoCluster(Exception):
    """Slurm is installed but does not start here; the message says why."""


class Cluster:
    """A running Slurm; its commands need the variables in `environment`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SUBMITIT"))}
        self.environment = {**kept, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Start all daemons and wait until every node is idle; raises NoCluster if that fails."""
        host, ports = socket.gethostname(), _free_ports(4)
        for name in ("state", *(f"{node}.spool" for node in NODES)):
            (self.folder / name).mkdir()
        for gpu in range(GPUS):
            (self.folder / f"gpu{gpu}").symlink_to("/dev/null")  # Slurm requires a device file, and never opens it
        text = CONF.format(host=host, ports=ports, user=getpass.getuser(), folder=self.folder, gpus=GPUS)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(f"NodeName=n[1-3] Name=gpu File={self.folder}/gpu[0-{GPUS - 1}]\n")
        (self.folder / "topology.conf").write_text(TOPOLOGY)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self._launch(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
            f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
            f"--seed-file={self.folder}/munged.seed",
        )  # fmt: skip
        self._until_up(lambda: (self.folder / "munge.socket").exists())
        self._launch("slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        self._until_up(lambda: self.idle() == set(NODES))

    def _until_up(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + START_S
        while not ready():
            gone = [name for name, process in self._processes.items() if process.poll() is not None]
            if gone:
                raise NoCluster(f"{gone[0]} ends at once: {self._last_words(gone[0])}")
            if time.monotonic() > end:
                raise NoCluster(f"the daemons do not come up in {START_S:.0f} s: {self._last_words('slurmctld')}")
            time.sleep(0.1)

    def _last_words(self, name: str) -> str:
        said = [line for path in (f"{name}.out", f"{name}.log") if (self.folder / path).exists()
                for line in (self.folder / path).read_text(errors="replace").splitlines() if line.strip()]  # fmt: skip
        return next((line for line in reversed(said) if "fatal" in line or "error" in line), (said or ["silence"])[-1])

    def _launch(self, program: str, *words: str, name: str = "") -> None:
        with (self.folder / f"{name or program}.out").open("ab") as said:
            self._processes[name or program] = subprocess.Popen(
                [program, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.environment
            )

    def start_node(self, node: str) -> None:
        """Start a node's daemon."""
        self._launch("slurmd", "-D", "-N", node, name=node)

    def idle(self) -> set[str]:
        """Return the nodes that are idle and accept jobs."""
        return {*self.run("sinfo", "-h", "-N", "-p", "gpu", "-t", "idle", "-o", "%N").stdout.split()}

    def run(self, *words: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run a Slurm command, or a command that calls Slurm."""
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False, timeout=240, **settings
        )

    def kill_node(self, node: str) -> None:
        """Kill a node's daemon and all its processes, without any message from them to Slurm."""
        daemon = self._processes.pop(node)
        daemon.send_signal(signal.SIGSTOP)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=dead")
        daemon.kill()
        daemon.wait()
        for process in _of_node(node, self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        """End all jobs and daemons."""
        if "slurmctld" in self._processes:
            self.run("scancel", "--user", str(os.getuid()))
            end = time.monotonic() + 10
            while self.run("squeue", "-h").stdout.strip() and time.monotonic() < end:
                time.sleep(0.1)
        for node in NODES:
            for process in _of_node(node, self.folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        for daemon in reversed(self._processes.values()):
            daemon.terminate()
        for daemon in self._processes.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._processes.clear()


def _of_node(node: str, folder: Path) -> Iterator[int]:
    """Yield the job processes of a node of the Slurm in this folder."""
    wanted = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={folder / 'slurm.conf'}".encode()}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted <= {*path.read_bytes().split(b"\0")}:
                yield int(path.parent.name)


def _free_ports(count: int) -> list[int]:
    """Return consecutive free ports."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        ports = [*range(first, first + count)]
        try:
            for port in ports:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return ports
    raise OSError("no free ports")


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """Yield a running cluster in a temporary folder; raises NoCluster if it does not start."""
    for attempt in range(1, TRIES + 1):
        with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            folder.chmod(0o755)  # munged's socket must be reachable
            cluster = Cluster(folder)
            try:
                try:
                    cluster.start()
                except NoCluster:
                    if attempt < TRIES:
                        continue
                    raise
                yield cluster
                return
            finally:
                cluster.stop()


def main() -> None:
    """Keep a cluster until interrupted."""
    problem = lack()
    if problem:
        sys.exit(problem)
    with running() as cluster, contextlib.suppress(KeyboardInterrupt):
        print(f"export SLURM_CONF={cluster.environment['SLURM_CONF']}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
