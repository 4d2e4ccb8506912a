"""From softmax to random feature attention and back: python -m fairseq_rfa.transfer."""
