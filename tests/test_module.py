"""Text in and out, byte for byte; the index of functions and pragmas."""

from __future__ import annotations

import ast
import pickle

import pytest

from if2where.module import Source, SourceError, decode, encode, newline_of, parse_module, splice

# --- bytes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"x = 1\n",
        b"\xef\xbb\xbfx = 1\n",
        b"\xef\xbb\xbf# coding: utf-8\nx = 1\n",
        "# -*- coding: latin-1 -*-\ns = 'ä'\n".encode("latin-1"),
        "#!/bin/x\n# vim: set fileencoding=cp1252 :\ns = '€'\n".encode("cp1252"),
        "# coding: latin-1\rs = 'ä'".encode("latin-1"),
        b"a = 1\r\nb = 2\r\n",
        b"a = 1\rb = 2\r",
        b"a = 1\r\nb = 2\nc = 3\rd = 4",
        b"a = 1\n\x0cb = 2",
        b"",
    ],
)
def test_round_trip(data: bytes) -> None:
    source = decode(data, "a.py")
    assert encode(source, source.text) == data
    parse_module(source)


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"x\n", "utf-8"),
        (b"# coding: utf-8-unix\n", "utf-8"),
        (b"# coding=UTF_8\n", "utf-8"),
        (b"# coding: latin-1-dos\n", "latin-1"),
        (b"\n# coding: cp1252\n", "cp1252"),
        (b"x\n# coding: cp1252\n", "utf-8"),  # not behind code
        (b"\n\n# coding: cp1252\n", "utf-8"),  # not in the third line
        (b"s = 1  # coding: cp1252\n", "utf-8"),  # not beside code
    ],
)
def test_encoding_is_the_one_that_python_takes(data: bytes, encoding: str) -> None:
    assert decode(data, "a.py").encoding == encoding


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        (b"\xff\xfe", "a.py:1:1:", "not valid utf-8"),
        (b"x = 1\r\ny = '\xff'\n", "a.py:2:6:", "not valid utf-8"),
        (b"# coding: no-such\n", "a.py:1:1:", "unknown encoding 'no-such'"),
        (b"# coding: rot13\n", "a.py:1:1:", "unknown encoding 'rot13'"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "a.py:1:1:", "byte order mark"),
        (b"# coding: utf-7\ns = '+AGE-'\n", "a.py:1:1:", "written back unchanged"),
    ],
)
def test_undecodable(data: bytes, place: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        decode(data, "a.py")
    assert str(caught.value).startswith(place)
    assert message in caught.value.message


def test_text_that_the_encoding_lacks() -> None:
    source = decode(b"# coding: latin-1\nx = 1\n", "a.py")
    with pytest.raises(SourceError) as caught:
        encode(source, source.text + "s = '€'\n")
    assert (caught.value.line, caught.value.col) == (3, 6)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def f(:\n", 1),
        ("x = 1\r\ndef f(:\r\n", 2),
        ("x = '\0'\n", 1),
        ("(" * 5000, 1),
        ("-" * 20000 + "1", 1),
        ("return", 0),
    ],
)
def test_unparsable(text: str, line: int) -> None:
    if not line:
        parse_module(Source("a.py", text))  # misplaced, but for the compiler to say
        return
    with pytest.raises(SourceError) as caught:
        parse_module(Source("a.py", text))
    assert str(caught.value).startswith(f"a.py:{line}:")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# --- functions ------------------------------------------------------------------------------

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
    h: T = lambda self: self
    if é:
        for _ in é:
            async def again(self): pass
    class D(B, key=lambda: 0):
        @(  # not me@here
            a
            @ b)
        def m(self, k=(lambda: 1)): return "ü", lambda: k
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
        ("C.h", "C", None),
        ("C.again", "C", None),
        ("C.<lambda>", None, None),
        ("C.D.m", "D", None),
        ("C.D.m.<locals>.<lambda>", None, "C.D.m"),
        ("C.D.m.<locals>.<lambda>", None, "C.D.m"),
    ]
    slices = [text[slice(*f.span)] for f in module.functions]
    assert slices[0].startswith("@deco" + newline)
    assert slices[0].endswith("return inner(g(x))")
    assert slices[1] == 'lambda u: u if u > 0 else "é"'
    assert slices[3] == "def method(self): return lambda: self"
    assert slices[6] == "async def again(self): pass"
    assert slices[8].startswith("@(  # not me@here" + newline)
    assert slices[10] == "lambda: k"
    lines = text.split(newline)
    assert all(("def " in lines[f.line - 1]) or ("lambda" in lines[f.line - 1]) for f in module.functions)


@pytest.mark.parametrize("odd", ["\x0c", "s = '\u2028\x0b\x85 é𝔘'; ", "\x0c\n\x0c\t\x0c\n"])
def test_spans_count_lines_as_python_does(odd: str) -> None:
    text = f"{odd}a = 1; b = 'é' + str(lambda ä: ä)\ndef f():\n    return '\x0c'\n"
    one, two = parse_module(Source("a.py", text)).functions
    assert text[slice(*one.span)] == "lambda ä: ä"
    assert text[slice(*two.span)] == "def f():\n    return '\x0c'"


def test_lambdas_in_f_strings_have_their_own_slices() -> None:
    text = "s = f'é {(lambda x: x)(1)}' f'''\n {(lambda y: y)(2):{(lambda z: z)(3)}}'''\n"
    slices = [text[slice(*f.span)] for f in parse_module(Source("a.py", text)).functions]
    assert slices == ["lambda x: x", "lambda y: y", "lambda z: z"]


def test_deep_nesting_is_indexed() -> None:
    text = (
        "x = "
        + " + ".join(["lambda_"] * 400)
        + "\n"
        + "".join("  " * k + f"def f{k}():\n" for k in range(60))
        + "  " * 60
        + "pass\n"
    )
    functions = parse_module(Source("a.py", text)).functions
    assert [f.qualname.count("<locals>") for f in functions] == list(range(60))


# --- pragmas --------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_pragmas_are_comments_only(newline: str) -> None:
    text = (
        "s = '# if2where: skip'\n"
        "'''\n# if2where: skip\n'''\n"
        "def f(x):  # if2where: convert\n"
        "\x0c\n"
        "    while x > 1:  # noqa  # if2where: max-iterations = 5, skip  # more\n"
        "        x = x / 2  # if2where:skip\n"
        "    # if2where: skip, as we don't convert this\n"
        "    return x  # if2where: nothing, skip\n"
        "    # see if2where: skip\n"
    ).replace("\n", newline)
    assert parse_module(Source("a.py", text)).pragmas == {
        5: ("convert",),
        7: ("max-iterations=5", "skip"),
        8: ("skip",),
        9: ("skip",),
    }


# --- splicing -------------------------------------------------------------------------------


def test_splice() -> None:
    assert splice("abcdef", [(4, 5, "E"), (0, 1, "AA")]) == "AAbcdEf"
    assert splice("abc", [(1, 1, "x"), (3, 3, "y")]) == "axbcy"
    assert splice("abc", []) == "abc"
    assert ast.parse(splice("x = 1", [(4, 5, "(2)")]))
    with pytest.raises(ValueError, match="overlap"):
        splice("abcdef", [(0, 3, ""), (2, 4, "")])


def test_newline_of() -> None:
    assert [newline_of(t) for t in ("a\r\nb\n", "a\rb", "a\x0cb\n", "ab")] == ["\r\n", "\r", "\n", "\n"]
