"""What recipes/transfer-study.sh runs in Python."""
