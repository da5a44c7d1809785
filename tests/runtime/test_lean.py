"""The runtime's own loss, attention and weights compute what torch's and transformers' do, and keep less."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("number", ["float32", "bfloat16"])
def test_the_loss_is_cross_entropy(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hulk.runtime import loss
    from hulk.runtime.data import IGNORED

    monkeypatch.setattr(loss, "LOSS_CHUNK", 3 * 50)  # several chunks, the last one shorter
    torch.manual_seed(0)
    logits = (3 * torch.randn(2, 10, 50)).to(getattr(torch, number))
    labels = torch.randint(0, 50, (2, 10))
    labels[0, 3] = labels[1, 7] = IGNORED
    plain = logits.float().clone().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(
        plain.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    (wanted / 7).backward()
    own = logits.detach().clone().requires_grad_()
    held = own * 1  # as a head gives it: not a leaf
    found = loss.summed_loss(held, labels)
    (found / 7).backward()
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), rel=1e-6)
    close = 1e-6 if number == "float32" else 1e-3
    assert torch.allclose(own.grad.float(), plain.grad, atol=close, rtol=1e-5 if number == "float32" else 2e-2)
    assert torch.equal(held.detach(), own.grad), "the gradient is to take the logits' place"


def test_gradients_of_16_bit_weights_add_up_in_fp32() -> None:
    from hulk.runtime.store import Store

    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    other = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    exact = {"mine": torch.full((4,), 1.0009765625), "theirs": torch.ones(4)}
    store = Store({"mine": weight, "theirs": other}, exact, mine=lambda name: name == "mine")
    passed: list[str] = []
    store.watch(passed.append)
    for size in (256.0, 0.5):  # their sum is no 16-bit number
        ((weight + other) * size).sum().backward()
    assert sorted(passed) == ["mine", "mine", "theirs", "theirs"]
    assert weight.grad is None and list(store.masters) == ["mine"]
    assert torch.equal(store.gradient("mine"), torch.full((4,), 256.5))
    assert torch.equal(store.gradient("theirs"), torch.full((4,), 256.5))
    optimizer = torch.optim.SGD(list(store.masters.values()), lr=1e-5)
    optimizer.step()
    store.settle()
    assert float(store.masters["mine"].detach()[0]) == pytest.approx(1.0009765625 - 256.5e-5, abs=1e-7)
    assert torch.equal(weight.detach(), store.masters["mine"].detach().to(torch.bfloat16))
    assert not store.gradient("mine").any()


@pytest.mark.parametrize("window", [None, 4])
def test_gpt_neo_attends_as_transformers_does(window: int | None) -> None:
    from transformers import GPTNeoConfig
    from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

    from hulk.runtime.models.base import LayerModule
    from hulk.runtime.models.lean import fused

    config = GPTNeoConfig(hidden_size=32, num_layers=1, num_heads=4, attention_types=[[["global"], 1]], window_size=4)
    torch.manual_seed(0)
    reference = GPTNeoSelfAttention(config, "global" if window is None else "local").eval()
    query, key, value = (torch.randn(2, 4, 12, 8) for _ in range(3))
    mask = None if window is None else LayerModule().mask(12, query, window)
    wanted, _ = reference._attn(query, key, value)
    assert torch.allclose(fused(query, key, value, mask=mask, causal=mask is None, scale=1.0), wanted, atol=1e-5)
