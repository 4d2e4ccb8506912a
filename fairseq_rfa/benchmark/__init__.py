"""Time and memory by length: python -m fairseq_rfa.benchmark."""
