"""Experiments with the watermark: corpora, extraction attacks, and the figures they give."""
