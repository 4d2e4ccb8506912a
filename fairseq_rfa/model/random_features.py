"""What the options of a model say to all of its random feature attentions."""

from ..functional.encoding import FEATURE_MAPS
from ..functional.random_matrices import MatrixPool


def build_pool(cfg, side, num_directions):
    """The random matrices that the layers of a place share; None for a map that needs none.

    Args:
        side: "encoder" or "decoder", whose heads have the place.
    """
    feature_map = FEATURE_MAPS[cfg.rfa_feature_map]
    if feature_map.source is None:
        return None
    head_dim = getattr(cfg, side).embed_dim // getattr(cfg, side).attention_heads
    return MatrixPool(
        cfg.rfa_num_matrices,
        num_directions,
        head_dim,
        cfg.rfa_seed,
        cfg.rfa_orthogonal,
        feature_map.phases,
    )


def shared_options(cfg):
    """By name, the arguments of an attention that do not depend on its place."""
    return dict(
        feature_map=cfg.rfa_feature_map,
        unnormalized=cfg.rfa_unnormalized,
        fixed_sigma=cfg.rfa_fixed_sigma,
        fixed_matrices=cfg.rfa_fixed_matrices,
        exact_updates=cfg.rfa_exact_updates,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
    )
