"""Where it ran: figures mean little without the machine, the versions and what a sync costs there."""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

from tests.bench.peers import SUBJECTS, version_of

SYNCS = 50


def machine(folder: Path) -> Mapping[str, str]:
    """What can be said of the machine and of the file system that holds ``folder``."""
    return {
        "processor": f"{_processor()}, {len(_cores())} cores",
        "memory": f"{_memory_gb():.1f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "file system": _file_system(folder),
        "one synced write": f"{sync_ms(folder):.2f} ms at the median",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }


def versions() -> Mapping[str, str]:
    found = {
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "trio": version("trio"),
        "aiosqlite": version("aiosqlite"),
    }
    for name in SUBJECTS:
        found[name] = version_of(name) or "not installed"
    del found["raw"]
    return found


def sync_ms(folder: Path) -> float:
    """Milliseconds of writing a page and syncing it, at the median: what a commit of its own costs at least."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        times = []
        for _ in range(SYNCS):
            start_s = perf_counter()
            file.write(b"\0" * 4096)
            os.fsync(file.fileno())
            times.append(perf_counter() - start_s)
    return median(times) * 1000


def _cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3


def _file_system(folder: Path) -> str:
    """The type of the mount that holds the folder: in memory a sync costs and means nothing."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best, kind = "", "unknown"
    for line in mounts.read_text().splitlines():
        _, point, found, *_ = line.split()
        if folder.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind
