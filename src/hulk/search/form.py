"""Which regular plans are wanted. Apart from their search, so that what only names a form loads nothing compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hulk.search.skeleton import Skeleton


@dataclass(frozen=True)
class Form:
    """Which regular plans are wanted.

    stages   stages of a pipeline at most; None: any number
    tensor   GPUs of a stage at most; None: any number
    uneven   whether the cut may be uneven, the same for all pipelines
    fits     whether pipelines are wanted
    takes    whether they are wanted with their options
    """

    stages: int | None = None
    tensor: int | None = None
    uneven: bool = False
    fits: Callable[[Skeleton], bool] = lambda _: True
    takes: Callable[[Skeleton], bool] = lambda _: True


ANY = Form()
