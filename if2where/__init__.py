"""if2where: per-sample PyTorch code with data-dependent branches into torch.where code that vmap accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from if2where.pipeline import Conversion, Options, convert_source
    from if2where.runtime.bench import Bench, bench
    from if2where.runtime.functions import ConversionRefused, convert, vmap
    from if2where.runtime.loops import any_active
    from if2where.runtime.samples import NoInputs
    from if2where.runtime.sources import SourceUnavailable
    from if2where.runtime.verify import Verification, VerificationError, verify

__all__ = [
    "Bench",
    "Conversion",
    "ConversionRefused",
    "NoInputs",
    "Options",
    "SourceUnavailable",
    "Verification",
    "VerificationError",
    "any_active",
    "bench",
    "convert",
    "convert_source",
    "verify",
    "vmap",
]

_HOMES = {
    "Bench": "if2where.runtime.bench",
    "Conversion": "if2where.pipeline",
    "ConversionRefused": "if2where.runtime.functions",
    "NoInputs": "if2where.runtime.samples",
    "Options": "if2where.pipeline",
    "SourceUnavailable": "if2where.runtime.sources",
    "Verification": "if2where.runtime.verify",
    "VerificationError": "if2where.runtime.verify",
    "any_active": "if2where.runtime.loops",
    "bench": "if2where.runtime.bench",
    "convert": "if2where.runtime.functions",
    "convert_source": "if2where.pipeline",
    "verify": "if2where.runtime.verify",
    "vmap": "if2where.runtime.functions",
    # For IPython's %load_ext.
    "load_ipython_extension": "if2where.magic",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: neither the command's help nor an import needs torch."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
