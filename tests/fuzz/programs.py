"""Random per-sample programs, type-correct by construction, over what the converter converts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

HEADER = """\
import math
import torch


def helper(u, v):
    if u > v:
        return u * v
    if u < -1.0:
        return u / (v - 10.0)
    return v - u


def slope(u):
    return torch.sqrt(u) + 1.0 / u


"""


@dataclass
class Generator:
    """Writes one program. ``scalars`` are the 0-dim tensor variables bound on every path so far."""

    rng: random.Random
    features: frozenset[str]
    scalars: list[str] = field(default_factory=lambda: ["x", "y"])
    ints: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    floats: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    loops: int = 0
    budget: int = 14
    counter: int = 0
    has_buffer: bool = False

    def emit(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    def own(self, value: str) -> str:
        """The value in memory of its own: a second name for a tensor, later updated in place, is a feature."""
        return value if "aliases" in self.features or "(" in value else f"{value}.clone()"

    def number(self) -> str:
        return self.rng.choice(["0.5", "1.0", "2.0", "-1.0", "0.25", "1.5", "3.0"])

    def scalar(self, depth: int = 0) -> str:
        r = self.rng
        if depth > 2 or r.random() < 0.35:
            options = list(self.scalars)
            if "vector" in self.features:
                options += ["v[0]", "v[1]", "v[2]"]
            return r.choice(options)
        kind = r.choice(
            [
                "add",
                "sub",
                "mul",
                "mulc",
                "neg",
                "fn",
                "partial",
                "partial",
                "ternary",
                "max",
                "call",
                "reduce",
                "number",
            ]
        )
        a, b = self.scalar(depth + 1), self.scalar(depth + 1)
        if kind == "partial" and "partial" in self.features:
            return self.partial(a, b)
        if kind == "add":
            return f"({a} + {b})"
        if kind == "sub":
            return f"({a} - {b})"
        if kind == "mul":
            return f"({a} * {b})"
        if kind == "mulc":
            return f"({self.number()} * {a})"
        if kind == "neg":
            return f"(-{a})"
        if kind == "fn":
            return f"torch.{r.choice(['sin', 'cos', 'tanh', 'sigmoid'])}({a})"
        if kind == "ternary" and "ternary" in self.features:
            return f"({a} if {self.test(1)} else {b})"
        if kind == "max" and "idioms" in self.features:
            return r.choice([f"max({a}, {b})", f"min({a}, {self.number()})", f"abs({a})", f"max({self.number()}, {a})"])
        if kind == "call" and "helper" in self.features:
            return f"helper({a}, {b})"
        if kind == "reduce" and "vector" in self.features:
            return f"(v * {a}).sum()"
        if kind == "number" and self.floats and "floats" in self.features:
            return f"({r.choice(self.floats)} * {a})"
        return f"({a} + {self.number()})"

    def partial(self, a: str, b: str) -> str:
        return self.rng.choice(
            [
                f"torch.sqrt({a})",
                f"({a} / {b})",
                f"(1.0 / {a})",
                f"torch.log({a})",
                f"({a} ** 0.5)",
                f"torch.acos({a})",
                f"torch.exp({a})",
                f"torch.atan2({a}, {b})",
                *([f"(v * {a}).norm()", "v.norm()"] if "vector" in self.features else []),
                *([f"slope({a})"] if "helper" in self.features else []),
            ]
        )

    def test(self, depth: int = 0) -> str:
        r = self.rng
        kind = r.choice(["cmp", "cmp", "cmp", "and", "or", "not", "chain", "flag", "int", "static", "truth"])
        if depth < 2 and kind in ("and", "or"):
            return f"({self.test(depth + 1)} {kind} {self.test(depth + 1)})"
        if depth < 2 and kind == "not":
            return f"(not {self.test(depth + 1)})"
        if kind == "chain":
            return f"({self.number()} < {self.atom()} <= {self.atom()})"
        if kind == "flag" and self.flags:
            return r.choice(self.flags)
        if kind == "int" and self.ints:
            return f"{r.choice(self.ints)} {r.choice(['>', '==', '<='])} {r.randint(0, 3)}"
        if kind == "static" and "static" in self.features:
            return f"(mode == {r.choice(['1', '2'])} and {self.atom()} > {self.number()})"
        if kind == "truth" and depth:
            return f"({self.atom()} != 0)"
        return f"{self.atom()} {r.choice(['>', '<', '>=', '<=', '==', '!='])} {r.choice([self.atom(), self.number(), '0.0'])}"

    def atom(self) -> str:
        return self.rng.choice(self.scalars)

    def fresh(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def statement(self) -> None:
        r = self.rng
        self.budget -= 1
        kinds = ["assign", "assign", "if", "if", "if", "aug"]
        if "returns" in self.features:
            kinds += ["return_if"]
        if "loops" in self.features and self.loops < 2:
            kinds += ["for", "for"]
        if "while" in self.features and self.loops < 1:
            kinds += ["while"]
        if self.loops and "exits" in self.features:
            kinds += ["break_if", "continue_if"]
        if "numbers" in self.features:
            kinds += ["count", "set_flag", "float"]
        if "stores" in self.features and self.has_buffer:
            kinds += ["store", "store"]
        if "tuples" in self.features:
            kinds += ["tuple"]
        kind = r.choice(kinds)
        if kind == "assign":
            name = r.choice(self.scalars[2:] or [self.fresh()]) if r.random() < 0.5 else self.fresh()
            self.emit(f"{name} = {self.own(self.scalar())}")
            if name not in self.scalars:
                self.scalars.append(name)
        elif kind == "aug" and len(self.scalars) > 2:
            self.emit(f"{r.choice(self.scalars[2:])} {r.choice(['+=', '-=', '*='])} {self.scalar(1)}")
        elif kind == "tuple" and len(self.scalars) > 3:
            a, b = r.sample(self.scalars[2:], 2)
            self.emit(f"{a}, {b} = {self.own(self.scalar(1))}, {self.own(self.scalar(1))}")
        elif kind == "if":
            self.branch()
        elif kind == "return_if":
            self.emit(f"if {self.test()}:")
            self.depth += 1
            if r.random() < 0.3:
                self.block(1)
            self.emit(f"return {self.result()}")
            self.depth -= 1
        elif kind == "for":
            self.loop(f"for k{self.loops} in range({r.randint(2, 3)}):")
        elif kind == "while":
            name = f"n{self.counter}"
            self.counter += 1
            self.emit(f"{name} = 0")
            self.loop(f"while {self.test()} and {name} < 4:", f"{name} += 1")
        elif kind in ("break_if", "continue_if"):
            self.emit(f"if {self.test()}:")
            self.depth += 1
            if r.random() < 0.3:
                self.block(1)
            self.emit(kind.removesuffix("_if"))
            self.depth -= 1
        elif kind == "count" and self.ints:
            self.emit(f"{r.choice(self.ints)} += {r.randint(1, 2)}")
        elif kind == "set_flag" and self.flags:
            self.emit(f"{r.choice(self.flags)} = {r.choice(['True', 'False', self.test()])}")
        elif kind == "float" and self.floats:
            f = r.choice(self.floats)
            self.emit(r.choice([f"{f} *= 0.5", f"{f} = {self.number()}", f"{f} = {f} + 0.1"]))
        elif kind == "store":
            self.emit(f"out[{r.randint(0, 2)}] = {self.scalar(1)}")
        else:
            self.emit(
                f"{self.rng.choice(self.scalars[2:] or ['x'])} = {self.own(self.scalar(1))}"
                if len(self.scalars) > 2
                else f"x = x + {self.number()}"
            )

    def block(self, size: int) -> None:
        before = list(self.scalars)
        start = len(self.lines)
        for _ in range(size):
            if self.budget > 0:
                self.statement()
        if len(self.lines) == start:
            self.emit("pass")
        self.scalars = before

    def branch(self) -> None:
        self.emit(f"if {self.test()}:")
        self.depth += 1
        self.block(self.rng.randint(1, 3))
        self.depth -= 1
        while self.rng.random() < 0.25:
            self.emit(f"elif {self.test()}:")
            self.depth += 1
            self.block(self.rng.randint(1, 2))
            self.depth -= 1
        if self.rng.random() < 0.6:
            self.emit("else:")
            self.depth += 1
            self.block(self.rng.randint(1, 2))
            self.depth -= 1

    def loop(self, head: str, last: str = "") -> None:
        self.emit(head)
        self.depth += 1
        self.loops += 1
        if last:
            self.emit(last)
        self.block(self.rng.randint(1, 3))
        self.loops -= 1
        self.depth -= 1
        if self.rng.random() < 0.2 and "exits" in self.features:
            self.emit("else:")
            self.depth += 1
            self.block(1)
            self.depth -= 1

    def result(self) -> str:
        parts = [self.scalar(1), self.atom()]
        if self.has_buffer:
            parts.append("out * 1.0")
        if self.ints:
            parts.append(self.ints[0])
        if self.floats:
            parts.append(f"{self.floats[0]} * x")
        return f"({', '.join(parts)})"

    def program(self) -> str:
        self.emit("a = x * 1.0")
        self.emit("b = y + x")
        self.scalars += ["a", "b"]
        if "numbers" in self.features:
            self.emit("count = 0")
            self.emit("on = False")
            self.emit("scale = 1.0")
            self.ints, self.flags, self.floats = ["count"], ["on"], ["scale"]
        if "stores" in self.features:
            self.emit("out = torch.zeros(3, dtype=x.dtype)")
            self.has_buffer = True
        while self.budget > 0:
            self.statement()
        self.emit(f"return {self.result()}")
        return (
            HEADER
            + "def f(x, y, v, mode):\n"
            + "\n".join(self.lines)
            + "\n\n\nBATCHED = torch.func.vmap(f, in_dims=(0, 0, 0, None))\n"
        )


ALL_FEATURES = (
    "partial",
    "ternary",
    "idioms",
    "helper",
    "returns",
    "loops",
    "while",
    "exits",
    "numbers",
    "stores",
    "static",
    "tuples",
    "vector",
    "floats",
)


#: How often a program gives tensors second names. Where only some samples do so, and an update in place follows,
#: the converter refuses.
ALIASES = 0.1


def program(seed: int) -> str:
    """The program of a seed: the same for the same seed."""
    rng = random.Random(seed)
    features = frozenset(f for f in ALL_FEATURES if rng.random() < 0.5)
    # A draw of its own: the programs of the seeds stay what they were.
    if random.Random(f"aliases {seed}").random() < ALIASES:
        features |= {"aliases"}
    return Generator(rng, features, budget=rng.randint(3, 16)).program()
