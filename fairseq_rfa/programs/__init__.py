"""What the programs of this package share."""
