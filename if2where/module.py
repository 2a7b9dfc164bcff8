"""Source text: bytes to text and back, an index of the functions in it, and splicing new text in.

What no conversion touches is kept byte for byte: text keeps its own line ends, and only the
slices of converted functions are ever replaced.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_PRAGMA = re.compile(r"#\s*if2where:(?P<what>[^#]*)")
_PRAGMA_WORD = re.compile(r"[\s,]*(?P<word>convert|skip|max-iterations\s*=\s*\d+)(?![\w-])")
# The line ends that Python counts: not form feeds, vertical tabs or Unicode's separators.
_LINE_END = re.compile(r"\r\n|\r|\n")


class SourceError(Exception):
    """A file that cannot be decoded or parsed."""

    def __init__(self, path: str, line: int, col: int, message: str) -> None:
        super().__init__(f"{path}:{line}:{col}: error: {message}")
        self.path, self.line, self.col, self.message = path, line, col, message

    def __reduce__(self) -> tuple[type[SourceError], tuple[str, int, int, str]]:
        return type(self), (self.path, self.line, self.col, self.message)


@dataclass(frozen=True)
class Source:
    """A file's text, with what is needed to write it back as it was."""

    path: str
    text: str
    encoding: str = "utf-8"
    bom: bool = False


@dataclass(frozen=True, eq=False)
class Function:
    """A function or lambda of a module. ``span`` is its slice of the text, decorators included."""

    node: FunctionNode
    qualname: str
    parent: Function | None
    owner: str | None
    span: tuple[int, int]
    line: int


@dataclass(frozen=True, eq=False)
class Module:
    """A parsed file."""

    source: Source
    tree: ast.Module
    functions: tuple[Function, ...]

    @cached_property
    def pragmas(self) -> dict[int, tuple[str, ...]]:
        """``# if2where: ...`` comments by line: ("convert",), ("skip",), ("max-iterations=50",)."""
        return pragmas(self.source.text)


def decode(data: bytes, path: str) -> Source:
    """Bytes to text by the byte order mark, the coding cookie, or UTF-8; line ends stay as they are.

    Raises SourceError for an unknown encoding, for bytes that are not in it, and for an encoding that
    would not give the same bytes back.
    """
    bom = data.startswith(codecs.BOM_UTF8)
    body = data[len(codecs.BOM_UTF8) :] if bom else data
    encoding = "utf-8"
    for line in body.splitlines()[:2]:  # bytes: split at the three line ends only
        found = _COOKIE.match(line)
        if found:
            encoding = _normal(found.group(1).decode("ascii"))
            break
        if line.strip() and not line.lstrip().startswith(b"#"):
            break
    try:
        if bom and codecs.lookup(encoding).name != "utf-8":
            raise SourceError(path, 1, 1, f"a UTF-8 byte order mark in a file that declares {encoding}")
        text = body.decode(encoding)
        faithful = text.encode(encoding) == body
    except LookupError:
        raise SourceError(path, 1, 1, f"unknown encoding {encoding!r}") from None
    except UnicodeDecodeError as error:
        lines = (body[: error.start] + b".").splitlines()
        raise SourceError(path, len(lines), len(lines[-1]), f"not valid {encoding}: {error.reason}") from None
    except UnicodeError as error:
        raise SourceError(path, 1, 1, f"not valid {encoding}: {error}") from None
    if not faithful:
        raise SourceError(path, 1, 1, f"could not be written back unchanged as {encoding}")
    return Source(path, text, encoding, bom)


def _normal(encoding: str) -> str:
    """The encoding's name as Python's tokenizer takes it: editors append line ends (``utf-8-unix``)."""
    name = encoding[:12].lower().replace("_", "-")
    for known in ("utf-8", "latin-1", "iso-8859-1", "iso-latin-1"):
        if name == known or name.startswith(known + "-"):
            return known
    return encoding


def encode(source: Source, text: str) -> bytes:
    """New text in the encoding of its source; raises SourceError where a character does not fit."""
    try:
        data = text.encode(source.encoding)
    except UnicodeEncodeError as error:
        before = Positions(text[: error.start])
        line, col = len(before.starts), error.start - before.starts[-1] + 1
        raise SourceError(source.path, line, col, f"cannot be written as {source.encoding}: {error.reason}") from None
    return codecs.BOM_UTF8 + data if source.bom else data


