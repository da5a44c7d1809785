"""Keys of WireGuard: X25519 as RFC 7748 has it, section 5. Made on this computer, by its source of chance.

Python's whole numbers take a time that depends on their value, so this is for making keys, once and locally; traffic is
encrypted by WireGuard's own code.
"""

from __future__ import annotations

from base64 import b64encode

_P = 2**255 - 19
_A24 = 121665


def private_key(chance: bytes) -> bytes:
    """A private key of 32 random bytes: bits that RFC 7748 fixes are set."""
    if len(chance) != 32:
        raise ValueError(f"a key has 32 bytes, not {len(chance)}")
    return bytes([chance[0] & 248, *chance[1:31], (chance[31] & 127) | 64])


def public_key(private: bytes) -> bytes:
    """The public key of a private one."""
    return x25519(private, (9).to_bytes(32, "little"))


def x25519(scalar: bytes, point: bytes) -> bytes:
    """The function of the RFC: a point of the curve times a number, by Montgomery's ladder."""
    k = int.from_bytes(private_key(scalar), "little")
    u = (int.from_bytes(point, "little") & (2**255 - 1)) % _P
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = (k >> t) & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b = x2 + z2, x2 - z2
        aa, bb = a * a % _P, b * b % _P
        e = aa - bb
        da, cb = (x3 - z3) * a % _P, (x3 + z3) * b % _P
        x3, z3 = (da + cb) ** 2 % _P, u * (da - cb) ** 2 % _P
        x2, z2 = aa * bb % _P, e * (aa + _A24 * e) % _P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, _P - 2, _P) % _P).to_bytes(32, "little")


def written(key: bytes) -> str:
    """A key as WireGuard's files have it."""
    return b64encode(key).decode()
