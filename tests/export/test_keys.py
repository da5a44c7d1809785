"""Keys of the mesh are X25519's, by the vectors of RFC 7748 and by WireGuard itself; peers are the pairs that talk."""

from __future__ import annotations

import shutil
import subprocess
from base64 import b64decode
from dataclasses import replace

import pytest
from scenes import hall, tiny

from hulk.domain.options import Sharding, Sync
from hulk.export import TARGETS
from hulk.export.pairs import pairs_of
from hulk.export.x25519 import private_key, public_key, written, x25519


@pytest.mark.parametrize(
    ("scalar", "point", "result"),
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
def test_vectors_of_the_rfc(scalar: str, point: str, result: str) -> None:
    assert x25519(bytes.fromhex(scalar), bytes.fromhex(point)).hex() == result


def test_a_thousand_times() -> None:
    k = u = bytes([9]) + bytes(31)
    for _ in range(1000):
        k, u = x25519(k, u), k
    assert k.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


@pytest.mark.skipif(shutil.which("wg") is None, reason="needs wireguard-tools")
def test_wireguard_agrees() -> None:
    key = private_key(bytes(range(32)))
    said = subprocess.run(["wg", "pubkey"], input=written(key), capture_output=True, text=True, check=True)
    assert said.stdout.strip() == written(public_key(key))


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
