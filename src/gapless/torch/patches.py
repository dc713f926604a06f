"""Put something else in the place of functions and classes, and put everything back."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    """Attributes that are replaced until ``undo``."""

    def __init__(self) -> None:
        self._old: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, new: Any) -> Any:
        """Replace an attribute, or add one; give what stood there before (None if nothing did)."""
        self._old.append((owner, name, vars(owner).get(name, _ABSENT)))
        before = getattr(owner, name, None)
        setattr(owner, name, new)
        return before

    def undo(self) -> None:
        """Put everything back, the last first."""
        while self._old:
            owner, name, old = self._old.pop()
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
