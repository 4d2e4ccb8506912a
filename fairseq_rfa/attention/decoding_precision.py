"""In which precision the dense layers of a model that only decodes multiply: what torch offers for few bytes.

The only file that knows these operators. torch.ao.quantization, which puts modules around them, is to leave torch.
"""

import warnings
from functools import lru_cache
from typing import Any, Callable, NamedTuple, Optional

import torch
from torch import Tensor

ENGINE = "fbgemm"
"""The one of torch's quantisation that takes the scale of the input as an argument."""
SMALLEST = 1e-30
"""Of the greatest entries by which rows of a weight are divided, so that rows of zeros stay."""
EIGHT_BITS, SEVEN_BITS = 127, 63


class Precision(NamedTuple):
    """How to multiply with a weight W (O, E) in float32 on a CPU."""

    lack: Callable[[], Optional[str]]
    """What is missing here for it; None if nothing is."""
    pack: Callable[[Tensor], Any]
    """W → what is kept of it."""
    multiply: Callable[[Tensor, Any, Optional[Tensor]], Tensor]
    """x (…, E) of two dimensions or more, W as it is kept, b (O) or None → x Wᵀ + b (…, O) in float32"""
    few_rows: bool
    """Whether it only gains for no more rows than E."""


def _lack_of_onednn() -> Optional[str]:
    here = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    operators = (hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    return None if here and all(operators) else "this torch comes without oneDNN"


def _in_order_of_onednn(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach())


def _multiply_float32(x: Tensor, packed: Tensor, bias: Optional[Tensor]) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _lack_of_bfloat16() -> Optional[str]:
    # oneDNN multiplies bfloat16 on other processors as well, at a third of the speed of float32.
    if not getattr(torch.cpu, "_is_avx512_bf16_supported", bool)():
        return "this processor has no products of bfloat16 (avx512_bf16)"
    return _lack_of_onednn()


def _packed_bfloat16(weight: Tensor) -> Tensor:
    return _in_order_of_onednn(weight.bfloat16())


def _multiply_bfloat16(x: Tensor, packed: Tensor, bias: Optional[Tensor]) -> Tensor:
    product = _multiply_float32(x.bfloat16(), packed, None)
    return product.float() if bias is None else bias + product


def _lack_of_int8() -> Optional[str]:
    return None if _greatest_integer() else f"this torch multiplies no 8-bit integers of its engine {ENGINE}"


@lru_cache(maxsize=None)
def _greatest_integer() -> Optional[int]:
    """Of an input of int8 products: what they do without an overflow in between; None where torch has no such products.

    Processors without VNNI add pairs of products in 16 bits, which 7 bits of the input fit.
    """
    weight = torch.ones(16, 64)
    try:
        packed = _packed_int8(weight)
        for greatest in (EIGHT_BITS, SEVEN_BITS):
            found = _multiply_integers(torch.stack([weight[0], -weight[0]]), packed, greatest)
            if found.abs().sub(weight.size(1)).abs().max() < 0.01:
                return greatest
    # Of a torch without the operators, or without the engine, anything may come.
    except (AttributeError, RuntimeError, NotImplementedError):
        pass
    return None


def _packed_int8(weight: Tensor) -> Any:
    """Each row has a scale of its own."""
    scales = weight.detach().abs().amax(1).clamp_min(SMALLEST) / EIGHT_BITS
    zeros = torch.zeros(len(scales), dtype=torch.long)
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Tensors of quantised types are to leave torch as well.
            integers = torch.quantize_per_channel(weight.detach(), scales, zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(integers, None)
    finally:
        torch.backends.quantized.engine = engine


def _multiply_int8(x: Tensor, packed: Any, bias: Optional[Tensor]) -> Tensor:
    """Each row of x has a scale of its own, so that a sentence is translated alike whatever stands beside it."""
    greatest = x.abs().amax(-1, keepdim=True)
    # Where it is 0, the integers are whatever NaN becomes, and count for nothing.
    product = _multiply_integers(x / greatest, packed, _greatest_integer())
    return product * greatest if bias is None else torch.addcmul(bias, product, greatest)


def _multiply_integers(x: Tensor, packed: Any, greatest: int) -> Tensor:
    """x with entries from -1 to 1, which become integers from -greatest to greatest."""
    product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    return product(x, 1 / greatest, greatest + 1, packed)


PRECISIONS = {
    "float32": Precision(_lack_of_onednn, _in_order_of_onednn, _multiply_float32, few_rows=True),
    "bfloat16": Precision(_lack_of_bfloat16, _packed_bfloat16, _multiply_bfloat16, few_rows=False),
    "int8": Precision(_lack_of_int8, _packed_int8, _multiply_int8, few_rows=False),
}
