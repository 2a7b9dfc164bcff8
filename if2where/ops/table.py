"""What an operation may do where it is run speculatively, for samples that would not have run it.

total: value and derivatives are finite at every finite operand. product: total, but a derivative
holds another operand. partial: the value or a derivative is not finite somewhere. faulting: it
raises somewhere. effect: it does more than give a value.

``safe`` is a value of the operand at which value and first and second derivatives are finite and
nothing is raised: an integer, so that an integer operand keeps its dtype; "eye" for a square
matrix; "diagonal" for one with distinct eigenvalues; "oblong eye" and "oblong diagonal" for those
that need not be square; "distinct" for other operands whose equal
entries are singular.

The rows are measured by ``if2where.ops.probe``, and the tests fail for one that is milder than what is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Safe = int | float | str

#: The position of an operand that can only be given by its keyword.
KEYWORD_ONLY = -1


@dataclass(frozen=True)
class Guarded:
    """An operand that must be guarded: its position (self is 0 for a method) or keyword, and a safe value."""

    position: int
    safe: Safe
    keyword: str = "input"


@dataclass(frozen=True)
class Operation:
    """One row of the table. ``why`` is what goes wrong without the guard, or what makes the class.

    ``in_place``: the operation writes its first operand; the class is that of the value written.
    """

    speculation: str
    operands: tuple[Guarded, ...] = ()
    why: str = ""
    in_place: bool = False


PRODUCT = Operation("product", why="a derivative holds another operand")


def _total(why: str) -> Operation:
    return Operation("total", why=why)


def _effect(why: str) -> Operation:
    return Operation("effect", why=why)


def _partial(why: str, *operands: tuple[int, Safe] | tuple[int, Safe, str]) -> Operation:
    return Operation("partial", tuple(Guarded(*o) for o in operands), why)


def _faulting(why: str, *operands: tuple[int, Safe] | tuple[int, Safe, str]) -> Operation:
    return Operation("faulting", tuple(Guarded(*o) for o in operands), why)


def _rows(names: str, row: Operation) -> dict[str, Operation]:
    return dict.fromkeys(names.split(), row)


_SHAPE = _total("moves entries, and its derivative moves them back")
_LINEAR = _total("linear: the derivative holds no operand")
_BOUNDED = _total("value and derivatives are bounded")
_PIECEWISE = _total("piecewise: a derivative of 0 or a constant in each piece")
_NOT_DIFFERENTIABLE = _total("not differentiable, and finite or of integers")
_CREATION = _total("makes a tensor")
_METADATA = _total("reads what does not hang on values, or a setting")
_CONVERSION = _total("changes dtype, device or layout")
_RANDOM = _effect("draws random numbers")
_STATE = _effect("changes a setting, a file or the graph")
_CALLS = _effect("runs a function that is handed to it")

_INDEX = "an index out of range raises"
_SINGULAR = "raises, or is infinite, for a singular matrix"
_EQUAL = "derivatives are infinite at equal eigenvalues"
_OVERFLOWS = "overflows"
_REFLECTION = "infinite slope where a reflection has no length"

#: By last name. Where namespaces differ, this is the row of the stronger, and ``_IN_NAMESPACE`` has the others.
_OPERATIONS: dict[str, Operation] = {
    # --- partial: roots and logarithms, infinite slope at 0, NaN below ---------------------------
    **_rows("log log10 log2 reciprocal rsqrt sqrt", _partial("infinite at 0, NaN below", (0, 1))),
    "log1p": _partial("infinite at -1, NaN below", (0, 0)),
    **_rows("xlog1py xlogy", _partial("infinite slope in the second operand", (1, 1, "other"))),
    "entr": _partial("infinite slope at 0", (0, 1)),
    "pow": _partial("infinite or NaN at 0 and below (``power`` knows the exponent)", (0, 1)),
    "float_power": _partial("infinite or NaN at 0 and below", (0, 1)),
    **_rows("lp_pool1d lp_pool2d lp_pool3d", _partial("a root: infinite slope at 0", (0, 1))),
    # Growing faster than the range of floats.
    **_rows(
        "cosh exp exp2 expm1 i0 i1 matrix_exp modified_bessel_i0 modified_bessel_i1 sinh",
        _partial(_OVERFLOWS, (0, 0)),
    ),
    "erfcx": _partial("overflows below", (0, 0)),
    "ldexp": _partial(_OVERFLOWS, (1, 0, "other")),
    "logspace": _partial(_OVERFLOWS, (0, 0, "start"), (1, 0, "end")),
    "soft_margin_loss": _partial("an exponential that overflows", (0, 0)),
    "mish": _partial("overflow of the second derivative", (0, 0)),
    **_rows("logaddexp logaddexp2", _partial("overflow of the second derivative", (0, 0), (1, 0, "other"))),
    **_rows(
        "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
        "hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p "
        "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
        "shifted_chebyshev_polynomial_w",
        _partial("overflows at a high degree", (1, 1, "n")),
    ),
    # Poles.
    **_rows("digamma gammaln lgamma multigammaln mvlgamma psi", _partial("poles at the negative integers", (0, 3))),
    "polygamma": _partial("poles at the negative integers", (1, 3)),
    **_rows("bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1", _partial("infinite at 0, NaN below", (0, 1))),
    **_rows("scaled_modified_bessel_k0 scaled_modified_bessel_k1", _partial("infinite at 0, NaN below", (0, 1, "x"))),
    **_rows("gammainc gammaincc igamma igammac", _partial("NaN for operands of 0 and below", (0, 1), (1, 1, "other"))),
    "zeta": _partial("poles, NaN below 1", (0, 2), (1, 1, "other")),
    # Bounded domains.
    **_rows("acos arccos arcsin arctanh asin atanh erfinv", _partial("infinite slope at -1 and 1", (0, 0))),
    **_rows("acosh arccosh", _partial("infinite slope at 1, NaN below", (0, 2))),
    **_rows("logit ndtri", _partial("infinite at 0 and 1", (0, 0.5))),
    # Quotients.
    **_rows("div divide true_divide", _partial("infinite at a zero denominator", (1, 1, "other"))),
    "addcdiv": _partial("infinite at a zero denominator", (2, 1, "tensor2")),
    **_rows("arctan2 atan2", _partial("NaN slope where both are 0", (1, 1, "other"))),
    "hypot": _partial("NaN slope where both are 0", (0, 1)),
    "copysign": _partial("NaN second derivative at 0", (0, 1)),
    "sinc": _partial("NaN second derivative at 0", (0, 1)),
    "frexp": _partial("infinite slope at the smallest numbers", (0, 1)),
    "gradient": _partial("infinite where points coincide", (KEYWORD_ONLY, "distinct", "spacing")),
    "corrcoef": _partial("NaN where a row has equal entries", (0, "distinct")),
    **_rows(
        "histogram histogramdd",
        _partial("a density of weights that sum to 0", (0, "distinct"), (KEYWORD_ONLY, 1, "weight")),
    ),
    # Norms: no derivative at the zero vector, to the second order.
    **_rows(
        "frobenius_norm matrix_norm native_norm norm normalize renorm vector_norm",
        _partial("NaN second derivative at 0", (0, 1)),
    ),
    "norm_except_dim": _partial("NaN second derivative at 0", (0, 1, "v")),
    "nuclear_norm": _partial("NaN second derivative at equal singular values", (0, "oblong diagonal")),
    "cosine_similarity": _partial("NaN second derivative at 0", (0, 1, "x1"), (1, 1, "x2")),
    "dist": _partial("NaN second derivative where the operands are equal", (0, 0), (1, 2, "other")),
    **_rows(
        "cdist pairwise_distance",
        _partial("NaN second derivative where the operands are equal", (0, 0, "x1"), (1, 2, "x2")),
    ),
    "pdist": _partial("NaN slope where rows are equal", (0, "distinct")),
    **_rows("std std_mean", _partial("infinite slope as the entries become equal", (0, "distinct"))),
    # Losses.
    "kl_div": _partial("the logarithm of the target", (1, 1, "target")),
    "poisson_nll_loss": _partial("logarithms, or an exponential that overflows", (0, 1), (1, 2, "target")),
    # Matrices.
    "det": _partial("the second derivative needs the inverse", (0, "eye")),
    **_rows("cholesky_ex ldl_factor_ex", _partial(_SINGULAR, (0, "eye"))),
    "inv_ex": _partial(_SINGULAR, (0, "eye", "A")),
    **_rows("pinv pinverse", _partial(_SINGULAR, (0, "oblong eye"))),
    **_rows("lu lu_factor_ex", _partial(_SINGULAR, (0, "oblong eye", "A"))),
    "solve_triangular": _partial("infinite for a singular matrix", (0, "eye")),
    "triangular_solve": _partial("infinite for a singular matrix", (1, "eye", "A")),
    "cholesky_solve": _partial("infinite for a singular matrix", (1, "eye", "input2")),
    "ldl_solve": _partial("infinite for a singular matrix", (0, "eye", "LD")),
    "lu_solve": _partial("infinite for a singular matrix", (1, "eye", "LU_data")),
    **_rows("eigh eigvalsh symeig", _partial(_EQUAL, (0, "diagonal"))),
    **_rows("cond qr svd", _partial(_EQUAL, (0, "oblong diagonal"))),
    "svdvals": _partial(_EQUAL, (0, "oblong diagonal", "A")),
    "householder_product": _partial(_REFLECTION, (1, 0, "tau")),
    **_rows("ormqr orgqr", _partial(_REFLECTION, (1, 0, "input2"))),
    # --- faulting: raises at some values ---------------------------------------------------------
    **_rows("floor_divide fmod remainder", _faulting("an integer division by zero raises", (1, 1, "other"))),
    # Lookups.
    **_rows(
        "gather index_add index_copy index_fill index_reduce index_select scatter scatter_add scatter_reduce",
        _faulting(_INDEX, (2, 0, "index")),
    ),
    **_rows("put take", _faulting(_INDEX, (1, 0, "index"))),
    **_rows("index index_put", _faulting(_INDEX, (1, 0, "indices"))),
    "take_along_dim": _faulting(_INDEX, (1, 0, "indices")),
    "narrow": _faulting(_INDEX, (2, 0, "start")),
    "embedding": _faulting(_INDEX, (0, 0)),
    "embedding_bag": _faulting(_INDEX, (0, 0), (2, 0, "offsets")),
    **_rows("bincount one_hot", _faulting("a negative index raises", (0, 0))),
    **_rows("max_unpool1d max_unpool2d max_unpool3d", _faulting(_INDEX, (1, 0, "indices"))),
    "searchsorted": _faulting(_INDEX, (KEYWORD_ONLY, 0, "sorter")),
    "tensor_split": _faulting("a number of sections below 1 raises", (1, 1, "tensor_indices_or_sections")),
    "repeat_interleave": _faulting("a negative count raises", (1, 1, "repeats")),
    **_rows("nanquantile quantile", _faulting("raises outside of 0 to 1", (1, 0, "q"))),
    "cov": _faulting("negative weights raise", (KEYWORD_ONLY, 1, "fweights"), (KEYWORD_ONLY, 1, "aweights")),
    # Losses: the class of a sample is an index.
    **_rows("cross_entropy nll_loss", _faulting(_INDEX, (1, 0, "target"), (2, 1, "weight"))),
    **_rows("multi_margin_loss multilabel_margin_loss", _faulting(_INDEX, (1, 0, "target"))),
    **_rows(
        "ctc_loss miopen_ctc_loss",
        _faulting(
            "a target out of range is read out of bounds; the exponential of the log-probabilities overflows",
            (0, 0, "log_probs"),
            (1, 1, "targets"),
        ),
    ),
    "linear_cross_entropy": _faulting(_INDEX, (2, 0, "target"), (KEYWORD_ONLY, 1, "weight")),
    "binary_cross_entropy": _faulting("raises outside of 0 to 1", (0, 0.5), (1, 0.5, "target")),
    "gaussian_nll_loss": _faulting("a negative variance raises", (2, 1, "var")),
    # Matrices.
    **_rows("inv solve solve_ex", _faulting(_SINGULAR, (0, "eye", "A"))),
    "lu_factor": _faulting(_SINGULAR, (0, "oblong eye", "A")),
    **_rows(
        "cholesky cholesky_inverse inverse ldl_factor logdet matrix_power slogdet tensorinv tensorsolve",
        _faulting(_SINGULAR, (0, "eye")),
    ),
    "lstsq": _faulting("raises for a rank-deficient matrix", (0, "oblong eye")),
    **_rows("eig eigvals", _faulting("derivatives raise, or are infinite, at equal eigenvalues", (0, "diagonal"))),
    # --- product: a derivative that holds another operand -----------------------------------------
    **_rows("addcmul cumprod lerp mul multiply polar prod square", PRODUCT),
    # Matrix products.
    **_rows(
        "addbmm addmm addmv addr baddbmm bilinear bmm chain_matmul cross dot dsmm einsum ger grouped_mm hsmm hspmm "
        "inner kron linear matmul mm multi_dot mv outer saddmm smm spmm sspaddmm tensordot vander vdot vecdot",
        PRODUCT,
    ),
    # Convolutions, recurrent cells, attention.
    **_rows(
        "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution "
        "cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose "
        "miopen_convolution miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose "
        "miopen_depthwise_convolution mkldnn_convolution mkldnn_linear_backward_weights",
        PRODUCT,
    ),
    **_rows(
        "gru gru_cell lstm lstm_cell miopen_rnn mkldnn_rnn_layer rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell", PRODUCT
    ),
    **_rows("multi_head_attention_forward scaled_dot_product_attention scaled_grouped_mm scaled_mm", PRODUCT),
    **_rows("glu grid_sample grid_sampler grid_sampler_2d grid_sampler_3d cudnn_grid_sampler prelu", PRODUCT),
    # Over the entries of one operand.
    **_rows("log_softmax logcumsumexp logsumexp softmax softmin", PRODUCT),
    **_rows("amax amin aminmax var var_mean", PRODUCT),
    **_rows(
        "batch_norm batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats "
        "batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats cudnn_batch_norm group_norm "
        "instance_norm layer_norm local_response_norm miopen_batch_norm native_batch_norm native_group_norm "
        "native_layer_norm rms_norm",
        PRODUCT,
    ),
    **_rows("cumulative_trapezoid trapezoid trapz", PRODUCT),
    **_rows("istft stft", PRODUCT),
    # Losses.
    **_rows(
        "binary_cross_entropy_with_logits cosine_embedding_loss huber_loss margin_ranking_loss mse_loss "
        "multilabel_soft_margin_loss smooth_l1_loss triplet_margin_loss",
        PRODUCT,
    ),
    # --- total, and differentiable ------------------------------------------------------------------
    **_rows(
        "add conj conj_physical cumsum deg2rad diff imag mean nanmean nansum neg negative positive rad2deg real "
        "resolve_conj resolve_neg rsub sub subtract sum sum_to_size trace",
        _LINEAR,
    ),
    **_rows(
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d affine_grid affine_grid_generator avg_pool1d "
        "avg_pool2d avg_pool3d cudnn_affine_grid_generator fold interpolate unfold unfold_copy upsample upsample_bilinear "
        "upsample_nearest",
        _LINEAR,
    ),
    **_rows(
        "fft fft2 fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2 irfftn "
        "rfft rfft2 rfftn",
        _LINEAR,
    ),
    **_rows(
        "airy_ai angle arcsinh arctan asinh atan bessel_j0 bessel_j1 celu cos elu erf erfc expit gelu hardswish i0e "
        "i1e log_ndtr logsigmoid ndtr selu sigmoid silu sin softplus softsign spherical_bessel_j0 tanh tanhshrink",
        _BOUNDED,
    ),
    "tan": _total("no float is a pole"),
    **_rows(
        "abs absolute ceil clamp clamp_max clamp_min clip cummax cummin fix floor fmax fmin frac hardshrink hardsigmoid "
        "hardtanh hinge_embedding_loss kthvalue l1_loss leaky_relu max maximum median min minimum mode msort "
        "nan_to_num nanmedian nextafter relu relu6 round sgn sign softshrink sort threshold topk trunc where",
        _PIECEWISE,
    ),
    **_rows(
        "adaptive_max_pool1d adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices "
        "adaptive_max_pool3d adaptive_max_pool3d_with_indices max_pool1d max_pool1d_with_indices max_pool2d "
        "max_pool2d_with_indices max_pool3d max_pool3d_with_indices mkldnn_adaptive_avg_pool2d mkldnn_max_pool2d "
        "mkldnn_max_pool3d quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d segment_reduce",
        _PIECEWISE,
    ),
    **_rows(
        "adjoint alias_copy as_strided as_strided_copy as_strided_scatter as_subclass atleast_1d atleast_2d "
        "atleast_3d block_diag broadcast_tensors broadcast_to cartesian_prod cat channel_shuffle chunk clone "
        "column_stack combinations concat concatenate constant_pad_nd contiguous diag diag_embed diagflat diagonal "
        "diagonal_copy diagonal_scatter dsplit dstack expand expand_as expand_copy flatten flip fliplr flipud hsplit "
        "hstack lu_unpack masked_fill masked_scatter masked_select meshgrid moveaxis movedim narrow_copy "
        "native_channel_shuffle pad permute permute_copy pixel_shuffle pixel_unshuffle ravel repeat reshape "
        "reshape_as roll rot90 row_stack select select_copy select_scatter slice_copy slice_inverse slice_scatter "
        "split split_copy split_with_sizes split_with_sizes_copy squeeze squeeze_copy stack swapaxes swapdims t "
        "t_copy tile transpose transpose_copy tril triu unbind unbind_copy unflatten unsafe_chunk unsafe_split "
        "unsafe_split_with_sizes unsqueeze unsqueeze_copy view view_as view_as_complex view_as_complex_copy "
        "view_as_real view_as_real_copy view_copy vsplit vstack",
        _SHAPE,
    ),
    "complex": _LINEAR,
    # --- total, not differentiable --------------------------------------------------------------------
    **_rows(
        "all allclose any argmax argmin argsort argwhere bitwise_and bitwise_left_shift bitwise_not bitwise_or "
        "bitwise_right_shift bitwise_xor bucketize count_nonzero eq equal gcd ge greater greater_equal gt hash_tensor "
        "heaviside histc isclose isfinite isin isinf isnan isneginf isposinf isreal lcm le less less_equal logical_and "
        "logical_not logical_or logical_xor lt matrix_rank ne nonzero nonzero_static not_equal signbit unique "
        "unique_consecutive unravel_index",
        _NOT_DIFFERENTIABLE,
    ),
    "geqrf": _NOT_DIFFERENTIABLE,
    **_rows(
        "arange as_tensor asarray bartlett_window blackman_window empty empty_like empty_permuted empty_quantized "
        "empty_strided eye fftfreq fill from_dlpack from_numpy frombuffer full full_like hamming_window hann_window "
        "kaiser_window linspace new new_empty new_empty_strided new_full new_ones new_tensor new_zeros ones ones_like "
        "range rfftfreq scalar_tensor tensor tril_indices triu_indices zeros zeros_like copy_ fill_diagonal_ zero_",
        _CREATION,
    ),
    **_rows(
        "bfloat16 bool byte cdouble cfloat chalf char coalesce cpu cuda dense_dim dequantize detach detach_copy double "
        "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine float half int int_repr ipu item long mtia "
        "numpy pin_memory quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic short sparse_mask to "
        "to_dense to_dlpack to_mkldnn to_padded_tensor to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo "
        "to_sparse_csc to_sparse_csr tolist type type_as xpu",
        _CONVERSION,
    ),
    **_rows(
        "ccol_indices ccol_indices_copy col_indices col_indices_copy crow_indices crow_indices_copy indices "
        "indices_copy row_indices row_indices_copy sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor "
        "sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor sparse_dim values values_copy",
        _CONVERSION,
    ),
    **_rows(
        "choose_qparams_optimized fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation "
        "fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight "
        "fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix quantized_batch_norm quantized_gru "
        "quantized_gru_cell quantized_lstm quantized_lstm_cell quantized_rnn_relu_cell quantized_rnn_tanh_cell "
        "q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme",
        _NOT_DIFFERENTIABLE,
    ),
    **_rows(
        "are_deterministic_algorithms_enabled broadcast_shapes can_cast compiled_with_cxx11_abi const_data_ptr "
        "cudnn_is_acceptable data_ptr dim dim_order element_size get_autocast_cpu_dtype get_autocast_dtype "
        "get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype get_default_device get_default_dtype "
        "get_deterministic_debug_mode get_device get_device_module get_file_path get_float32_matmul_precision "
        "get_num_interop_threads get_num_threads get_rng_state initial_seed is_anomaly_check_nan_enabled "
        "is_anomaly_enabled is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled "
        "is_autocast_ipu_enabled is_autocast_xla_enabled is_coalesced is_complex is_conj is_contiguous "
        "is_deterministic_algorithms_warn_only_enabled is_distributed is_floating_point is_grad_enabled is_inference "
        "is_inference_mode_enabled is_neg is_nonzero is_pinned is_same_size is_set_to is_shared is_signed is_storage "
        "is_tensor is_vulkan_available is_warn_always_enabled ndimension nelement numel promote_types result_type "
        "size storage storage_offset storage_type stride sym_constrain_range sym_constrain_range_for_size sym_float "
        "sym_fresh_size sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum typename untyped_storage",
        _METADATA,
    ),
    # Not operations: torch's own helpers that its modules export.
    **_rows(
        "Optional assert_int_or_pair boolean_dispatch classproperty handle_torch_function has_torch_function "
        "has_torch_function_unary has_torch_function_variadic merge_type_from_type_comment parse_ir parse_schema "
        "parse_type_comment thread_safe_generator unify_type_list",
        _METADATA,
    ),
    # --- effect ------------------------------------------------------------------------------------------
    **_rows(
        "alpha_dropout bernoulli binomial cauchy_ dropout dropout1d dropout2d dropout3d exponential_ "
        "feature_alpha_dropout feature_dropout fractional_max_pool2d fractional_max_pool2d_with_indices "
        "fractional_max_pool3d fractional_max_pool3d_with_indices geometric_ gumbel_softmax lobpcg log_normal_ "
        "multinomial native_dropout normal pca_lowrank poisson rand rand_like randint randint_like randn randn_like "
        "random_ randperm rrelu svd_lowrank uniform_",
        _RANDOM,
    ),
    **_rows(
        "autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache from_file init_num_threads load "
        "import_ir_module import_ir_module_from_buffer manual_seed prepare_multiprocessing_environment "
        "profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 save seed set_anomaly_enabled set_autocast_cache_enabled "
        "set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled "
        "set_autocast_gpu_dtype set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype "
        "set_autocast_xla_enabled set_default_device set_default_dtype set_default_tensor_type "
        "set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal set_num_interop_threads "
        "set_num_threads set_printoptions set_rng_state set_warn_always use_deterministic_algorithms",
        _STATE,
    ),
    **_rows(
        "backward embedding_renorm_ fused_moving_avg_obs_fake_quant module_load record_stream register_hook "
        "register_post_accumulate_grad_hook reinforce requires_grad_ resize resize_ resize_as resize_as_ "
        "resize_as_sparse_ retain_grad set_ share_memory_ sparse_resize_ sparse_resize_and_clear_",
        _STATE,
    ),
    **_rows("apply_ compile fork map2_ map_ triplet_margin_with_distance_loss vmap wait while_loop", _CALLS),
}

#: The same last name with other operands, or another meaning.
_IN_NAMESPACE: dict[tuple[str, str], Operation] = {
    ("Tensor", "polygamma"): _partial("poles at the negative integers", (0, 3)),
    ("linalg", "det"): _partial("the second derivative needs the inverse", (0, "eye", "A")),
    ("linalg", "qr"): _partial(_EQUAL, (0, "oblong diagonal", "A")),
    ("linalg", "slogdet"): _faulting(_SINGULAR, (0, "eye", "A")),
    ("linalg", "svd"): _partial(_EQUAL, (0, "oblong diagonal", "A")),
    ("linalg", "lu_solve"): _partial("infinite for a singular matrix", (0, "eye", "LU")),
    ("torch", "cond"): _CALLS,
    ("torch", "embedding"): _faulting(_INDEX, (1, 0, "indices")),
    ("torch", "embedding_bag"): _faulting(_INDEX, (1, 0, "indices"), (2, 0, "offsets")),
}


def lookup(name: str, namespace: str | None = None) -> Operation | None:
    """The row of a torch function or method, by its last name; None for one that is not listed.

    ``namespace`` is "torch", "Tensor", "functional", "special", "linalg" or "fft" (or dotted, "torch.linalg"):
    it tells apart those that share a last name. A name that ends in ``_`` has the row of its twin without it.
    """
    space = namespace.rpartition(".")[2] if namespace is not None else None
    row = _IN_NAMESPACE.get((space, name)) if space is not None else None
    row = row or _OPERATIONS.get(name)
    if row is None and name.endswith("_") and not name.endswith("__"):
        twin = lookup(name[:-1], namespace)
        return replace(twin, in_place=True) if twin is not None else None
    return row


def power(exponent: object) -> Operation:
    """``x ** exponent``: with a whole number of at least 0 it is a product; anything else guards the base.

    ``exponent`` is the literal, or None where it is not one.
    """
    if isinstance(exponent, int | float) and exponent >= 0 and float(exponent).is_integer():
        return PRODUCT
    return _partial("infinite or NaN at 0 and below", (0, 1))


DIVISION = _partial("infinite at a zero denominator", (1, 1))
INTEGER_DIVISION = _faulting("an integer division by zero raises", (1, 1))
INDEXING = _faulting(_INDEX, (1, 0))


def counts() -> dict[str, int]:
    """How many names each class has; a name in two namespaces counts twice where they differ."""
    found: dict[str, int] = {}
    for row in (*_OPERATIONS.values(), *_IN_NAMESPACE.values()):
        found[row.speculation] = found.get(row.speculation, 0) + 1
    return found
