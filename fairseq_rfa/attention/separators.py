"""Where the separators between sentences stand in what a decoder reads: attention sees no tokens."""

from typing import Optional

from torch import Tensor


class Separators:
    """Shared by a decoder, which reads tokens, and its attentions.

    What was read stays until the next tokens come: activation checkpointing calls the layers once more in the backward
    pass.
    """

    def __init__(self, symbol: int):
        """
        Args:
            symbol: the separator in the dictionary of the target.
        """
        self.symbol = symbol
        self.found: Optional[Tensor] = None

    def read(self, tokens: Tensor) -> None:
        """tokens (B, N): those whose states the layers get next."""
        self.found = tokens.eq(self.symbol)

    def places(self, rows: int, length: int) -> Tensor:
        """(B, N), True at separators.

        Raises:
            RuntimeError: the tokens that were read last are no such batch.
        """
        if self.found is None or self.found.shape != (rows, length):
            shape = None if self.found is None else tuple(self.found.shape)
            raise RuntimeError(
                f"a sentence gate must know where separators stand in {(rows, length)} tokens, and its decoder read "
                f"{shape}; call the decoder and not its layers"
            )
        return self.found
