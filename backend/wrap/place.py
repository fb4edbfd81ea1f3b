"""Where a process stands: job, attempt, rank and node, as Slurm, Kubernetes, torchrun and MPI tell it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

#: Variables that tell of the surroundings and hold no secret; nothing else of the environment is ever reported.
FACTS = frozenset(
    """
    SLURM_JOB_ID SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_JOB_NAME SLURM_RESTART_COUNT SLURM_PROCID SLURM_LOCALID
    SLURM_NODEID SLURM_NTASKS SLURM_NNODES SLURM_STEP_ID SLURM_STEP_NUM_TASKS SLURM_STEP_NUM_NODES SLURM_NODELIST
    SLURM_JOB_NODELIST SLURM_JOB_PARTITION SLURM_JOB_ACCOUNT SLURM_JOB_USER SLURM_JOB_GPUS SLURM_STEP_GPUS
    SLURM_CLUSTER_NAME SLURM_CPUS_PER_TASK SLURM_MEM_PER_NODE SLURM_JOB_START_TIME SLURM_JOB_END_TIME SLURMD_NODENAME
    PBS_JOBID PBS_JOBNAME LSB_JOBID LSB_JOBNAME KUBERNETES_SERVICE_HOST POD_NAME POD_NAMESPACE NODE_NAME JOB_NAME
    JOB_COMPLETION_INDEX HOSTNAME RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK MASTER_ADDR
    MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS OMPI_COMM_WORLD_RANK
    OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK PMI_RANK PMI_SIZE PMIX_RANK CUDA_VISIBLE_DEVICES
    ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING
    NCCL_DEBUG NCCL_IB_HCA NCCL_SOCKET_IFNAME NCCL_IB_DISABLE NCCL_P2P_DISABLE NCCL_TIMEOUT
    TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_TRACE_BUFFER_SIZE PYTORCH_CUDA_ALLOC_CONF
    OMP_NUM_THREADS CONDA_DEFAULT_ENV VIRTUAL_ENV
    """.split()
)
#: Programs that start the ranks themselves: their process is no rank.
LAUNCHERS = frozenset(
    "torchrun accelerate deepspeed mpirun mpiexec orterun srun horovodrun ray composer colossalai "
    "torch.distributed.run torch.distributed.launch torch.distributed.elastic".split()
)
#: Where Kubernetes tells a pod its namespace.
NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
LONGEST = 255


class Place:
    """``task`` and ``tasks``: this wrapper among those of its job, None where it stands alone. ``rank``: the rank that
    the child is, None where it starts ranks itself."""

    def __init__(self, environment: Mapping[str, str], command: Sequence[str], job: str, name: str) -> None:
        self._env = environment
        self.job = (job or self._job())[:LONGEST]
        self.name = (name or environment.get("SLURM_JOB_NAME") or os.path.basename(command[0]) or "job")[:LONGEST]
        self.restart = _whole(environment.get("SLURM_RESTART_COUNT")) or 0
        self.relaunch = _whole(environment.get("TORCHELASTIC_RESTART_COUNT")) or 0
        self.node = environment.get("SLURMD_NODENAME") or environment.get("NODE_NAME") or os.uname().nodename
        self.task, self.tasks = self._task()
        launches = any(os.path.basename(word) in LAUNCHERS for word in command[:12])
        self.rank = None if launches or self.task is None else self.task

    def _job(self) -> str:
        env = self._env
        for variable in ("SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID"):
            if env.get(variable):
                return env[variable]
        if env.get("KUBERNETES_SERVICE_HOST") and env.get("JOB_NAME"):
            return (env.get("POD_NAMESPACE") or _first_line(NAMESPACE_FILE) or "default") + "." + env["JOB_NAME"]
        run = env.get("TORCHELASTIC_RUN_ID", "")
        return run if run != "none" else ""

    def _task(self) -> tuple[int | None, int | None]:
        """(which, of how many). In a batch script SLURM_PROCID is set too, though it stands alone: only within a step
        it counts."""
        env = self._env
        pairs = [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")]
        if env.get("SLURM_STEP_ID"):
            pairs.append(("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))
        pairs += [("PMI_RANK", "PMI_SIZE"), ("PMIX_RANK", ""), ("JOB_COMPLETION_INDEX", "")]
        for which, many in pairs:
            task, tasks = _whole(env.get(which)), _whole(env.get(many))
            if task is not None and (tasks is None or task < tasks):
                return task, tasks
        return None, None

    @property
    def label(self) -> str:
        """What files of this process are called."""
        return f"rank-{self.rank}" if self.rank is not None else f"task-{self.task}" if self.task else "output"

    def facts(self) -> dict[str, str]:
        """What the environment tells, without anything secret."""
        return {name: self._env[name][:1024] for name in sorted(FACTS) if self._env.get(name)}


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and len(text) < 10 else None


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()[:LONGEST]
    except (OSError, ValueError):
        return ""


def oom_kills() -> int:
    """How often the kernel's OOM killer struck in our memory cgroup; 0 where that cannot be read."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError):
        return 0
    path = next((line[3:] for line in lines if line.startswith("0::")), "")
    for folder in ("/sys/fs/cgroup" + path, "/sys/fs/cgroup"):
        try:
            with open(os.path.join(folder, "memory.events"), encoding="utf-8") as file:
                for line in file:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except (OSError, ValueError):
            continue
    return 0
