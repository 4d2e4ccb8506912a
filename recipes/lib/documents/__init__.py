"""What recipes/documents.sh runs in Python."""
