"""Ways in which kernels and drivers word the same thing: each is found by a literal of its rule."""

from __future__ import annotations

import pytest

from detectors.kernel.lines import parse


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("oom host", "Out of memory (oom_kill_allocating_task): Killed process 811 (python3) total-vm:9kB"),
        ("cpu rcu_stall", "rcu: rcu_sched kthread timer wakeup didn't happen for 5002 jiffies! g811 f0x0"),
        ("cephfs slow", "ceph: [8a1b2c3d-0000-1111-2222-333344445555 41207]: mds0 hung"),
        (
            "thermal cpu_throttled",
            "CPU4: Core temperature is above threshold, cpu clock is throttled (total events = 1)",
        ),
        ("mce fatal", "mce: [Hardware Error]: Machine check: Processor context corrupt"),
        ("gpfs error", "mmfsd: [E] Disk failure. Volume scratch."),
        ("amd lost", "amdgpu 0000:43:00.0: amdgpu: GPU lost from bus"),
        ("nic port_error", "mlx5_0: IB_EVENT_PORT_ERR on port 1"),
        ("aer not_recovered", "nvidia 0000:3b:00.0: can't recover (no error_detected callback)"),
        ("fm not_ready", "systemd[1]: Failed to start nvidia-fabricmanager.service."),
    ],
)
def test_a_wording_is_found(said: str, line: str) -> None:
    code = parse(line if line.startswith("systemd") else f"Aug 11 08:00:00 gpu-7 kernel: {line}")
    assert code is not None and f"{code.namespace} {code.code}" == said
