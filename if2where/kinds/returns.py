"""What torch's functions, methods and properties, math's and Python's builtins return: a table.

Names that share one answer stand in one group. A name that is in no group is unknown: its result
is taken for something that depends on all its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Returns:
    """What a call gives.

    ``what``: "tensor", "tensors" (a tuple of ``count``), "metadata" (static), "number" (a Python number
    computed from values), "python" (another Python value of them), "none", "constructor".
    ``dtype``: "same" as the promoted operands, "sum" (as same, but ints and bools to int64), "float" (as same, ints to the default float), "bool",
    "int64", "first" (the first operand's), or for numbers "bool", "int", "float", "" (the operand's).
    ``shape``: "same" (broadcast), "scalar", "reduce", "first", "stack", "matmul", "reshape",
    "unsqueeze", "transpose", "literal" or "" where not known.
    ``alias``: "fresh" memory, or "view" where it may share the first operand's.
    """

    what: str
    dtype: str = ""
    shape: str = ""
    alias: str = "fresh"
    count: int | None = None
    dynamic: bool = False


def _group(names: str, entry: Returns) -> dict[str, Returns]:
    return dict.fromkeys(names.split(), entry)


_TENSORS: dict[str, Returns] = {
    # Elementwise, in the operands' dtype.
    **_group(
        "abs absolute add sub subtract mul multiply neg negative positive square maximum minimum fmax fmin clamp clip "
        "clamp_min clamp_max relu relu6 leaky_relu elu selu celu gelu silu mish hardtanh hardswish hardsigmoid softshrink "
        "hardshrink tanhshrink threshold rsub remainder fmod floor_divide pow float_power sign sgn floor ceil round trunc fix frac "
        "where lerp addcmul addcdiv copysign nan_to_num heaviside bitwise_and bitwise_or bitwise_xor "
        "bitwise_not bitwise_left_shift bitwise_right_shift gcd lcm prelu dropout alpha_dropout diff masked_fill "
        "nextafter ldexp softplus rrelu glu conj_physical logical_shift",
        Returns("tensor", "same", "same"),
    ),
    # Elementwise, ints become the default float.
    **_group(
        "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan arcsin arccos arctan sinh cosh tanh asinh acosh "
        "atanh arcsinh arccosh arctanh atan2 arctan2 sigmoid logsigmoid softsign erf erfc erfinv lgamma digamma polygamma "
        "mvlgamma reciprocal div divide true_divide hypot logaddexp logaddexp2 logit xlogy xlog1py sinc i0 i0e i1 i1e "
        "deg2rad rad2deg ndtr ndtri log_ndtr entr gammaln gammainc gammaincc psi zeta bessel_j0 bessel_j1 expit erfcx "
        "log_softmax softmax softmin normalize special_expit",
        Returns("tensor", "float", "same"),
    ),
    **_group(
        "eq ne lt le gt ge greater greater_equal less less_equal not_equal logical_and logical_or logical_xor logical_not "
        "isnan isinf isfinite isposinf isneginf isclose isreal signbit isin",
        Returns("tensor", "bool", "same"),
    ),
    # Reductions.
    **_group("amax amin logsumexp", Returns("tensor", "same", "reduce")),
    **_group("sum prod nansum", Returns("tensor", "sum", "reduce")),
    **_group("cumsum cumprod", Returns("tensor", "sum", "first")),
    **_group("mean nanmean std var norm vector_norm", Returns("tensor", "float", "reduce")),
    **_group("any all", Returns("tensor", "bool", "reduce")),
    **_group("argmax argmin count_nonzero", Returns("tensor", "int64", "reduce")),
    **_group(
        "dot vdot inner trace det logdet dist slogdet_logabsdet cosine_similarity", Returns("tensor", "same", "scalar")
    ),
    **_group(
        "mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss binary_cross_entropy kl_div binary_cross_entropy_with_logits",
        Returns("tensor", "same"),
    ),
    # Linear algebra.
    **_group("matmul mm mv bmm", Returns("tensor", "same", "matmul")),
    **_group(
        "outer ger cross einsum tensordot linear bilinear kron addmm addmv addr baddbmm inverse inv pinverse pinv cholesky "
        "matrix_exp matrix_power solve solve_triangular triangular_solve cholesky_solve cholesky_inverse eigvalsh eigvals svdvals multi_dot "
        "matrix_norm cond matrix_rank householder_product cdist pdist vander conv1d conv2d conv3d layer_norm batch_norm group_norm embedding one_hot pad "
        "interpolate scaled_dot_product_attention avg_pool1d avg_pool2d max_pool1d max_pool2d adaptive_avg_pool2d unfold fold",
        Returns("tensor", "same"),
    ),
    **_group("eigh eig qr slogdet lstsq lu_factor", Returns("tensors", "same", count=2)),
    **_group("svd lu", Returns("tensors", "same", count=3)),
    # Rearranging into new memory.
    **_group("stack", Returns("tensor", "same", "stack")),
    **_group(
        "cat concat concatenate hstack vstack dstack column_stack row_stack block_diag meshgrid_",
        Returns("tensor", "same"),
    ),
    **_group("clone clone_", Returns("tensor", "first", "first")),
    **_group(
        "roll flip fliplr flipud rot90 tril triu repeat repeat_interleave tile gather index_select take take_along_dim scatter scatter_add index_add "
        "index_fill index_copy index_put masked_scatter diag diag_embed diagflat histc bucketize searchsorted cummax_ "
        "cov corrcoef trapezoid trapz cumulative_trapezoid gradient",
        Returns("tensor", "first"),
    ),
    **_group("sort topk kthvalue mode cummax cummin frexp aminmax", Returns("tensors", "first", count=2)),
    **_group("max min median nanmedian", Returns("tensor", "same", "reduce")),
    **_group("std_mean var_mean", Returns("tensors", "float", count=2)),
    **_group("argsort msort_", Returns("tensor", "int64", "first")),
    **_group("msort", Returns("tensor", "first", "first")),
    # Views.
    **_group("view reshape expand broadcast_to", Returns("tensor", "first", "reshape", "view")),
    **_group("unsqueeze", Returns("tensor", "first", "unsqueeze", "view")),
    **_group(
        "transpose swapaxes swapdims permute movedim moveaxis t adjoint",
        Returns("tensor", "first", "transpose", "view"),
    ),
    **_group(
        "detach contiguous conj resolve_conj requires_grad_ cpu cuda pin_memory alias view_as reshape_as expand_as",
        Returns("tensor", "first", "first", "view"),
    ),
    **_group(
        "ravel flatten squeeze narrow select diagonal unfold_ real imag unflatten view_as_real view_as_complex as_strided mT",
        Returns("tensor", "first", "", "view"),
    ),
    **_group(
        "unbind chunk split tensor_split hsplit vsplit dsplit broadcast_tensors meshgrid",
        Returns("tensors", "first", "", "view"),
    ),
    # Casts: the same object where nothing changes.
    **_group("to type_as type", Returns("tensor", "", "first", "view")),
    # Shapes that depend on values.
    **_group(
        "nonzero argwhere masked_select unique unique_consecutive bincount", Returns("tensor", "first", dynamic=True)
    ),
    # Other values.
    **_group("equal allclose is_nonzero", Returns("number", "bool")),
    **_group("item", Returns("number", "")),
    **_group("tolist numpy __array__", Returns("python")),
    **_group(
        "size dim ndimension numel nelement stride storage_offset element_size data_ptr is_floating_point is_complex is_tensor "
        "is_contiguous get_device result_type promote_types can_cast finfo iinfo is_grad_enabled get_default_dtype "
        "is_inference broadcast_shapes device dtype is_signed is_same_size manual_seed set_default_dtype is_storage",
        Returns("metadata"),
    ),
    **_group("backward retain_grad register_hook", Returns("none")),
    **_group(
        "zeros ones empty full eye arange range linspace logspace tensor as_tensor asarray scalar_tensor empty_strided",
        Returns("constructor", "argument", "literal"),
    ),
    **_group(
        "zeros_like ones_like empty_like full_like new_zeros new_ones new_empty new_full new_tensor",
        Returns("constructor", "argument", "literal"),
    ),
    **_group(
        "rand randn randint randperm normal bernoulli multinomial poisson rand_like randn_like randint_like binomial",
        Returns("tensor", "first", "first"),
    ),
}

# Names that stand in a group above but differ from it: not elementwise, another dtype, or the operand itself.
_TENSORS |= {
    **_group("softmax log_softmax softmin normalize", Returns("tensor", "float", "first")),
    **_group("diff glu", Returns("tensor", "same")),
    **_group("dropout alpha_dropout positive conj_physical", Returns("tensor", "same", "first", "view")),
    **_group("einsum", Returns("tensor", "same", alias="view")),
    **_group("float_power", Returns("tensor", "float64", "same")),
    **_group("one_hot matrix_rank bucketize searchsorted", Returns("tensor", "int64")),
    **_group("nonzero argwhere bincount", Returns("tensor", "int64", dynamic=True)),
}

_CASTS = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "bool": "bool",
}
_METHODS: dict[str, Returns] = {
    **_TENSORS,
    **{name: Returns("tensor", dtype, "first", "view") for name, dtype in _CASTS.items()},
}
_PROPERTIES: dict[str, Returns] = {
    **_group(
        "shape dtype device ndim is_cuda requires_grad is_leaf layout itemsize nbytes names is_sparse is_quantized is_meta grad_fn",
        Returns("metadata"),
    ),
    **_group("T mT H mH real imag data grad", Returns("tensor", "first", "", "view")),
}
_MATH: dict[str, Returns] = {
    **_group("floor ceil trunc gcd lcm comb perm factorial isqrt", Returns("number", "int")),
    **_group("isnan isinf isfinite isclose", Returns("number", "bool")),
    **_group(
        "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh hypot "
        "pow fabs fmod copysign erf erfc gamma lgamma degrees radians dist fsum prod remainder ldexp modf frexp cbrt",
        Returns("number", "float"),
    ),
}


def lookup(namespace: str, name: str) -> Returns | None:
    """The entry of a name; namespace is "torch", "method", "property", "functional", "special", "linalg", "fft" or "math".

    An in-place method (``add_``) answers as its out-of-place twin, sharing memory with its object.
    """
    if namespace == "property":
        return _PROPERTIES.get(name)
    if namespace == "math":
        return _MATH.get(name)
    if namespace == "method":
        found = _METHODS.get(name)
        if found is None and name.endswith("_") and not name.startswith("_"):
            twin = _METHODS.get(name[:-1])
            if name in ("zero_", "fill_", "copy_", "normal_", "uniform_") or twin is not None:
                return Returns("tensor", "first", "first", "view")
        return found
    if namespace in ("torch", "functional", "special", "linalg", "fft"):
        return _TENSORS.get(name)
    return None
