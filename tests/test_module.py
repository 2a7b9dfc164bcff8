"""Text in and out, byte for byte; the index of functions."""

from __future__ import annotations

import ast

import pytest

from if2where.module import Source, SourceError, decode, encode, parse_module, splice


@pytest.mark.parametrize(
    "data",
    [
        b"x = 1\n",
        b"\xef\xbb\xbfx = 1\n",
        "# -*- coding: latin-1 -*-\ns = 'ä'\n".encode("latin-1"),
        b"a = 1\r\nb = 2\r\n",
        b"a = 1\rb = 2\r",
        b"a = 1\n\x0cb = 2",
        b"",
    ],
)
def test_round_trip(data: bytes) -> None:
    source = decode(data, "a.py")
    assert encode(source, source.text) == data


@pytest.mark.parametrize("data", [b"\xff\xfe", b"# coding: no-such\n"])
def test_undecodable(data: bytes) -> None:
    with pytest.raises(SourceError):
        decode(data, "a.py")


@pytest.mark.parametrize("text", ["def f(:\n", "x = '\0'\n", "(" * 5000])
def test_unparsable(text: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_module(Source("a.py", text))
    assert str(caught.value).startswith("a.py:")


TEXT = """\
@deco
@other(1)
def f(x):
    g = lambda u: u if u > 0 else "é"
    def inner(y):
        return y
    return inner(g(x))


class C:
    é = 1
    def method(self): return lambda: self
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_functions(newline: str) -> None:
    text = TEXT.replace("\n", newline)
    module = parse_module(Source("a.py", text))
    names = [(f.qualname, f.owner, f.parent.qualname if f.parent else None) for f in module.functions]
    assert names == [
        ("f", None, None),
        ("f.<locals>.g", None, "f"),
        ("f.<locals>.inner", None, "f"),
        ("C.method", "C", None),
        ("C.method.<locals>.<lambda>", None, "C.method"),
    ]
    slices = [text[slice(*f.span)] for f in module.functions]
    assert slices[0].startswith("@deco")
    assert slices[1] == 'lambda u: u if u > 0 else "é"'
    assert slices[3] == "def method(self): return lambda: self"


def test_pragmas_are_comments_only() -> None:
    text = "s = '# if2where: skip'\ndef f(x):  # if2where: convert\n    while x > 1:  # if2where: max-iterations=5\n        x = x / 2\n"
    assert parse_module(Source("a.py", text)).pragmas == {2: ("convert",), 3: ("max-iterations=5",)}


def test_splice() -> None:
    assert splice("abcdef", [(4, 5, "E"), (0, 1, "AA")]) == "AAbcdEf"
    assert ast.parse(splice("x = 1", [(4, 5, "(2)")]))
