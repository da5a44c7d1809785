"""Hulk plans the training of large models on GPUs scattered over regions."""

__version__ = "0.1.0"
