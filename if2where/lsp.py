"""A language server: branches that vmap will refuse, as diagnostics, with their conversion as a code action and on hover."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from if2where.cli import VERSION
from if2where.diagnostics.diagnostic import Diagnostic
from if2where.module import Function, Module, Source, SourceError, parse_module
from if2where.pipeline import Conversion, Options, convert_source
from if2where.settings import SettingsError, load, nearest

#: The code of the diagnostic on a branch that converts.
BRANCH = "data-dependent-branch"
FIX_ALL = "source.fixAll.if2where"


@dataclass(frozen=True)
class Analysis:
    """What conversion makes of a document."""

    module: Module
    result: Conversion
    options: Options
    left_out: frozenset[str]

    @classmethod
    def of(cls, text: str, path: str) -> Analysis:
        """Raises SourceError where the text does not parse, SettingsError where the settings do not hold."""
        settings = load(nearest([path]))
        options = settings.options()
        module = parse_module(Source(path, text))
        return cls(module, convert_source(text, path, options), options, settings.ignored_codes(path))

    @property
    def text(self) -> str:
        return self.module.source.text

    def converted(self) -> Iterator[tuple[Function, int]]:
        """The functions that convert, each with the line, from 0, of the first branch that goes."""
        changes = _changes(self.text.splitlines(), self.result.text.splitlines())
        changed = [line for start, end, _, _ in changes for line in range(start, end)]
        for function in self.module.functions:
            within = [line for line in changed if line in _lines(self.text, function)]
            if function.qualname in self.result.converted and within:
                yield function, within[0]

    def diagnostics(self) -> list[types.Diagnostic]:
        rows = self.text.splitlines()
        found = [
            types.Diagnostic(
                _whole_line(rows, line),
                f"vmap refuses this branch on the data; if2where can convert {function.qualname}",
                types.DiagnosticSeverity.Information,
                BRANCH,
                source="if2where",
                data=function.qualname,
            )
            for function, line in self.converted()
        ]
        told = (*self.result.refusals, *self.result.notes)
        return found + [_diagnostic(rows, d) for d in told if d.code.code not in self.left_out]

    def only(self, function: str) -> str:
        """The text with this function converted and, as far as it stands by itself, no other."""
        others = frozenset((self.module.source.path, name) for name in self.result.converted if name != function)
        alone = convert_source(self.text, self.module.source.path, replace(self.options, left_out=others))
        return alone.text if function in alone.converted else self.result.text

    def at(self, line: int) -> Function | None:
        """The function around a line that converts."""
        around = [f for f, _ in self.converted() if line in _lines(self.text, f)]
        return around[-1] if around else None


def server() -> LanguageServer:
    """The server, with nothing open yet."""
    made = LanguageServer("if2where", VERSION)

    def publish(uri: str) -> None:
        document = made.workspace.get_text_document(uri)
        try:
            found = Analysis.of(document.source, document.path).diagnostics()
        except SourceError:
            # While a line is being typed the text often does not parse; other tools say so.
            return
        except SettingsError as error:
            made.window_show_message(types.ShowMessageParams(types.MessageType.Error, str(error)))
            return
        made.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, document.version))

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        publish(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        publish(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        made.text_document_publish_diagnostics(types.PublishDiagnosticsParams(params.text_document.uri, []))

    kinds = [types.CodeActionKind.QuickFix, FIX_ALL]

    @made.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(kinds))
    def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        document = made.workspace.get_text_document(params.text_document.uri)
        analysis = _analysis(document)
        if analysis is None or analysis.result.text == document.source:
            return []
        found = []
        function = analysis.at(params.range.start.line)
        if function is not None:
            title = f"Convert {function.qualname} to torch.where"
            edit = _edit(document, analysis.only(function.qualname))
            mine = [d for d in params.context.diagnostics if d.data == function.qualname or d.code == BRANCH]
            found.append(types.CodeAction(title, types.CodeActionKind.QuickFix, mine, True, edit=edit))
        whole = _edit(document, analysis.result.text)
        found.append(types.CodeAction("Convert all functions to torch.where", FIX_ALL, edit=whole))
        return found

    @made.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        analysis = _analysis(made.workspace.get_text_document(params.text_document.uri))
        function = analysis.at(params.position.line) if analysis is not None else None
        if analysis is None or function is None:
            return None
        after = parse_module(Source(analysis.module.source.path, analysis.result.text))
        start, end = next(f.span for f in after.functions if f.qualname == function.qualname)
        text = f"Converted:\n\n```python\n{analysis.result.text[start:end]}\n```"
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text))

    return made


def _analysis(document: TextDocument) -> Analysis | None:
    try:
        return Analysis.of(document.source, document.path)
    except (SourceError, SettingsError):
        return None


def _changes(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """The runs of lines that differ: where in the one, where in the other."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [places for tag, *places in matcher.get_opcodes() if tag != "equal"]  # type: ignore[misc]


def _lines(text: str, function: Function) -> range:
    start, end = function.span
    return range(text.count("\n", 0, start), text.count("\n", 0, end) + 1)


def _whole_line(rows: list[str], line: int) -> types.Range:
    row = rows[line]
    start = len(row) - len(row.lstrip())
    return types.Range(types.Position(line, start), types.Position(line, len(row)))


def _diagnostic(rows: list[str], d: Diagnostic) -> types.Diagnostic:
    start = types.Position(d.line - 1, d.col - 1)
    end = types.Position(d.line - 1, len(rows[d.line - 1]) if d.line <= len(rows) else d.col)
    severity = types.DiagnosticSeverity.Information if d.is_note else types.DiagnosticSeverity.Warning
    return types.Diagnostic(
        types.Range(start, end), f"{d.message}\n{d.code.hint}", severity, d.code.code, source="if2where"
    )


def _edit(document: TextDocument, text: str) -> types.WorkspaceEdit:
    """The least of the document's lines in exchange for the new text's, so that the cursor stays where it is."""
    before, after = document.source.splitlines(keepends=True), text.splitlines(keepends=True)
    edits = [
        types.TextEdit(types.Range(types.Position(a, 0), types.Position(b, 0)), "".join(after[c:d]))
        for a, b, c, d in _changes(before, after)
    ]
    return types.WorkspaceEdit(changes={document.uri: edits})
