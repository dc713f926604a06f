"""Every device that comes with gapless does what a device must do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gapless.runtime.devices import Device
from gapless.runtime.devices.cuda import is_available
from gapless.runtime.devices.host import Host
from gapless.runtime.devices.simulated import Simulated
from gapless.testing.conformance import CHECKS
from staged_host import StagedHost


def _cuda() -> Device:
    from gapless.runtime.devices.cuda import Cuda

    return Cuda()


DEVICES = {
    "host": Host,
    "simulated": Simulated,
    "explored": lambda: Simulated(seed=1),
    "explored without order": lambda: Simulated(seed=2, pools=True),
    "staged by Python": StagedHost,
    "staged by C": lambda: StagedHost(pools=True),
    "cuda": _cuda,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "make",
    [pytest.param(make, marks=[pytest.mark.gpu] * (name == "cuda"), id=name) for name, make in DEVICES.items()],
)
def test_device(make: Callable[[], Device], check: Callable[[Device], None]) -> None:
    if make is _cuda and not is_available():
        pytest.skip("no GPU, or no cuda.core")
    check(make())
