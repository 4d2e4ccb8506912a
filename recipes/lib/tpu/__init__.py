"""What recipes/tpu-check.sh runs in Python."""
