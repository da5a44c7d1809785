"""Batches: the same global batches in the same order whatever the plan, each replica reading its share.

The text is cut into windows of as many tokens as a sample needs, without overlap. Every epoch goes through all windows
in an order that its number and the seed fix. What a sample is depends on the model:

    decoder            a window of sequence + 1 tokens: all but the last are read, all but the first are predicted
    masked             a window of sequence tokens, of which 15 % (at least one) are replaced by the mask and predicted;
                       which ones, the seed and the sample's number fix
    encoder-decoder    sequence tokens are read, the next target tokens are predicted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from hulk.errors import InputError
from hulk.runtime.models import Blueprint
from hulk.runtime.text import text_files

BYTES = 256
MASKED_SHARE = 0.15
IGNORED = -100
"""The label of a position that is not predicted; torch's cross entropy leaves it out."""

MOST_SHUFFLED = 2**26
"""Windows of a text up to which an epoch's order is drawn as a whole (512 MiB); above, windows are taken at a stride
that is drawn instead, which needs no memory."""

_MASKS = ("[MASK]", "<mask>")


class Ids(Protocol):
    """Numbers in a row, of which some are read at a time."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> NDArray[Any]: ...


class _Joined:
    """Files one after the other, read where they are needed."""

    def __init__(self, parts: Sequence[NDArray[np.uint8]]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, part: slice) -> NDArray[np.uint8]:
        start, stop, _ = part.indices(len(self))
        found = []
        index = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            offset = int(self._ends[index]) - len(self._parts[index])
            end = min(stop, int(self._ends[index]))
            found.append(self._parts[index][start - offset : end - offset])
            start, index = end, index + 1
        return found[0] if len(found) == 1 else np.concatenate(found or [np.zeros(0, np.uint8)])


@dataclass(frozen=True)
class Tokens:
    """A text as numbers. `mask` is the token that hides others (masked models only)."""

    ids: Ids
    vocabulary: int
    mask: int


@dataclass(frozen=True)
class Batch:
    """Samples as (samples, tokens): what the first layer reads, what the decoder reads (None: no decoder behind an
    encoder), and what is to be predicted."""

    ids: torch.Tensor
    decoder_ids: torch.Tensor | None
    labels: torch.Tensor


def read_tokens(data: Path, tokenizer: Path | None) -> Tokens:
    """The tokens of a text file, or of all files of a folder in order of their paths; bytes where there is no
    tokenizer."""
    files = text_files(data, tokenized=tokenizer is not None)
    try:
        if tokenizer is None:
            return Tokens(_Joined([np.memmap(path, np.uint8, mode="r") for path in files]), BYTES, mask=BYTES)
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(data)) from None
    return _encode(texts, tokenizer)


def _encode(texts: list[str], path: Path) -> Tokens:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise InputError(f"not a tokenizer: {error}", where=str(path)) from None
    ids = [np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int64) for text in texts]
    masks = [found for name in _MASKS if (found := tokenizer.token_to_id(name)) is not None]
    return Tokens(np.concatenate(ids), tokenizer.get_vocab_size(), masks[0] if masks else -1)


class Samples:
    """The samples of a model, by number."""

    def __init__(self, tokens: Tokens, blueprint: Blueprint, *, seed: int, where: str) -> None:
        """InputError where text and model do not fit."""
        self._tokens, self._seed = tokens, seed
        self._sequence, self._target = blueprint.sequence, blueprint.target
        self._masked = blueprint.model_type in ("bert", "roberta")
        self._start = getattr(blueprint.model.config, "decoder_start_token_id", None) or 0
        self._length = blueprint.sequence + (blueprint.target or (0 if self._masked else 1))
        needed = tokens.vocabulary
        if self._masked:
            if tokens.mask < 0:
                raise InputError("this tokenizer has no mask token, which a masked model needs", where=where)
            needed = max(needed, tokens.mask + 1)
        if needed > blueprint.vocabulary:
            raise InputError(
                f"the text has up to {needed} different tokens, the model a vocabulary of {blueprint.vocabulary}",
                where=where,
            )
        self.count = len(tokens.ids) // self._length
        if self.count < 1:
            raise InputError(
                f"{len(tokens.ids)} tokens are less than one sample of {self._length}",
                where=where,
                hint="more text, or a shorter sequence",
            )
        self._order: tuple[int, NDArray[np.int64]] = (-1, np.zeros(0, np.int64))
        self._drawn = self.count <= MOST_SHUFFLED

    @property
    def predicted(self) -> int:
        """Positions of a sample that are predicted: as many in every sample."""
        if self._masked:
            return max(1, round(MASKED_SHARE * self._sequence))
        return self._target or self._sequence

    def batch(self, first: int, count: int) -> Batch:
        """Samples number `first` to `first + count - 1` of the whole training."""
        rows = np.stack([self._window(number) for number in range(first, first + count)])
        windows = torch.from_numpy(rows)
        if self._masked:
            return self._mask(windows, first)
        if self._target:
            ids, labels = windows[:, : self._sequence], windows[:, self._sequence :]
            starts = torch.full((count, 1), self._start, dtype=torch.long)
            return Batch(ids.contiguous(), torch.cat([starts, labels[:, :-1]], dim=1), labels.contiguous())
        return Batch(windows[:, :-1].contiguous(), None, windows[:, 1:].contiguous())

    def _window(self, number: int) -> NDArray[np.int64]:
        epoch, index = divmod(number, self.count)
        start = (self._drawn_place(epoch, index) if self._drawn else self._stride_place(epoch, index)) * self._length
        return np.asarray(self._tokens.ids[start : start + self._length], np.int64)

    def _drawn_place(self, epoch: int, index: int) -> int:
        if self._order[0] != epoch:
            self._order = epoch, np.random.default_rng((self._seed, epoch)).permutation(self.count)
        return int(self._order[1][index])

    def _stride_place(self, epoch: int, index: int) -> int:
        """A stride without a divisor in common with the number of windows comes to each of them once."""
        rng = np.random.default_rng((self._seed, epoch))
        first, stride = int(rng.integers(self.count)), int(rng.integers(self.count // 3, self.count))
        while gcd(stride, self.count) > 1:
            stride += 1
        return (first + index * stride) % self.count

    def _mask(self, windows: torch.Tensor, first: int) -> Batch:
        hidden = torch.zeros_like(windows, dtype=torch.bool)
        for row in range(len(windows)):
            rng = np.random.default_rng((self._seed, 1, first + row))
            hidden[row, rng.permutation(self._sequence)[: self.predicted].tolist()] = True
        ids = windows.masked_fill(hidden, self._tokens.mask)
        return Batch(ids, None, windows.masked_fill(~hidden, IGNORED))
