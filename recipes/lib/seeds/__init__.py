"""What recipes/seeds.sh runs in Python."""
