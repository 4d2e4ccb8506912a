"""Tensors in, tensors out: features, kernels, and linear attention over them; imports torch and NumPy only."""
