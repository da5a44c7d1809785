"""Hulk plans the training of large models on GPUs scattered over regions."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(("Comparison", "Planned", "cluster", "compare", "jobs", "load", "plan"), "hulk.front"),
    "HulkError": "hulk.errors",
    "Picture": "hulk.view.pictures",
}
"""Where the public names are: they are loaded when they are used, so that `import hulk` takes no time."""

__all__ = ["Comparison", "HulkError", "Picture", "Planned", "__version__", "cluster", "compare", "jobs", "load", "plan"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'hulk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
