"""A real Slurm on loopback: slurmctld, N slurmd and munge in one folder, on free ports, stopped by pid."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from backend.clients.slurm import Ran, SlurmCli, run_bounded
from tests.services import slurm_accounting
from tests.services.need import need

#: Gpu devices of a node; gres.conf wants character devices, and a link to /dev/null passes.
GPUS = 8
CONF = """\
ClusterName=watchtest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock,cred_expire=5
CredType=cred/munge
{jwt}StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=1
KillWait=2
SlurmdTimeout=5
CompleteWait=0
MinJobAge=300
JobRequeue=1
GresTypes=gpu
PropagateResourceLimits=NONE
RebootProgram=/bin/true
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
{more}{nodes}
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 Sockets=2 CoresPerSocket=32 "
    "ThreadsPerCore=1 RealMemory=16000 Gres=gpu:h100:{gpus} Feature=h100 State=UNKNOWN"
)


@dataclass
class SlurmCluster:
    """A running cluster. ``conf`` is what SLURM_CONF must say; every command of ours gets it. ``prefix`` stands before
    each program of Slurm: chroot and a folder, where another version lives there."""

    folder: Path
    conf: Path
    nodes: tuple[str, ...]
    programs: dict[str, str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    def cli(self, timeout_s: float = 15.0, between: Callable[[Sequence[str]], None] = lambda command: None) -> SlurmCli:
        """Our client of this cluster; ``between`` runs before each of its commands."""

        def run(command: Sequence[str], env: Mapping[str, str], timeout: float) -> Ran:
            between(command)
            return run_bounded([*self.prefix, *command], env, timeout)

        return SlurmCli(str(self.conf), timeout_s, run)

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf), "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}

    def run(self, *command: str, check: bool = True) -> str:
        """Output of one Slurm command, as a person on the head node would run it."""
        done = self.ask(*command)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.returncode} {done.stdout} {done.stderr}")
        return done.stdout

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        whole = [*self.prefix, *command]
        return subprocess.run(whole, env=self.env, capture_output=True, text=True, timeout=30, check=False)

    def submit(self, *options: str, command: str = "sleep 600") -> str:
        """Id of a new batch job."""
        script = ["--parsable", f"--output={self.folder}/log/job-%j.log", f"--chdir={self.folder}", f"--wrap={command}"]
        return self.run("sbatch", *script, *options).strip().split(";")[0]

    def start_node(self, name: str) -> None:
        self._start(name, "slurmd", "-D", "-N", name, "-f", str(self.conf))

    def kill_node(self, name: str) -> None:
        """The node's slurmd dies without a word; slurmctld calls it down at its next ping, up to 30 s later."""
        _end(self.running.pop(name), signal.SIGKILL)

    def start_controller(self) -> None:
        anew = ("-i",) if self.prefix else ()  # 24.05 and later want to be told that there is no state yet
        self._start("slurmctld", "slurmctld", "-D", *anew, "-f", str(self.conf))

    def pause_controller(self) -> None:
        """The controller hangs: it still accepts connections, and answers nobody."""
        self.running["slurmctld"].send_signal(signal.SIGSTOP)

    def resume_controller(self) -> None:
        self.running["slurmctld"].send_signal(signal.SIGCONT)

    def wait(self, what: str, true: Callable[[], bool], within_s: float = 30.0) -> None:
        """Polls until ``true()``; fails with the controller's last words."""
        end = time.monotonic() + within_s
        while not true():
            if time.monotonic() > end:
                raise AssertionError(f"Slurm: no {what} within {within_s} s\n{self.words()}")
            time.sleep(0.1)

    def words(self) -> str:
        logs = [p for end in ("log", "out") for p in sorted((self.folder / "log").glob(f"*.{end}"))]
        return "\n".join(f"== {log.name}\n" + "\n".join(log.read_text().splitlines()[-15:]) for log in logs)

    def idle(self) -> bool:
        return len(self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False).split()) == len(self.nodes)

    def clean(self) -> None:
        """Every job gone, every node back and idle: what one test leaves to the next."""
        self.run("scancel", "--state=PENDING", f"--user={_user()}", check=False)
        self.run("scancel", "--signal=KILL", "--full", f"--user={_user()}", check=False)
        self.run("scancel", f"--user={_user()}", check=False)
        self.wait("empty queue", lambda: not self.run("squeue", "-h", "-o", "%i").split())
        for name in self.nodes:
            if name not in self.running:
                self.start_node(name)
            self._up_again(name)
            self.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        self.wait("idle nodes", self._resumed)

    def _resumed(self) -> bool:
        for name in self.run("sinfo", "-h", "-N", "-t", "down,drain", "-o", "%N", check=False).split():
            self.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        return self.idle()

    def _up_again(self, name: str) -> None:
        """A node that a test had rebooted: called off where it only waits, else its slurmd starts as booted."""
        state = re.compile(r"State=\S*REBOOT")
        self.run("scontrol", "cancel_reboot", name, check=False)
        if not state.search(self.run("scontrol", "show", "node", name, check=False)):
            return
        _end(self.running.pop(name), signal.SIGTERM)
        self._start(name, "slurmd", "-D", "-b", "-N", name, "-f", str(self.conf))

    def stop(self) -> None:
        if "slurmctld" in self.running:
            self.resume_controller()
            self.run("scancel", "--signal=KILL", "--full", f"--user={_user()}", check=False)
        for name in [*self.nodes, "slurmrestd", "slurmctld", "slurmdbd", "mariadbd", "munged"]:
            if name in self.running:
                _end(self.running.pop(name), signal.SIGTERM)
        for pid in self._left():
            os.kill(pid, signal.SIGKILL)

    def _left(self) -> list[int]:
        """Job steps that outlived their slurmd: processes that carry our own SLURM_CONF."""
        mark = f"SLURM_CONF={self.conf}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue  # it ended, or is not ours
        return found

    def _start(self, name: str, program: str, *options: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as out:
            before = self.prefix if program.startswith("slurm") else ()
            command = [*before, self.programs[program], *options]
            self.running[name] = subprocess.Popen(command, env=self.env, stdout=out, stderr=out, start_new_session=True)


@contextmanager
def rest(cluster: SlurmCluster, plugins: str = "openapi/v0.0.38") -> Iterator[str]:
    """slurmrestd of this cluster: its URL. It may be neither root nor SlurmUser, so it runs as nobody."""
    cluster.programs["slurmrestd"] = (
        "/usr/sbin/slurmrestd" if cluster.prefix else need("slurmrestd", "slurmrestd slurm-wlm-jwt-plugin")
    )
    (port,) = _free_ports(1)
    for part in (cluster.folder, cluster.conf.parent):
        part.chmod(0o755)  # it reads slurm.conf
    as_nobody = (*cluster.prefix, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
    env = {**cluster.env, "SLURM_JWT": "daemon"}
    with (cluster.folder / "log" / "slurmrestd.out").open("ab") as out:
        command = [
            *as_nobody,
            cluster.programs["slurmrestd"],
            "-a",
            "rest_auth/jwt",
            "-s",
            plugins,
            f"127.0.0.1:{port}",
        ]
        cluster.running["slurmrestd"] = subprocess.Popen(
            command, env=env, stdout=out, stderr=out, start_new_session=True
        )
    try:
        cluster.wait("slurmrestd", lambda: _listens(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        _end(cluster.running.pop("slurmrestd"), signal.SIGTERM)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def slurm(
    nodes: int = 4, *, accounting: bool = False, more: str = "", topology: str = "", root: Path | None = None
) -> Iterator[SlurmCluster]:
    """A cluster of gpu-0000, gpu-0001 ... with 8 GPUs each, all idle; everything is gone at exit.

    accounting: with slurmdbd and MariaDB. more: further lines of slurm.conf. topology: its topology.conf.
    root: a folder in which another version is installed (``slurm24_install``); it must have this machine's /tmp.
    """
    programs = {"munged": need("munged", "munge")}
    if root is None:
        programs["slurmctld"] = need("slurmctld", "slurmctld slurm-wlm-basic-plugins")
        programs["slurmd"] = need("slurmd", "slurmd slurm-wlm-basic-plugins")
        need("scontrol", "slurm-client")
    else:
        programs |= {name: f"/usr/sbin/{name}" for name in ("slurmctld", "slurmd")}
    folder = Path(tempfile.mkdtemp(prefix="wk-slurm-"))  # short: a socket's path has at most 107 characters
    try:
        names = tuple(f"gpu-{i:04d}" for i in range(nodes))
        kept = slurm_accounting.accounting(folder, *_free_ports(2)) if accounting else None
        conf = _lay_out(folder, names, more + (kept.conf() if kept else ""))
        cluster = SlurmCluster(folder, conf, names, programs, prefix=("chroot", str(root)) if root else ())
        (folder / "etc" / "topology.conf").write_text(topology)
        if root is not None:
            (folder / "etc" / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        with ExitStack() as stack:
            stack.callback(cluster.stop)
            _boot(cluster, kept)
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _boot(cluster: SlurmCluster, kept: slurm_accounting.Accounting | None) -> None:
    munge = cluster.folder / "munge"
    named = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={munge / name}" for option, name in named.items()]
    cluster._start("munged", "munged", "--foreground", "--force", *options)
    cluster.wait("munge socket", (munge / "sock").exists)
    if kept is not None:
        cluster.programs |= kept.programs
        slurm_accounting.start(kept, cluster._start, cluster.wait, cluster.ask)
    cluster.start_controller()
    cluster.wait("controller", lambda: "UP" in cluster.run("scontrol", "ping", check=False))
    for name in cluster.nodes:
        cluster.start_node(name)
    cluster.wait("idle nodes", cluster.idle)
    if kept is not None:
        slurm_accounting.registered(cluster.ask)


def _lay_out(folder: Path, names: tuple[str, ...], more: str) -> Path:
    for part in ("etc", "log", "run", "state", "munge", "dev", *(f"spool.{n}" for n in names)):
        (folder / part).mkdir()
    for gpu in range(GPUS):
        (folder / "dev" / f"nvidia{gpu}").symlink_to("/dev/null")
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname().split(".")[0]
    port, *ports = _free_ports(len(names) + 1)
    lines = [NODE.format(name=n, host=host, port=p, gpus=GPUS) for n, p in zip(names, ports, strict=True)]
    conf = folder / "etc" / "slurm.conf"
    conf.write_text(
        CONF.format(
            host=host, port=port, user=_user(), folder=folder, nodes="\n".join(lines), more=more, jwt=_jwt(folder)
        )
    )
    gres = [f"NodeName={n} Name=gpu Type=h100 File={folder}/dev/nvidia[0-{GPUS - 1}]" for n in names]
    (folder / "etc" / "gres.conf").write_text("\n".join(gres) + "\n")
    return conf


def _jwt(folder: Path) -> str:
    """Lines that let slurmrestd in by token; none where the plugin is not installed."""
    if not any(Path("/usr/lib").glob("*/slurm*/auth_jwt.so")):
        return ""
    key = folder / "etc" / "jwt.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    return f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}\n"


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in taken]


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    process.send_signal(how)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