def parse_module(source: Source) -> Module:
    """The module's tree and functions; raises SourceError for what Python does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
    except SyntaxError as error:
        line, col = max(error.lineno or 1, 1), max(error.offset or 1, 1)
        raise SourceError(source.path, line, col, error.msg or "invalid syntax") from None
    except ValueError as error:
        raise SourceError(source.path, 1, 1, str(error)) from None
    except (RecursionError, MemoryError):
        raise SourceError(source.path, 1, 1, "nested too deeply to be parsed") from None
    return Module(source, tree, tuple(_functions(tree, Positions(source.text))))


class Positions:
    """Offsets in a text from the lines and UTF-8 columns that ``ast`` counts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0] + [m.end() for m in _LINE_END.finditer(text)]

    def offset(self, line: int, column: int) -> int:
        start = self.starts[line - 1]
        if column == 0:
            return start
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        segment = self.text[start:end]
        if segment.isascii():
            return start + column
        return start + len(segment.encode("utf-8")[:column].decode("utf-8", "ignore"))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)


def _functions(tree: ast.Module, positions: Positions) -> Iterator[Function]:
    """All functions, outer ones before those inside, in source order. Iterative: nesting may be deep."""
    stack: list[tuple[ast.AST, Function | None, str, str | None, str | None]] = [(tree, None, "", None, None)]
    while stack:
        node, parent, prefix, owner, name = stack.pop()
        below: list[tuple[ast.AST, Function | None, str, str | None, str | None]] = []
        if isinstance(node, FunctionNode):
            own = node.name if not isinstance(node, ast.Lambda) else name or "<lambda>"
            start, end = positions.span(node)
            if not isinstance(node, ast.Lambda) and node.decorator_list:
                start = _at_sign(positions.text, positions.span(node.decorator_list[0])[0])
            found = Function(node, prefix + own, parent, owner, (start, end), node.lineno)
            # Before Python 3.12 a place inside an f-string may be off: such a lambda cannot be rewritten.
            if not isinstance(node, ast.Lambda) or positions.text.startswith("lambda", start):
                yield found
            parent, prefix, owner = found, f"{prefix}{own}.<locals>.", None
        elif isinstance(node, ast.expr):
            owner = None
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.ClassDef):
                inside = isinstance(child, ast.stmt)
                below.append(
                    (child, parent, f"{prefix}{node.name}." if inside else prefix, node.name if inside else None, None)
                )
                continue
            called = _variable(node) if isinstance(node, ast.Assign | ast.AnnAssign) and child is node.value else None
            below.append((child, parent, prefix, owner, called))
        stack.extend(reversed(below))


def _variable(node: ast.Assign | ast.AnnAssign) -> str | None:
    """The one variable that an assignment names its value by."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else None


def _at_sign(text: str, start: int) -> int:
    """Where the line of the first decorator begins; a comment on the way to its expression may hold another "@"."""
    while True:
        at = text.rindex("@", 0, start)
        line = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
        if not text[line:at].strip():
            return at
        start = at


def pragmas(text: str) -> dict[int, tuple[str, ...]]:
    """The words of ``# if2where: ...`` comments (never of strings), up to the first that is none of them."""
    if "if2where:" not in text:
        return {}
    found: dict[int, tuple[str, ...]] = {}
    lines = io.StringIO(_LINE_END.sub("\n", text))
    try:
        for token in tokenize.generate_tokens(lines.readline):
            match = _PRAGMA.search(token.string) if token.type == tokenize.COMMENT else None
            words = tuple(_pragma_words(match.group("what"))) if match else ()
            if words:
                found[token.start[0]] = words
    except (tokenize.TokenError, SyntaxError):
        pass  # a text that Python parses; what tokenize cannot read of it holds no pragma
    return found


def _pragma_words(text: str) -> Iterator[str]:
    at = 0
    while match := _PRAGMA_WORD.match(text, at):
        yield re.sub(r"\s", "", match.group("word"))
        at = match.end()


def splice(text: str, replacements: Iterable[tuple[int, int, str]]) -> str:
    """The text with each slice [start, end) replaced; raises ValueError where slices overlap."""
    parts: list[str] = []
    at = 0
    for start, end, new in sorted(replacements):
        if start < at:
            raise ValueError(f"replacements overlap at offset {start}")
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])


def newline_of(text: str, default: str = "\n") -> str:
    """The line end that the text uses first."""
    found = _LINE_END.search(text)
    return found.group() if found else default
