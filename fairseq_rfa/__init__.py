"""Random feature attention for fairseq's Transformer: use with --user-dir, or import it."""

from .compat import allow_checkpoint_classes, restore_xla_functions

allow_checkpoint_classes()
restore_xla_functions()

from . import architectures  # noqa: E402, F401
from .config import TransformerRFAConfig  # noqa: E402
from .transformer import TransformerRFAModel  # noqa: E402

__version__ = "0.1.0"
__all__ = ["TransformerRFAConfig", "TransformerRFAModel", "__version__"]
