"""The shape of a transformer: what its parameters, FLOPs and activations are computed from.

An `Architecture` names no file format and no framework. `hulk.io.hf_config` reads one from a Hugging Face config,
`hulk.cost.layers` turns one into a `hulk.domain.model.Model`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hulk.errors import InputError


class Family(StrEnum):
    """Which stacks of blocks a model has."""

    DECODER = "decoder"
    ENCODER = "encoder"
    ENCODER_DECODER = "encoder-decoder"


class Norm(StrEnum):
    """The normalisation: `layer` has a scale and a shift, `rms` a scale only."""

    LAYER = "layer"
    RMS = "rms"


class Position(StrEnum):
    """How a model knows the order of its tokens."""

    LEARNED = "learned"
    """A table with one row a position, added to the embedding."""
    ROTARY = "rotary"
    """Queries and keys are rotated; no parameters."""
    BUCKETS = "buckets"
    """T5: a bias per head and distance bucket on the scores; the first block of each stack holds the table."""
    RELATIVE = "relative"
    """XLNet: every block projects a sinusoid of 2 × sequence rows into keys of its own, and has biases for them."""
    ALIBI = "alibi"
    """A bias on the scores that grows with the distance, fixed for each head; no parameters."""
    NONE = "none"
    """Nothing but the causal mask tells the order."""


class HeadNorm(StrEnum):
    """The norm over each head of the queries and of the keys."""

    NONE = "none"
    PLAIN = "plain"
    """Without parameters (Llama 4)."""
    SCALED = "scaled"
    """One scale for all heads of the queries, one for those of the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Widths are in elements, dropouts are probabilities (0: that dropout is not there and keeps no mask).

    layers              blocks of the only stack; of the decoder in an encoder-decoder
    encoder_layers      blocks of the encoder in an encoder-decoder, else 0
    kv_heads            heads of keys and values: fewer than `heads` in grouped-query attention
    embedding           width of a row of the token table; where it is not `hidden`, products lead in and out (OPT-350m)
    positions           rows of the learned position table (0 without one), of which `position_offset` serve no token
    token_types         rows of the token type (segment) table
    rotary              elements of a head that are rotated (0: all of them)
    unrotated_blocks    numbers of the blocks, from 0, that neither rotate heads nor norm them, in a rotary model
    norm_first          the norm stands before attention and feed-forward (pre-norm), else after the residual
    norm_shift          norms of the kind `layer` have a shift
    outer_norm          a second norm stands between attention or feed-forward and the residual (Gemma 2)
    parallel            attention and feed-forward both read the block's input, their sum is added to it (GPT-NeoX)
    shared_norm         of a parallel block: both read the same norm of it (Falcon-7B)
    fused               norms and attention are one kernel each, and heads need no copies: Hulk's own runtime
    gated               the feed-forward is down(act(gate(x)) * up(x)) rather than down(act(up(x)))
    clamped_gate        gate and up are clamped, and 1 is added to up (gpt-oss)
    activation_keeps_input  backward of the activation needs its input (gelu, silu); relu makes do with its output,
                        which the next product keeps anyway
    head_transform      the head starts with dense, activation and norm (masked language models)
    tied                the output projection shares the token table
    experts             feed-forwards a block chooses from (0: one, no router); each token visits `experts_per_token`
    shared_ffn          width of a further feed-forward that every token visits, beside the experts (0: there is none)
    shared_gate         the output of that feed-forward is weighed by a gate, a product with one column
    dense_blocks        numbers of the blocks, from 0, that have one feed-forward, of width `dense_ffn`, and no experts
    head_norm           a norm over each head of the queries and of the keys
    sinks               every head has a learned score that takes part in the softmax and is dropped then (gpt-oss)
    score_cap           tanh limits the scores before the softmax
    logit_cap           tanh limits the logits
    query_rank          queries are projected to this width and normed before they become heads (0: at once)
    kv_rank             keys and values come from one latent of this width (DeepSeek; 0: each from the hidden state); of
                        a head's `head_dim` elements, `rotary` are rotated, and those of the keys are one for all heads
    value_dim           width of a head of values (0: that of keys, `head_dim`)
    relative_buckets    rows of the T5 bias table
    inner_dropout       dropout between the two products of the feed-forward
    output_dropout      dropout after the last block (and after the final norm)
    """

    family: Family
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    embedding: int
    encoder_layers: int = 0

    position: Position = Position.LEARNED
    positions: int = 0
    position_offset: int = 0
    token_types: int = 0
    relative_buckets: int = 0
    rotary: int = 0
    unrotated_blocks: frozenset[int] = frozenset()

    norm: Norm = Norm.LAYER
    norm_first: bool = True
    norm_shift: bool = True
    outer_norm: bool = False
    parallel: bool = False
    shared_norm: bool = False
    embedding_norm: bool = False
    final_norm: bool = True
    fused: bool = False

    gated: bool = False
    clamped_gate: bool = False
    activation_keeps_input: bool = True
    experts: int = 0
    experts_per_token: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    dense_ffn: int = 0
    dense_blocks: frozenset[int] = frozenset()

    head_norm: HeadNorm = HeadNorm.NONE
    sinks: bool = False
    score_cap: bool = False
    logit_cap: bool = False
    query_rank: int = 0
    kv_rank: int = 0
    value_dim: int = 0

    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    router_bias: bool = False
    head_bias: bool = False
    head_transform: bool = False
    tied: bool = True

    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    embedding_dropout: float = 0.0
    inner_dropout: float = 0.0
    output_dropout: float = 0.0

    def __post_init__(self) -> None:
        """Refuse shapes that no model can have."""
        if self.heads % self.kv_heads:
            raise InputError(f"{self.heads} attention heads cannot share {self.kv_heads} key-value heads evenly")
        if self.experts_per_token > self.experts:
            raise InputError(f"a token cannot visit {self.experts_per_token} of {self.experts} experts")
        if self.experts and not self.experts_per_token:
            raise InputError(f"of {self.experts} experts a token must visit at least one")
        if self.position is Position.LEARNED and self.positions <= self.position_offset:
            raise InputError(f"a position table of {self.positions} rows leaves no position for a token")
        if self.rotary > self.head_dim:
            raise InputError(f"of a head of {self.head_dim} elements, {self.rotary} cannot be rotated")
        if self.kv_rank and self.kv_heads != self.heads:
            raise InputError(f"{self.heads} heads of latent attention cannot have {self.kv_heads} key-value heads")
        if self.dense_blocks and not self.dense_ffn:
            raise InputError("blocks without experts need a width of their feed-forward")

    def of_block(self, number: int) -> Architecture:
        """The architecture with only what the block of that number, from 0, has. Blocks of equal ones are equal."""
        same = self
        if number in self.dense_blocks:
            same = replace(same, ffn=self.dense_ffn, dense_ffn=0, dense_blocks=frozenset())
            same = replace(same, experts=0, experts_per_token=0, shared_ffn=0)
        if number in self.unrotated_blocks:
            same = replace(same, position=Position.NONE, head_norm=HeadNorm.NONE, unrotated_blocks=frozenset())
        return same

    @property
    def as_run(self) -> Architecture:
        """The same model as Hulk's own runtime has it: without dropout, its norms one kernel each."""
        return replace(
            self,
            fused=True,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            embedding_dropout=0.0,
            inner_dropout=0.0,
            output_dropout=0.0,
        )

    @property
    def query_width(self) -> int:
        """Elements of one token's query over all heads; not always `hidden` (T5-11B: 128 heads of 128 on 1024)."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of one token's key, and of its value, over all key-value heads."""
        return self.kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Elements of one token's context over all heads: what attention gives to its output projection."""
        return self.heads * (self.value_dim or self.head_dim)

    @property
    def max_sequence(self) -> int | None:
        """The longest sequence the position table allows; None where positions are computed."""
        return self.positions - self.position_offset if self.position is Position.LEARNED else None
