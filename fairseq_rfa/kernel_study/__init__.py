"""How many random directions a kernel needs: python -m fairseq_rfa.kernel_study."""
