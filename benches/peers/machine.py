"""What the machine is, and the state that it is in now."""

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Probe:
    """Read bandwidth and fork-join, by `probe.rs`. Without rustc there is no probe, and `why` says so."""

    def __init__(self, folder: Path, threads: int):
        self.threads = threads
        self.program = folder / "probe"
        self.why = None
        if shutil.which("rustc") is None:
            self.why = "no rustc to compile probe.rs with"
            return
        source = HERE / "probe.rs"
        if self.program.exists() and self.program.stat().st_mtime > source.stat().st_mtime:
            return
        flags = ["--edition", "2024", "-C", "opt-level=3", "-C", "target-cpu=native"]
        built = subprocess.run(["rustc", *flags, source, "-o", self.program], capture_output=True, text=True)
        if built.returncode != 0:
            self.why = f"probe.rs did not compile: {built.stderr.strip()}"

    def __call__(self) -> dict | None:
        """`read_gbs` (all threads), `read_gbs_1` (one), `fork_join_us`, and `load`: the jobs that ran or waited."""
        if self.why is not None:
            return None
        try:
            ran = subprocess.run([self.program, str(self.threads)], capture_output=True, text=True, timeout=30)
            return {**json.loads(ran.stdout), "load": os.getloadavg()[0]}
        except (subprocess.TimeoutExpired, json.JSONDecodeError):
            return None


def describe() -> dict:
    """The processor, its flags that matter here, memory and kernel."""
    info = {"cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "python": platform.python_version()}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            info.setdefault("processor", value.strip())
        if key.strip() == "flags" and "flags" not in info:
            wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
            info["flags"] = [flag for flag in wanted if flag in value.split()]
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            info["memory_gib"] = round(int(line.split()[1]) / 2**20, 1)
    return info
