"""Why the engines waited, and what would change it."""
