"""What healthy nodes print: boots, services, containers, jobs that come and go. Made by hand, filled in by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

#: (program, text) of ordinary days; {n} and the like are filled in. The kernel's own have the program "kernel".
DAYS = (
    ("systemd[1]", "Started Session {n} of User lena."),
    ("systemd[1]", "Finished Rotate log files."),
    ("systemd[1]", "Starting Cleanup of Temporary Directories..."),
    ("systemd[1]", "nvidia-persistenced.service: Deactivated successfully."),
    ("systemd[1]", "run-containerd-runc-k8s.io-{h}.mount: Deactivated successfully."),
    ("systemd-logind[811]", "New session {n} of user lena."),
    ("sshd[{n}]", "Accepted publickey for lena from 10.0.{b}.{b} port {n} ssh2: ED25519 SHA256:{h}"),
    ("sshd[{n}]", "Connection closed by authenticating user root 10.0.{b}.{b} port {n} [preauth]"),
    ("sshd[{n}]", "error: kex_exchange_identification: Connection closed by remote host"),
    ("CRON[{n}]", "(root) CMD (command -v debian-sa1 > /dev/null && debian-sa1 1 1)"),
    ("chronyd[700]", "Selected source 10.0.0.{b} (ntp{b}.site)"),
    ("slurmd[1200]", "launch task StepId={n}.0 request from UID:1000 GID:1000 HOST:10.0.{b}.{b} PORT:{n}"),
    ("slurmd[1200]", "task/affinity: task_p_slurmd_batch_request: job {n} CPU final HW mask for node: 0x{h}"),
    ("slurmstepd[{n}]", "done with step"),
    ("slurmstepd[{n}]", "error: *** JOB {n} ON gpu-0007 CANCELLED AT 2026-02-03T11:38:06 DUE TO TIME LIMIT ***"),
    ("kubelet[900]", 'I0203 11:38:06.{n} 900 kubelet.go:2471] "SyncLoop (PLEG): event for pod" pod="train/worker-{b}"'),
    (
        "kubelet[900]",
        'E0203 11:38:06.{n} 900 pod_workers.go:1300] "Error syncing pod, skipping" err="context deadline"',
    ),
    ("containerd[880]", 'time="2026-02-03T11:38:06Z" level=info msg="CreateContainer within sandbox \\"{h}\\""'),
    ("dockerd[870]", 'time="2026-02-03T11:38:06Z" level=info msg="ignoring event" container={h} module=libcontainerd'),
    ("nvidia-persistenced[600]", "device 0000:{p}:00.0 - persistence mode enabled."),
    ("nv-fabricmanager[811]", "Connected to {b} node(s)."),
    ("nv-hostengine[820]", "DCGM initialized, listening on 5555"),
    ("dcgm-exporter[830]", 'level=info msg="Collecting DCGM_FI_DEV_XID_ERRORS and 25 more"'),
    ("dbus-daemon[500]", "[system] Successfully activated service 'org.freedesktop.timedate1'"),
    ("sudo", "lena : TTY=pts/0 ; PWD=/home/lena ; USER=root ; COMMAND=/usr/bin/dmesg -T"),
    ("sudo", "lena : TTY=pts/0 ; PWD=/home/lena ; USER=root ; COMMAND=/bin/grep Xid /var/log/kern.log"),
    ("python3[{n}]", "INFO step {n} loss 2.{b} grad_norm 0.{b} tokens/s {n} nan_count 0"),
    ("python3[{n}]", "watching for 'NVRM: Xid' and 'fallen off the bus' in the kernel log"),
    ("smartd[510]", "Device: /dev/sda [SAT], SMART Usage Attribute: 194 Temperature_Celsius changed from 65 to 6{b}"),
    ("rasdaemon[520]", "Listening to events for cpus 0 to 191"),
    ("opensm[610]", "SUBNET UP"),
    ("kernel", 'audit: type=1400 audit(1770120000.{n}:{n}): apparmor="ALLOWED" operation="open" comm="python3"'),
    (
        "kernel",
        "[UFW BLOCK] IN=eth0 OUT= MAC={h} SRC=10.0.{b}.{b} DST=10.0.0.7 LEN=40 TTL=241 PROTO=TCP SPT={n} DPT=22",
    ),
    ("kernel", "docker0: port {b}(veth{h}) entered blocking state"),
    ("kernel", "docker0: port {b}(veth{h}) entered disabled state"),
    ("kernel", "device veth{h} left promiscuous mode"),
    ("kernel", "IPv6: ADDRCONF(NETDEV_CHANGE): veth{h}: link becomes ready"),
    ("kernel", "cali{h}: renamed from tmp{h}"),
    ("kernel", "perf: interrupt took too long ({n} > 2500), lowering kernel.perf_event_max_sample_rate to 79750"),
    ("kernel", "nfs: server nfs-17 OK"),
    ("kernel", "TCP: request_sock_TCP: Possible SYN flooding on port {n}. Sending cookies."),
    ("kernel", "python3[{n}]: segfault at 0 ip 00007f{h} sp 00007ff{h} error 4 in libc.so.6[7f{h}+195000]"),
    ("kernel", "traps: python3[{n}] general protection fault ip:7f{h} sp:7ff{h} error:0 in libc.so.6[7f{h}+195000]"),
    ("kernel", "process 'docker/tmp/qemu-check/check' started with executable stack"),
    ("kernel", "overlayfs: upper fs does not support RENAME_WHITEOUT."),
    ("kernel", "oom_reaper: unmapped 0 pages of a process that ended"),
    ("kernel", "nvidia-uvm: Unloaded the UVM driver."),
    ("kernel", "mlx5_core 0000:{p}:00.0: Port module event: module 0, Cable plugged"),
    ("kernel", "device eth0 entered promiscuous mode"),
    ("kernel", "XFS (dm-{b}): Mounting V5 Filesystem"),
    ("kernel", "XFS (dm-{b}): Ending clean mount"),
    ("kernel", "EXT4-fs (loop{b}): mounted filesystem with ordered data mode. Quota mode: none."),
    ("kernel", "Lustre: Mounted scratch-client"),
    ("kernel", "Lustre: scratch-OST000{b}-osc-ffff: Connection restored to 10.4.0.9@o2ib (at 10.4.0.9@o2ib)"),
)
#: How often each comes: services talk all day, the kernel seldom.
OFTEN = tuple(1 if program.startswith(("kernel", "sudo", "python3")) else 12 for program, _ in DAYS)
#: One boot, in order; the kernel's lines.
BOOT = (
    "Linux version 5.15.0-91-generic (build@host) (gcc 11.4.0) #101-Ubuntu SMP",
    "Command line: BOOT_IMAGE=/vmlinuz root=UUID=1 ro console=tty0 mce=bootlog nmi_watchdog=1 panic=10",
    "BIOS-e820: [mem 0x0000000000000000-0x000000000009ffff] usable",
    "ACPI: SSDT 0x00000000A1 000 (v02 INTEL SSDT 00000001)",
    "ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PC00], AE_NOT_FOUND (20210730/dswload2-162)",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "mce: CPU supports 22 MCE banks",
    "MCE: In-kernel MCE decoding enabled.",
    "rcu: Hierarchical RCU implementation.",
    "rcu: \tRCU restricting CPUs from NR_CPUS=8192 to nr_cpu_ids=192.",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "watchdog: software Watchdog: initialized",
    "EDAC MC: Ver: 3.0.0",
    "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0 IMC#0: DEV 0000:7e:0c.0",
    "pcieport 0000:{p}:01.0: AER: enabled with IRQ {b}",
    "pcieport 0000:{p}:01.0: DPC: enabled with IRQ {b}",
    "pcieport 0000:{p}:01.0: pciehp: Slot #{b} AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ Surprise+",
    "pci 0000:{p}:00.0: [10de:2330] type 00 class 0x030200",
    "pci 0000:{p}:00.0: 252.048 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x16 link at 0000:{p}:01.0",
    "nvme nvme{b}: pci function 0000:{p}:00.0",
    "nvme nvme{b}: 64/0/0 default/read/poll queues",
    "nvme nvme{b}: Shutdown timeout set to 8 seconds",
    "ata{b}: SATA link down (SStatus 0 SControl 300)",
    "ata{b}: SATA link up 6.0 Gbps (SStatus 133 SControl 300)",
    "sd 0:0:0:0: [sda] Attached SCSI disk",
    "md/raid1:md0: active with 2 out of 2 mirrors",
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Opts: (null). Quota mode: none.",
    "EXT4-fs (nvme0n1p2): re-mounted. Opts: errors=remount-ro. Quota mode: none.",
    "mlx5_core 0000:{p}:00.0: firmware version: 28.39.1002",
    "mlx5_core 0000:{p}:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
    "mlx5_core 0000:{p}:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:{p}:00.1: Port module event: module 1, Cable unplugged",
    "mlx5_core 0000:{p}:00.1 enp{b}s0f1np1: Link down",
    "mlx5_core 0000:{p}:00.0 enp{b}s0f0np0: Link up",
    "bnxt_en 0000:19:00.0 ens1f0np0: NIC Link is Up, 25000 Mbps full duplex, Flow control: none",
    "8021q: adding VLAN 0 to HW filter on device ens1f0np0",
    "nvidia: loading out-of-tree module taints kernel.",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
    "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  550.144.03",
    "[drm] [nvidia-drm] [GPU ID 0x00001b00] Loading driver",
    "nvidia-uvm: Loaded the UVM driver, major device number 508.",
    "nvidia-nvswitch{b}: open (major=509)",
    "nvidia-nvswitch{b}: using MSI",
    "amdgpu 0000:{p}:00.0: amdgpu: RAS: optional ras ta ucode is not available",
    "amdgpu 0000:{p}:00.0: amdgpu: RAS INFO: ras initialized successfully, hardware ability[7fff] ras_mask[7fff]",
    "amdgpu 0000:{p}:00.0: amdgpu: HDCP: optional hdcp ta ucode is not available",
    "amdgpu 0000:{p}:00.0: amdgpu: SMU is initialized successfully!",
    "[drm] amdgpu kernel modesetting enabled.",
    "Lustre: Lustre: Build Version: 2.15.3",
    "LNet: Added LNI 10.4.0.9@o2ib [8/256/0/180]",
    "NFS: Registering the id_resolver key type",
    "systemd[1]: Started NVIDIA fabric manager service.",
    "systemd-journald[500]: Received client request to flush runtime journal.",
    "IPv6: ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready",
    "Failed to initialise the optional early console",
)


def lines(seed: int, count: int, host: str = "gpu-0412") -> Iterator[str]:
    """Syslog of one node: a boot, then days. A boot comes again after about a million lines."""
    dice = random.Random(seed)
    clock, up, booting = 0, 0.0, list(BOOT)
    for _ in range(count):
        clock += dice.choice((0, 0, 0, 1, 2, 7))
        stamp = f"Feb {1 + clock // 86_400 % 28:2d} {clock // 3600 % 24:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
        if booting:
            program, text = "kernel", booting.pop(0)
            up += dice.random()
        else:
            ((program, text),) = dice.choices(DAYS, OFTEN)
            up += 3.0
            booting = list(BOOT) if dice.random() < 1e-6 else []
        inner = f"[{up:13.6f}] " if program == "kernel" else ""
        yield _filled(f"{stamp} {host} {program}: {inner}{text}", dice)


def _filled(line: str, dice: random.Random) -> str:
    """With numbers for {n}, {b}, bytes of hex for {h}, and a bus for {p}."""
    for name, low, high, form in (("{n}", 1000, 99_999, "d"), ("{b}", 1, 9, "d"), ("{p}", 16, 250, "02x")):
        while name in line:
            line = line.replace(name, format(dice.randint(low, high), form), 1)
    while "{h}" in line:
        line = line.replace("{h}", f"{dice.randrange(1 << 40):010x}", 1)
    return line
