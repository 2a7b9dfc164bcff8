"""The plot on the page about gradients: ``python docs/plots/gradients.py`` writes gradients.svg beside it.

The derivative of ``torch.sqrt(x) if x > 0 else 0 * x``, converted with and without guards, under vmap.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch

from if2where import Options, convert_source

SOURCE = """\
import torch


def root(x):  # if2where: convert
    if x > 0:
        return torch.sqrt(x)
    return 0 * x
"""


def slopes(guards: str, x: torch.Tensor) -> torch.Tensor:
    """The derivative at each sample, of shape [N] as ``x``."""
    namespace: dict[str, Any] = {}
    exec(convert_source(SOURCE, options=Options(guards=guards)).text, namespace)
    live = x.clone().requires_grad_()
    torch.func.vmap(namespace["root"])(live).sum().backward()
    assert live.grad is not None
    return live.grad


def main() -> None:
    # Text as paths and no date: the same file on every machine that has the same matplotlib.
    plt.rcParams.update({"svg.hashsalt": "gradients", "font.size": 9})
    left, right = torch.linspace(-1, 0, 13).double(), torch.linspace(0.04, 2, 50).double()
    figure, axes = plt.subplots(figsize=(6.4, 2.8), layout="constrained")
    label: str | None = "with the guard: as in the loop"
    for side in (left, right):
        axes.plot(side, slopes("auto", side), color="#1f77b4", marker="o", markersize=3, label=label)
        label = None
    x = torch.cat([left, right])
    without = slopes("none", x)
    axes.plot(x, without, color="#ff7f0e", marker="x", markersize=6, linestyle="", label="without")
    missing = x[without.isnan()]
    axes.axvspan(float(missing.min()), float(missing.max()), color="#ff7f0e", alpha=0.15, linewidth=0)
    axes.text(float(missing.mean()), 0.6, "without: NaN", color="#b35900", ha="center")
    axes.set(xlabel="x", ylabel="derivative", ylim=(-0.5, 2.7), title="torch.sqrt(x) if x > 0 else 0 * x")
    axes.legend()
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
