"""The pool of random matrices: how the directions of the features are drawn.

A pool is a function of its sizes and its seed alone, so a checkpoint stores the seed and no matrix.
"""

import numpy as np
import torch
from torch import Tensor, nn

LARGEST_SEED = 2**32 - 1


def draw_pool(
    num_matrices: int, num_directions: int, head_dim: int, seed: int, orthogonal: bool = False
) -> Tensor:
    """Draw the w̃ of the paper's eq. 8: P matrices whose rows are each N(0, I_d).

    NumPy's legacy generator is used because NumPy promises never to change its stream.

    Args:
        num_matrices: P, at least 1.
        num_directions: D, rows of a matrix, at least 1.
        head_dim: d, at least 1.
        seed: 0 to 2**32 - 1.
        orthogonal: rows of a matrix are orthogonal in blocks of d (the last block may be smaller). The
            length of each row is drawn from the chi distribution with d degrees of freedom, so that each
            row alone is still N(0, I_d) and the kernel's estimate stays unbiased.

    Returns:
        float32 tensor (P, D, d).

    Raises:
        ValueError: a size below 1 or a seed out of range.
    """
    _check(seed, num_matrices=num_matrices, num_directions=num_directions, head_dim=head_dim)
    generator = np.random.RandomState(seed)
    rows = generator.standard_normal((num_matrices, num_directions, head_dim))
    if orthogonal:
        lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
        rows = lengths * _orthonormal_rows(generator, num_matrices, num_directions, head_dim)
    return torch.from_numpy(rows.astype(np.float32))


def _check(seed: int, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; use at least 1")
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed is {seed}; use a number from 0 to {LARGEST_SEED}")


def _orthonormal_rows(
    generator: np.random.RandomState, num_matrices: int, num_directions: int, head_dim: int
) -> np.ndarray:
    """Rows uniform on the unit sphere, orthogonal to each other in blocks of head_dim: (P, D, d)."""
    num_blocks = -(-num_directions // head_dim)
    gaussian = generator.standard_normal((num_matrices, num_blocks, head_dim, head_dim))
    basis, triangle = np.linalg.qr(gaussian)
    # The signs that make the decomposition unique, hence the same for every LAPACK, and uniform.
    basis = basis * np.sign(np.diagonal(triangle, axis1=-2, axis2=-1))[..., None, :]
    rows = np.swapaxes(basis, -1, -2).reshape(num_matrices, num_blocks * head_dim, head_dim)
    return rows[:, :num_directions]


def draw_phases(num_matrices: int, num_directions: int, seed: int) -> Tensor:
    """Draw the b of the map `cosine`, uniform on [0, 2π) and independent of the matrices of the same seed.

    Arguments and errors are those of `draw_pool`.

    Returns:
        float32 tensor (P, D).
    """
    _check(seed, num_matrices=num_matrices, num_directions=num_directions)
    generator = np.random.RandomState([seed, 1])
    phases = generator.uniform(0.0, 2 * np.pi, (num_matrices, num_directions))
    return torch.from_numpy(phases.astype(np.float32))


class MatrixPool(nn.Module):
    """A pool as part of a model: it follows the model's device and is never trained, cast or saved.

    Shared by all layers of a decoder. Its arguments are those of `draw_pool`; with_phases adds those of
    `draw_phases`.
    """

    def __init__(
        self,
        num_matrices: int,
        num_directions: int,
        head_dim: int,
        seed: int,
        orthogonal: bool = False,
        with_phases: bool = False,
    ):
        super().__init__()
        matrices = draw_pool(num_matrices, num_directions, head_dim, seed, orthogonal)
        phases = draw_phases(num_matrices, num_directions, seed) if with_phases else None
        self.register_buffer("matrices", matrices, persistent=False)
        self.register_buffer("phases", phases, persistent=False)

    def rows_of_layer(self, layer_index: int, num_heads: int) -> Tensor:
        """The rows of evaluation: head h of layer l has row (l·H + h) mod P. (H,)"""
        first = layer_index * num_heads
        rows = torch.arange(first, first + num_heads, device=self.matrices.device)
        return rows % self.matrices.size(0)

    def draw_rows(self, num_heads: int) -> Tensor:
        """One row for each head, drawn with torch's generator. (H,)"""
        return torch.randint(self.matrices.size(0), (num_heads,), device=self.matrices.device)

    def _apply(self, fn, recurse=True):
        device = fn(self.matrices[:0]).device
        if self.matrices.is_meta and device.type != "meta":
            raise ValueError(
                "the random matrices are lost on the meta device, and no state dict holds them; "
                f"build the model anew on {device} and load its state dict"
            )
        self.matrices = self.matrices.to(device)
        self.phases = None if self.phases is None else self.phases.to(device)
        return self
