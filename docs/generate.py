"""Pages made from the sources: the front page, what converts, and the codes. Run by mkdocs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import mkdocs_gen_files

from if2where.converting import diff
from if2where.diagnostics.codes import CODES
from if2where.module import decode

ROOT = Path(__file__).resolve().parent.parent


def front_page() -> str:
    """The README, its links into this folder as seen from here."""
    return re.sub(r"\]\(docs/", "](", (ROOT / "README.md").read_text("utf-8"))


def what_converts() -> str:
    """A row for each fixture, and the diff of each: what the tests run is what is shown."""
    rows, shown = [], []
    for folder in sorted(p.parent for p in (ROOT / "fixtures").glob("*/before.py")):
        before = decode((folder / "before.py").read_bytes(), folder.name).text
        about = (ast.get_docstring(ast.parse(before)) or "").split("\n\n")[0].replace("\n", " ")
        after = folder / "after.py"
        if after.exists() and not folder.name.startswith("refuse_"):
            changed = diff(f"{folder.name}.py", before, decode(after.read_bytes(), folder.name).text)
            title = folder.name.replace("_", " ")
            rows.append(f"| [{title}](#{folder.name.replace('_', '-')}) | {about.replace('|', chr(92) + '|')} |")
            shown.append(f"### {title} {{: #{folder.name.replace('_', '-')} }}\n\n````diff\n{changed.rstrip()}\n````\n")
    head = (
        "# What converts\n\nEach of these is a file that the tests convert, run under `vmap`, and compare with the "
        "loop: values, dtypes, shapes and gradients. What is refused stands under [Refusals](codes.md).\n\n"
    )
    table = "| case | what it is |\n|---|---|\n" + "\n".join(rows)
    return f"{head}{table}\n\n## The conversions\n\n" + "\n".join(shown)


def codes() -> str:
    parts = [
        "# Refusals\n\nA function with a refusal in it stays as it was. `if2where explain CODE` prints the same.\n"
    ]
    for c in CODES:
        example = f"\n\n````python\n{c.example}\n````" if c.example else ""
        parts.append(
            f"## {c.code} {c.name} {{: #{c.code} }}\n\n**{c.summary}.** {c.reason}{example}\n\nTo mend it: {c.hint}.\n"
        )
    return "\n".join(parts)


for name, text in (("index.md", front_page()), ("what-converts.md", what_converts()), ("codes.md", codes())):
    with mkdocs_gen_files.open(name, "w") as file:
        file.write(text)
