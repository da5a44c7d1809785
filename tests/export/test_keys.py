"""Keys of the mesh are those that WireGuard itself would make; peers are the pairs that talk."""

from __future__ import annotations

import shutil
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace

import pytest
from export_scenes import hall, tiny

from hulk.domain.options import Sharding, Sync
from hulk.errors import InputError
from hulk.export import TARGETS
from hulk.export.keys import SIZE, key_pair
from hulk.export.pairs import pairs_of


@pytest.mark.skipif(shutil.which("wg") is None, reason="needs wireguard-tools")
def test_wireguard_agrees() -> None:
    keys = key_pair(bytes(range(SIZE)))
    said = subprocess.run(["wg", "pubkey"], input=keys.private, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == keys.public


def test_without_the_library_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.x25519", None)
    with pytest.raises(InputError, match="cryptography") as refused:
        TARGETS.get("wireguard").export(tiny())
    assert refused.value.hint == "pip install 'hulk[wireguard]'"


def test_peers_are_the_pairs_that_talk() -> None:
    files = TARGETS.get("wireguard").export(tiny())
    peers = {name: file.text.count("[Peer]") for name, file in files.items() if name.endswith(".conf")}
    assert peers == {"machines/rome-1.conf": 2, "machines/oslo-1.conf": 2, "machines/oslo-2.conf": 2}
    keys = [line.split(" = ")[1] for line in files["machines/rome-1.conf"].text.splitlines() if "Key" in line]
    assert all(len(b64decode(key)) == 32 for key in keys)
    assert not any("PrivateKey" in file.text for name, file in files.items() if not name.endswith(".conf"))


def test_a_ring_has_fewer_pairs_than_weights_sent_to_all() -> None:
    ring = hall("tp8 dp4 mb1")
    assert pairs_of(ring) == [
        ("oslo-1", "oslo-2"), ("oslo-1", "oslo-3"), ("oslo-1", "oslo-4"), ("oslo-2", "oslo-3"), ("oslo-3", "oslo-4"),
    ]  # fmt: skip
    everyone = replace(ring, plan=replace(ring.plan, options=replace(ring.plan.options, sharding=Sharding.OPTIMIZER)))
    assert len(pairs_of(everyone)) == 6
    by_region = replace(ring.plan.options, sync=Sync.BY_REGION)
    assert len(pairs_of(replace(ring, plan=replace(ring.plan, options=by_region)))) == 5
