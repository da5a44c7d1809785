"""Keys of WireGuard, made on this computer by the library `cryptography`."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

from hulk.errors import InputError

SIZE = 32
"""Bytes of a key."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A machine's keys, as WireGuard's files have them."""

    private: str
    public: str


def key_pair(chance: bytes) -> KeyPair:
    """The keys that 32 random bytes make."""
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    except ImportError as error:
        raise InputError(
            "making keys of WireGuard needs the package cryptography", hint="pip install 'hulk[wireguard]'"
        ) from error
    # Bits that RFC 7748, section 5, fixes are set beforehand: `wg` shows keys so.
    private = bytes([chance[0] & 248, *chance[1 : SIZE - 1], (chance[SIZE - 1] & 127) | 64])
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return KeyPair(b64encode(private).decode(), b64encode(public).decode())
