"""WireGuard: a mesh of the pairs that a plan uses, so that what crosses the open internet is encrypted."""

from __future__ import annotations

from ipaddress import IPv4Address

from hulk.export.files import PRIVATE, File, Files, as_yaml, script
from hulk.export.keys import SIZE, key_pair
from hulk.export.pairs import pairs_of
from hulk.export.scene import Scene, refuse
from hulk.export.shell import HEAD, array, file_name, host_name, word

PORT = 51820
"""WireGuard's usual port; a further job of the same plan has the next one."""
KEEPALIVE = 25
"""Seconds between two signs of life, so that routers keep the way open."""
_MOST = 65_000  # machines of a /16

_UP = """\
# Brings each machine its own configuration over ssh, as root, and {what}. Written by `hulk export`.
#   SSH    the ssh to use
set -uo pipefail
cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")"
{logins}{files}code=0
for i in "${{!logins[@]}}"; do
    "${{SSH:-ssh}}" -o BatchMode=yes -o ConnectTimeout=15 -- "${{logins[$i]}}" \\
        {remote} < {source} || {{ echo "failed: ${{logins[$i]}}" >&2; code=1; }}
done
exit "$code"
"""


def export(scene: Scene) -> Files:
    """A configuration for each machine, which is private to it; scripts that bring them up and take them down; and a
    hosts file for `hulk export --hosts` with the addresses inside the mesh."""
    names = [machine.name for machine in scene.machines]
    if len(names) < 2:
        raise refuse("wireguard", f"the plan uses {names[0]} alone; there is nothing between machines to encrypt")
    if len(names) > _MOST or scene.number > 100:
        raise refuse("wireguard", f"the plan uses {len(names)} machines; a mesh has addresses for {_MOST}")
    interface, port = f"hulk{scene.number}", PORT + scene.number
    start = int(IPv4Address(f"10.{77 + scene.number}.0.0"))
    inside = {name: str(IPv4Address(start + 1 + i)) for i, name in enumerate(names)}
    keys = {name: key_pair(scene.chance(SIZE)) for name in names}
    peers: dict[str, list[str]] = {name: [] for name in names}
    for a, b in pairs_of(scene):
        peers[a].append(b)
        peers[b].append(a)
    files: Files = {}
    for name in names:
        text = f"[Interface]\nPrivateKey = {keys[name].private}\nAddress = {inside[name]}/16\nListenPort = {port}\n"
        for other in peers[name]:
            text += (
                f"\n[Peer]\nPublicKey = {keys[other].public}\nAllowedIPs = {inside[other]}/32\n"
                f"Endpoint = {_endpoint(scene.host(other).address, port)}\nPersistentKeepalive = {KEEPALIVE}\n"
            )
        files[f"machines/{file_name(name)}.conf"] = File(text, PRIVATE)
    hosts = {
        name: {"address": inside[name], "ssh": scene.host(name).login, "node": scene.host(name).node}
        | {"interface": interface}
        for name in names
    }
    return {
        **files,
        "hosts.yaml": as_yaml({"hulk": "hosts/1", "hosts": hosts}),
        "up.sh": script(_script(scene, names, interface, up=True)),
        "down.sh": script(_script(scene, names, interface, up=False)),
    }


def _script(scene: Scene, names: list[str], interface: str, *, up: bool) -> str:
    path = f"/etc/wireguard/{interface}.conf"
    bring = f"sudo install -m 600 /dev/stdin {path} && sudo wg-quick up {interface}"
    take = f"sudo wg-quick down {interface}; sudo rm -f {path}"
    text = _UP.format(
        what="starts the mesh" if up else "takes it away again",
        logins=array("logins", [word(host_name(scene.host(name).login)) for name in names]),
        files=array("files", [word(f"machines/{file_name(name)}.conf") for name in names]) if up else "",
        remote=word(bring if up else take),
        source='"${files[$i]}"' if up else "/dev/null",
    )
    return HEAD + text


def _endpoint(address: str, port: int) -> str:
    host = host_name(address)
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
