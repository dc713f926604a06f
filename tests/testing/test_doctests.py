"""The examples in the docstrings of what others use in their tests are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("module", ["gapless.testing.assertions", "gapless.testing.clock"])
def test_examples(module: str):
    result = doctest.testmod(import_module(module))
    assert result.attempted > 3
    assert result.failed == 0
