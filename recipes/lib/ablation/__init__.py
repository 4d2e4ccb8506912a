"""What recipes/ablation.sh runs in Python."""
