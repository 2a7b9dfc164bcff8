"""Helpers in a module of their own, under another name for torch."""

import torch as th

LIMIT = 2.0


def soft(x):
    if x > LIMIT:
        return th.sqrt(x)
    return x * 0.5


class Leaky(th.nn.Module):
    def forward(self, x):
        if x > 0:
            return x
        return 0.1 * x


def no_branch(x):
    return x + 1
