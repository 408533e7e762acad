"""The demo: a model is protected, stolen twice and found again, and an innocent one is left in peace."""
