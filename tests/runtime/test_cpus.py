"""The CPUs that a control group leaves to a process, read from files like the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gapless.runtime.cpus import quota, usable


def group(root: Path, path: str, **files: str) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("membership", "groups", "cpus"),
    [
        ("0::/a/b\n", {"a": "200000 100000\n", "a/b": "max 100000\n"}, 2),  # the tightest of all above
        ("0::/a/b\n", {"a": "800000 100000\n", "a/b": "150000 100000\n"}, 2),  # one and a half keep two busy at times
        ("0::/\n", {"": "50000 100000\n"}, 1),
        ("0::/gone\n", {"": "300000 100000\n"}, 3),  # in a container the own group is the root
        ("0::/a\n", {"a": "max 100000\n"}, None),
        ("0::/a\n", {"a": "nonsense"}, None),
        ("0::/a\n", {"a": "1 0\n"}, None),
        ("", {}, None),
        ("rubbish\n", {}, None),
    ],
)
def test_version_2(tmp_path: Path, membership: str, groups: dict[str, str], cpus: int | None) -> None:
    (tmp_path / "cgroup").write_text(membership)
    for path, text in groups.items():
        group(tmp_path / "root", path, cpu__max=text)
    assert quota(tmp_path / "cgroup", tmp_path / "root") == cpus


def test_version_1(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:cpu,cpuacct:/a\n3:memory:/b\n")
    group(tmp_path / "root", "cpu/a", cpu__cfs_quota_us="250000", cpu__cfs_period_us="100000")
    assert quota(tmp_path / "cgroup", tmp_path / "root") == 3
    group(tmp_path / "root", "cpu/a", cpu__cfs_quota_us="-1")
    assert quota(tmp_path / "cgroup", tmp_path / "root") is None


def test_without_control_groups(tmp_path: Path) -> None:
    assert quota(tmp_path / "none", tmp_path) is None


def test_usable_is_within_what_there_is() -> None:
    assert 1 <= usable() <= (os.cpu_count() or 1)
