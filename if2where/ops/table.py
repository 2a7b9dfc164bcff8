"""What an operation may do where it is run speculatively, for samples that would not have run it.

total: value and derivatives are finite at every finite operand. product: total, but a derivative
holds another operand. partial: the value or a derivative is not finite somewhere. faulting: it
raises somewhere. effect: it does more than give a value.

``safe`` is a value of the operand at which value and first and second derivatives are finite and
nothing is raised: an integer, so that an integer operand keeps its dtype; "eye" for a square
matrix; "diagonal" for one with distinct eigenvalues; "distinct" for other operands whose equal
entries are singular.
"""

from __future__ import annotations

from dataclasses import dataclass

Safe = int | float | str


@dataclass(frozen=True)
class Guarded:
    """An operand that must be guarded: its position (self is 0 for a method) or keyword, and a safe value."""

    position: int
    safe: Safe
    keyword: str = "input"


@dataclass(frozen=True)
class Operation:
    """One row of the table. ``why`` is what goes wrong without the guard."""

    speculation: str
    operands: tuple[Guarded, ...] = ()
    why: str = ""


TOTAL = Operation("total")
PRODUCT = Operation("product")


def _partial(why: str, *operands: tuple[int, Safe] | tuple[int, Safe, str]) -> Operation:
    return Operation("partial", tuple(Guarded(*o) for o in operands), why)


def _faulting(why: str, *operands: tuple[int, Safe] | tuple[int, Safe, str]) -> Operation:
    return Operation("faulting", tuple(Guarded(*o) for o in operands), why)


def _rows(names: str, row: Operation) -> dict[str, Operation]:
    return dict.fromkeys(names.split(), row)


_OPERATIONS: dict[str, Operation] = {
    # Roots and logarithms: infinite slope at 0, NaN below.
    **_rows("sqrt rsqrt log log2 log10 reciprocal", _partial("infinite at 0, NaN below", (0, 1))),
    "log1p": _partial("infinite at -1, NaN below", (0, 0)),
    **_rows("xlogy xlog1py", _partial("infinite slope in the second operand at 0", (1, 1, "other"))),
    "entr": _partial("infinite slope at 0", (0, 1)),
    # Growing faster than the range of floats.
    **_rows("exp exp2 expm1 sinh cosh special_exp2", _partial("overflows", (0, 0))),
    # Poles.
    "tan": _partial("poles", (0, 0)),
    **_rows("lgamma gammaln digamma psi polygamma mvlgamma", _partial("poles at the negative integers", (0, 3))),
    "polygamma": _partial("poles at the negative integers", (1, 3, "input")),
    # Bounded domains.
    **_rows("acos asin arccos arcsin atanh arctanh erfinv", _partial("infinite slope at -1 and 1", (0, 0))),
    **_rows("acosh arccosh", _partial("infinite slope at 1, NaN below", (0, 2))),
    **_rows("logit", _partial("infinite at 0 and 1", (0, 0.5))),
    **_rows("ndtri", _partial("infinite at 0 and 1", (0, 0.5))),
    "log_ndtr": _partial("overflow of the derivative", (0, 0)),
    # Quotients.
    **_rows("div divide true_divide", _partial("infinite at a zero denominator", (1, 1, "other"))),
    **_rows("remainder fmod floor_divide", _faulting("an integer division by zero raises", (1, 1, "other"))),
    "addcdiv": _partial("infinite at a zero denominator", (2, 1, "tensor2")),
    **_rows("atan2 arctan2", _partial("NaN slope where both are 0", (1, 1, "other"))),
    "hypot": _partial("NaN slope where both are 0", (0, 1)),
    # Norms: no derivative at the zero vector, to the second order.
    **_rows("norm vector_norm matrix_norm", _partial("NaN slope at 0", (0, 1))),
    "normalize": _partial("NaN slope at 0", (0, 1)),
    "cosine_similarity": _partial("NaN slope at 0", (0, 1), (1, 1, "x2")),
    **_rows(
        "dist cdist pairwise_distance", _partial("NaN slope where the operands are equal", (1, "distinct", "other"))
    ),
    "pdist": _partial("NaN slope where rows are equal", (0, "distinct")),
    **_rows("std std_mean", _partial("NaN slope where all entries are equal", (0, "distinct"))),
    # Matrices.
    **_rows(
        "inverse inv pinverse pinv cholesky cholesky_inverse matrix_power lu lu_factor logdet slogdet",
        _faulting("raises, or is infinite, for a singular matrix", (0, "eye")),
    ),
    "solve": _faulting("raises for a singular matrix", (0, "eye", "A")),
    "solve_triangular": _partial("infinite for a singular matrix", (0, "eye")),
    "cholesky_solve": _partial("infinite for a singular matrix", (1, "eye", "input2")),
    "lstsq": _faulting("raises for a rank-deficient matrix", (0, "eye")),
    "det": _partial("the second derivative needs the inverse", (0, "eye")),
    **_rows(
        "eigh eig eigvals eigvalsh svd svdvals qr cond",
        _partial("derivatives are infinite at equal eigenvalues", (0, "diagonal")),
    ),
    # Lookups.
    **_rows(
        "gather index_select take take_along_dim scatter scatter_add index_add",
        _faulting("an index out of range raises", (2, 0, "index")),
    ),
    "take": _faulting("an index out of range raises", (1, 0, "index")),
    "embedding": _faulting("an index out of range raises", (0, 0)),
    "one_hot": _faulting("a negative index raises", (0, 0)),
    # A derivative that holds another operand.
    **_rows(
        "mul multiply matmul mm mv bmm dot vdot inner outer einsum tensordot square prod cumprod cross linalg_cross kron addcmul "
        "addmm addmv baddbmm lerp linear bilinear trace multi_dot tensor_inv conv1d conv2d conv3d var var_mean mse_loss",
        PRODUCT,
    ),
}


def lookup(name: str) -> Operation | None:
    """The row of a torch function or method, by its last name; None for one that is total or not listed."""
    return _OPERATIONS.get(name)


def power(exponent: object) -> Operation:
    """``x ** exponent``: with a whole number of at least 0 it is a product; anything else guards the base.

    ``exponent`` is the literal, or None where it is not one.
    """
    if isinstance(exponent, int | float) and exponent >= 0 and float(exponent).is_integer():
        return PRODUCT
    return _partial("infinite or NaN at 0 and below", (0, 1))


DIVISION = _partial("infinite at a zero denominator", (1, 1))
INTEGER_DIVISION = _faulting("an integer division by zero raises", (1, 1))
INDEXING = _faulting("an index out of range raises", (1, 0))
