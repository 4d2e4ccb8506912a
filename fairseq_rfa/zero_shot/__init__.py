"""A softmax model with random features, without training: python -m fairseq_rfa.zero_shot."""
