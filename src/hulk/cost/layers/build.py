"""A whole model: its layers in the order a pipeline runs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hulk.cost.layers.attention import attention, bias_held, bias_table, relative_attention, shared_keys
from hulk.cost.layers.ends import decoder_embedding, embedding, head, token_table
from hulk.cost.layers.feedforward import feedforward, feedforward_moment
from hulk.cost.layers.latent import latent_attention
from hulk.cost.layers.operations import sublayer
from hulk.cost.layers.part import Moment, Part
from hulk.domain.architecture import Architecture, Family, Position
from hulk.domain.model import Layer, LayerKind, Model
from hulk.errors import InputError

LONGEST_SEQUENCE = 100_000_000


def build_model(
    architecture: Architecture,
    *,
    name: str,
    sequence: int,
    target_sequence: int | None = None,
    source: str = "",
) -> Model:
    """The layers of `architecture` for samples of `sequence` tokens.

    An encoder-decoder reads `sequence` tokens and writes `target_sequence` (as many where not given). Raises
    InputError for a sequence the model cannot take.
    """
    _check_sequence(architecture, sequence, "sequence")
    if architecture.family is Family.ENCODER_DECODER:
        target_sequence = sequence if target_sequence is None else target_sequence
        _check_sequence(architecture, target_sequence, "target_sequence")
    elif target_sequence is not None:
        raise InputError(f"{name} has one sequence: target_sequence is for encoder-decoder models")
    layers = _layers(architecture, sequence, target_sequence)
    plain = _layers(architecture.as_run, sequence, target_sequence)
    both = tuple(a if a == b else replace(a, own=b) for a, b in zip(layers, plain, strict=True))
    return Model(name=name, family=architecture.family.value, sequence=sequence, layers=both, source=source)


def _layers(architecture: Architecture, sequence: int, target: int | None) -> tuple[Layer, ...]:
    if target is not None:
        return _encoder_decoder(architecture, sequence=sequence, target=target)
    return _single_stack(architecture, sequence)


def _single_stack(architecture: Architecture, sequence: int) -> tuple[Layer, ...]:
    return (*_first_stack(architecture, "block", architecture.layers, sequence), _head(architecture, sequence))


def _first_stack(architecture: Architecture, name: str, count: int, rows: int) -> list[Layer]:
    """The embedding, and `count` blocks over `rows` tokens."""
    hidden_state = rows * architecture.hidden
    first = embedding(architecture, rows).layer(
        "embedding", LayerKind.EMBEDDING, shape="embedding", output=hidden_state, reductions=1
    )
    if not (architecture.dense_blocks or architecture.unrotated_blocks):
        part, moment = _block(architecture, rows), _moment(architecture, rows)
        return [first, *_blocks(architecture, name, count, part, output=hidden_state, moment=moment)]
    return [first, *_unlike_blocks(architecture, name, count, rows)]


def _unlike_blocks(architecture: Architecture, name: str, count: int, rows: int) -> Iterator[Layer]:
    """Blocks of which some have experts and some have not, or some rotate heads and some do not."""
    made: dict[str, tuple[Part, Moment]] = {}
    for number in range(count):
        dense = "dense " if number in architecture.dense_blocks else ""
        shape = f"{dense}{'unrotated ' if number in architecture.unrotated_blocks else ''}{name}"
        if shape not in made:
            block = architecture.of_block(number)
            made[shape] = _block(block, rows), _moment(block, rows)
        part, moment = made[shape]
        yield part.layer(
            f"{name} {number}",
            LayerKind.BLOCK,
            shape=shape,
            output=rows * architecture.hidden,
            reductions=2,
            head_width=architecture.kv_heads,
            moment=moment,
        )


def _encoder_decoder(architecture: Architecture, *, sequence: int, target: int) -> tuple[Layer, ...]:
    """Encoder, then decoder. The decoder's layers pass the encoder's output on beside their own, since the
    cross-attention of every later block needs it."""
    encoded, decoded = sequence * architecture.hidden, target * architecture.hidden
    encoder = _first_stack(architecture, "encoder block", architecture.encoder_layers, sequence)
    between = decoder_embedding(architecture, rows=target, encoder_rows=sequence).layer(
        "decoder embedding",
        LayerKind.EMBEDDING,
        shape="decoder embedding",
        output=encoded + decoded,
        reductions=1,
        tied=token_table(architecture),
    )
    cross = sublayer(architecture, target, attention(architecture, rows=target, keys=sequence, cross=True))
    decoder = _blocks(
        architecture,
        "decoder block",
        architecture.layers,
        _block(architecture, target) + cross,
        output=encoded + decoded,
        reductions=3,
        moment=_moment(architecture, target),
    )
    return (*encoder, between, *decoder, _head(architecture, target))


def _block(architecture: Architecture, rows: int) -> Part:
    """Self-attention and feed-forward."""
    if architecture.position is Position.RELATIVE:
        mixing = relative_attention(architecture, rows=rows)
    elif architecture.kv_rank:
        mixing = latent_attention(architecture, rows=rows)
    else:
        mixing = attention(architecture, rows=rows, keys=rows)
    inner = feedforward(architecture, rows) + Part(keys=shared_keys(architecture, rows=rows))
    return sublayer(architecture, rows, mixing) + sublayer(architecture, rows, inner, second=True)


def _moment(architecture: Architecture, rows: int) -> Moment:
    """What a block's backward pass needs for a moment: in its feed-forward, while all before it is still held; the
    gradient that comes back and the one that is made of it; and that of T5's biases for every sample."""
    biases = bias_held(architecture, rows=rows)
    inner = feedforward_moment(architecture, rows)
    return Moment(split=max(inner, biases), whole=2 * rows * architecture.hidden, held_once=biases)


def _blocks(
    architecture: Architecture,
    name: str,
    count: int,
    part: Part,
    *,
    output: float,
    moment: Moment,
    reductions: int = 2,
) -> list[Layer]:
    """`count` equal blocks; where the stack's first one holds a bias table, it has a shape of its own.

    Tensor parallel splits attention by heads and a rank needs whole key-value heads, so it must divide `kv_heads`,
    which divides `heads`.
    """
    table = bias_table(architecture)
    layers = []
    for index in range(count):
        special = index == 0 and table.params_split > 0
        layers.append(
            (part + table if special else part).layer(
                f"{name} {index}",
                LayerKind.BLOCK,
                shape=f"first {name}" if special else name,
                output=output,
                reductions=reductions,
                head_width=architecture.kv_heads,
                moment=moment if special or not moment.held_once else replace(moment, held_once=0.0),
            )
        )
    return layers


def _head(architecture: Architecture, rows: int) -> Layer:
    """The head sends nothing on; its `output` is the size of what tensor parallel reduces: its input's gradient."""
    return head(architecture, rows).layer(
        "head",
        LayerKind.HEAD,
        shape="head",
        output=rows * architecture.hidden,
        reductions=1,
        tied=token_table(architecture) if architecture.tied else 0,
        moment=Moment(whole=rows * architecture.hidden),
    )


def _check_sequence(architecture: Architecture, sequence: int, what: str) -> None:
    longest = architecture.max_sequence or LONGEST_SEQUENCE
    if not 1 <= sequence <= longest:
        raise InputError(f"{what} is {sequence}; this model takes 1 to {longest} tokens")
