"""Figures as people read them."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Seconds, for people; "-" where there is no figure."""
    if seconds is None:
        return "-"
    return (
        f"{seconds:.2f} s"
        if seconds >= 1
        else f"{seconds * 1e3:.3g} ms"
        if seconds >= 1e-3
        else f"{seconds * 1e6:.0f} us"
    )


def size(mib: float | None) -> str:
    """Memory in MiB, for people; "-" where there is no figure."""
    if mib is None:
        return "-"
    return f"{mib:.3g} MiB" if mib >= 0.1 else f"{mib * 1024:.3g} KiB"
