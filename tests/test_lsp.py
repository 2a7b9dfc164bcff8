"""The language server, asked by a real client over stdin and stdout."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", minversion="2")

from lsprotocol import types
from pygls.lsp.client import LanguageClient

TEXT = """\
import torch


def f(x):
    y = x * 2
    if x > 0:
        y = y + 1
    return y


def g(x):
    return f(x) if x > 1 else -x


def bad(x):
    if x > 0:
        print(x)
    return x


a = torch.vmap(f)
b = torch.vmap(g)
c = torch.vmap(bad)
"""


def applied(text: str, edit: types.WorkspaceEdit, uri: str) -> str:
    assert edit.changes is not None
    rows = text.splitlines(keepends=True)
    for change in sorted(edit.changes[uri], key=lambda e: -e.range.start.line):
        rows[change.range.start.line : change.range.end.line] = [change.new_text]
    return "".join(rows)


async def session(file: Path) -> dict[str, Any]:
    client = LanguageClient("test", "1")
    published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def told(params: types.PublishDiagnosticsParams) -> None:
        published.put_nowait(params)

    @client.feature(types.WINDOW_SHOW_MESSAGE)
    def shown(params: types.ShowMessageParams) -> None:
        found["message"] = params.message

    found: dict[str, Any] = {}
    await client.start_io(sys.executable, "-m", "if2where", "lsp")
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities(), process_id=None))
    client.initialized(types.InitializedParams())
    uri = file.as_uri()
    identifier = types.TextDocumentIdentifier(uri)
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 1, TEXT)))
    found["opened"] = (await asyncio.wait_for(published.get(), 60)).diagnostics

    async def actions(line: int) -> list[types.CodeAction]:
        at = types.Range(types.Position(line, 4), types.Position(line, 4))
        params = types.CodeActionParams(identifier, at, types.CodeActionContext(found["opened"]))
        return await client.text_document_code_action_async(params)  # type: ignore[return-value]

    found["in f"] = await actions(5)
    found["in bad"] = await actions(15)
    hover = types.HoverParams(identifier, types.Position(5, 6))
    found["hover"] = await client.text_document_hover_async(hover)
    nothing = types.HoverParams(identifier, types.Position(0, 1))
    found["no hover"] = await client.text_document_hover_async(nothing)

    async def change(version: int, text: str) -> None:
        whole = types.TextDocumentContentChangeWholeDocument(text)
        document = types.VersionedTextDocumentIdentifier(version, uri)
        client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))

    await change(2, "def f(:\n")
    await change(3, applied(TEXT, found["in f"][-1].edit, uri))
    found["changed"] = (await asyncio.wait_for(published.get(), 60)).diagnostics
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return found


def test_session(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("# the editor's text counts, not the file's\n")
    found = asyncio.run(session(file))
    rows = [(d.range.start.line, d.code) for d in found["opened"]]
    assert rows == [(5, "data-dependent-branch"), (11, "data-dependent-branch"), (16, "IW101")]
    assert found["opened"][2].range.start.character == 8
    quick, everything = found["in f"]
    assert quick.title == "Convert f to torch.where"
    one = applied(TEXT, quick.edit, file.as_uri())
    assert "y = torch.where(x > 0, y + 1, y)" in one
    assert "return f(x) if x > 1 else -x" in one
    assert everything.kind == "source.fixAll.if2where"
    both = applied(TEXT, everything.edit, file.as_uri())
    from if2where import convert_source

    assert both == convert_source(TEXT, str(file)).text
    # Where the cursor is in no function that converts there is only the conversion of all.
    assert [a.title for a in found["in bad"]] == ["Convert all functions to torch.where"]
    assert "```python\ndef f(x):\n    y = x * 2\n    y = torch.where(x > 0, y + 1, y)" in found["hover"].contents.value
    assert found["no hover"] is None
    # A text that does not parse is passed over; after the conversion only the refusal is left.
    assert [d.code for d in found["changed"]] == ["IW101"]
