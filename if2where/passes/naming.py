"""Versions back to names: each keeps its variable's own name where no other version of it is in use meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from if2where.passes.context import Context
from if2where.region import facts as region_facts
from if2where.region import tree


def name_versions(
    ctx: Context, root: tree.FunctionDef | tree.Lambda, taken: frozenset[str]
) -> tree.FunctionDef | tree.Lambda:
    """The tree with every version 0; ``taken`` are the identifiers that made-up names must keep clear of."""
    if isinstance(root, tree.Lambda):
        return root
    live = region_facts.liveness(root.body)
    conflicts: dict[region_facts.Key, set[region_facts.Key]] = {}
    order: dict[region_facts.Key, None] = {}
    by_base: dict[str, set[region_facts.Key]] = {}
    for node in tree.walk(root.body):
        if isinstance(node, tree.Name):
            by_base.setdefault(node.id, set()).add(region_facts.key(node))
    for written, meanwhile in _definitions(root.body, live):
        for key in sorted(written):
            order.setdefault(key)
            same = by_base.get(key[0], set())
            if len(same) < 2:
                continue
            for other in same & (meanwhile | written):
                if other != key:
                    conflicts.setdefault(key, set()).add(other)
                    conflicts.setdefault(other, set()).add(key)
    names: dict[region_facts.Key, str] = {}
    for key in [*order, *(k for keys in by_base.values() for k in sorted(keys))]:
        if key in names:
            continue
        if key[1] == 0:
            names[key] = key[0]
            continue
        used = {names[c] for c in conflicts.get(key, ()) if c in names}
        used |= {c[0] for c in conflicts.get(key, ()) if c[1] == 0}
        names[key] = _free_name(key, used, taken, key in ctx.fresh)
    return _renamed(root, names)


def _free_name(key: region_facts.Key, used: set[str], taken: frozenset[str], made_up: bool) -> str:
    base = key[0]
    if base not in used and not (made_up and base in taken):
        return base
    k = 2
    while f"{base}_{k}" in used or f"{base}_{k}" in taken:
        k += 1
    return f"{base}_{k}"


def _definitions(
    block: tree.Block, live: region_facts.Liveness
) -> Iterator[tuple[frozenset[region_facts.Key], frozenset[region_facts.Key]]]:
    """For each place that binds variables: which, and what else is live behind it."""
    for stmt in block:
        if isinstance(stmt, tree.For):
            bound = frozenset(map(region_facts.key, region_facts.target_names(stmt.target)))
            yield bound, live.before[stmt.body[0]] | live.head[stmt]
        elif isinstance(stmt, tree.If | tree.While):
            bound = region_facts.writes(stmt.test)
            if bound:
                yield (
                    bound,
                    live.after[stmt]
                    | frozenset(k for b in region_facts.blocks(stmt) for s in b[:1] for k in live.before[s]),
                )
        elif isinstance(stmt, tree.With):
            bound = frozenset(k for i in stmt.items for k in region_facts.writes(i))
            yield bound, live.before[stmt.body[0]]
        else:
            yield region_facts.writes(stmt), live.after[stmt]
        for b in region_facts.blocks(stmt):
            yield from _definitions(b, live)


def _renamed(root: tree.FunctionDef, names: dict[region_facts.Key, str]) -> tree.FunctionDef:
    def change(node: tree.Node) -> tree.Node:
        if isinstance(node, tree.Name):
            name = names.get(region_facts.key(node), node.id)
            return node if not node.version else replace(node, id=name, version=0)
        return tree.map_children(node, change)

    body: list[tree.Stmt] = []
    for stmt in root.body:
        body.append(tree.map_children(stmt, change))
    return replace(root, body=_without_copies(tuple(body)))


def _without_copies(block: tree.Block) -> tree.Block:
    """Drops ``x = x``, left over from versions that got one name."""
    out: list[tree.Stmt] = []
    for stmt in block:
        if isinstance(stmt, tree.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], tree.Name):
            if isinstance(stmt.value, tree.Name) and stmt.value.id == stmt.targets[0].id:
                continue
        if isinstance(stmt, tree.If | tree.For | tree.While):
            stmt = replace(stmt, body=_without_copies(stmt.body), orelse=_without_copies(stmt.orelse))
        elif isinstance(stmt, tree.With):
            stmt = replace(stmt, body=_without_copies(stmt.body))
        out.append(stmt)
    return tuple(out)
