"""Texts that several tests convert."""

from __future__ import annotations

#: Refused at line 6, column 9, with IW101.
REFUSED = "import torch\n\n\ndef f(x):\n    if x > 0:\n        print(x)\n    return x\n\n\ng = torch.vmap(f)\n"
