"""The two ends of a model: embedding, and head with the loss. Units: elements, per sample."""

from __future__ import annotations

from hulk.cost.layers.operations import activation, dropout, norm, product
from hulk.cost.layers.part import NOTHING, Part, total
from hulk.domain.architecture import Architecture, Family, Position
from hulk.domain.model import Split


def token_table(architecture: Architecture) -> int:
    """Parameters of the token embedding, which a tied head shares."""
    return architecture.vocab * architecture.embedding


def embedding(architecture: Architecture, rows: int) -> Part:
    """Token, position and type embeddings with their norm and dropout.

    The token table is split over the vocabulary, the small tables are on every rank. Held: the output; a norm's and a
    projection's input.
    """
    hidden, width = architecture.hidden, architecture.embedding
    elements = rows * hidden
    projection = NOTHING if width == hidden else product(rows, width, hidden, split=Split.NONE)
    return total(
        (
            _lookup(architecture, rows),
            projection,
            _added_table(architecture.positions, hidden, rows),
            _added_table(architecture.token_types, hidden, rows),
            _sinusoid(architecture, rows),
            norm(architecture, rows) if architecture.embedding_norm else NOTHING,
            dropout(elements, architecture.embedding_dropout),
            Part(held_whole=elements),
        )
    )


def decoder_embedding(architecture: Architecture, *, rows: int, encoder_rows: int) -> Part:
    """Between encoder and decoder: the encoder's final norm and dropout, and the decoder's token embedding, whose
    table is the encoder's. Held: the norm's input, the encoder's output and the embedded tokens."""
    elements, encoder_elements = rows * architecture.hidden, encoder_rows * architecture.hidden
    return total(
        (
            norm(architecture, encoder_rows),
            dropout(encoder_elements, architecture.output_dropout),
            _lookup(architecture, rows),
            dropout(elements, architecture.embedding_dropout),
            Part(held_whole=elements + encoder_elements),
        )
    )


def head(architecture: Architecture, rows: int) -> Part:
    """Final norm, the masked language model's transform, output projection and loss over every position.

    Held: the input of each product and norm; of the logits (s × vocab, split) two copies, the logits themselves and
    their softmax.
    """
    hidden, width, vocab = architecture.hidden, architecture.embedding, architecture.vocab
    elements, logits = rows * hidden, rows * vocab
    return total(
        (
            norm(architecture, rows) if architecture.final_norm else NOTHING,
            dropout(elements, architecture.output_dropout),
            # T5 scales the last hidden state before a tied projection
            Part(moved_whole=2 * elements, kernels=1) if architecture.family is Family.ENCODER_DECODER else NOTHING,
            _transform(architecture, rows) if architecture.head_transform else NOTHING,
            NOTHING if width == hidden else product(rows, hidden, width, split=Split.NONE),
            product(rows, width, vocab, split=Split.COLUMNS, bias=architecture.head_bias),
            # divide, tanh, multiply; tanh keeps its output
            Part(held_split=logits, moved_split=6 * logits, kernels=3) if architecture.logit_cap else NOTHING,
            # to fp32 (2), log-softmax (2), picking the labels' (1 read at most)
            Part(held_split=2 * logits, moved_split=5 * logits, kernels=4, logits=logits),
        )
    )


def _lookup(architecture: Architecture, rows: int) -> Part:
    """Rows of the token table: a read and a write each."""
    return Part(
        params_split=token_table(architecture),
        moved_whole=2 * rows * architecture.embedding,
        kernels=1,
    )


def _added_table(table_rows: int, hidden: int, rows: int) -> Part:
    """A small table whose rows are looked up (2) and added (3)."""
    if table_rows == 0:
        return NOTHING
    return Part(params_whole=table_rows * hidden, moved_whole=5 * rows * hidden, kernels=2)


def _sinusoid(architecture: Architecture, rows: int) -> Part:
    """XLNet's 2·s position rows (made once, held for all blocks), their dropout, and the embedding of masked tokens."""
    if architecture.position is not Position.RELATIVE:
        return NOTHING
    elements = 2 * rows * architecture.hidden
    made = Part(params_whole=architecture.hidden, held_whole=elements, moved_whole=4 * elements, kernels=8)
    return made + dropout(elements, architecture.embedding_dropout)


def _transform(architecture: Architecture, rows: int) -> Part:
    """dense, activation, norm: small, so on every rank (Megatron does the same)."""
    hidden = architecture.hidden
    return total(
        (
            product(rows, hidden, hidden, split=Split.NONE, bias=True),
            # the activation's output is the norm's input, held there
            activation(rows * hidden, holds=architecture.activation_keeps_input, split=False),
            norm(architecture, rows),
        )
    )
