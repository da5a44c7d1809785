"""Agents answer those who know the token, and nobody else; messages cannot be made up on the way."""

from __future__ import annotations

import json
import socket
import struct
import threading

import pytest
from agents import TOKEN, running, token_file

from hulk.errors import InputError
from hulk.probe import wire
from hulk.probe.agent import Agent, listen
from hulk.probe.token import read_token
from hulk.probe.wire import WireError, call


def say(link: socket.socket, message: object) -> None:
    body = json.dumps(message).encode()
    link.sendall(struct.pack("!I", len(body)) + body)


def hear(link: socket.socket) -> dict:
    (length,) = struct.unpack("!I", wire.exactly(link, 4))
    return json.loads(wire.exactly(link, length))


def connected(agent: Agent) -> socket.socket:
    link = socket.create_connection(agent.address, timeout=10)
    assert hear(link)["hulk"] == wire.PROTOCOL
    return link


def gone(link: socket.socket) -> bool:
    """Whether the other side has hung up without another word."""
    try:
        return link.recv(1) == b""
    except ConnectionResetError:
        return True


def test_who_knows_the_token_is_answered():
    with running(1) as (agent,):
        channel = call(agent.address, TOKEN)
        channel.send({"do": "facts"})
        facts = channel.receive(10)["facts"]
        channel.close()
    assert facts["cores"] >= 1
    assert facts["hostname"] == socket.gethostname()


def test_another_token_is_refused_on_both_sides():
    with running(1) as (agent,):
        with pytest.raises(WireError, match="another token") as refused:
            call(agent.address, b"some other token of that length")
        assert refused.value.reason == "token"


def test_an_agent_that_does_not_know_the_token_is_not_believed():
    server = socket.create_server(("127.0.0.1", 0))

    def impostor() -> None:
        link, _ = server.accept()
        link.settimeout(10)
        say(link, {"hulk": wire.PROTOCOL, "version": "0", "nonce": "00"})
        heard = hear(link)
        say(link, {"proof": heard["proof"]})  # what the caller has proved, sent back to it

    thread = threading.Thread(target=impostor)
    thread.start()
    with pytest.raises(WireError, match="another token"):
        call(server.getsockname(), TOKEN)
    thread.join(10)
    server.close()


@pytest.mark.parametrize(
    "first",
    [
        {},
        {"nonce": "ab"},
        {"nonce": "ab", "proof": 7},
        {"nonce": "ab", "proof": "é"},
        {"nonce": [], "proof": "00" * 32},
    ],
)
def test_a_caller_without_a_proof_hears_no_more_than_that(first):
    with running(1) as (agent,):
        link = connected(agent)
        say(link, first)
        assert hear(link) == {"error": "token"}
        assert gone(link)


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.0\r\n\r\n" * 4, struct.pack("!I", 2**31), b"\0\0\0\5hello"])
def test_noise_is_hung_up_on(raw):
    with running(1) as (agent,):
        link = connected(agent)
        link.sendall(raw)
        assert gone(link)


def test_a_message_that_was_changed_or_comes_again_is_refused():
    ours, theirs = socket.socketpair()
    sender = wire.Channel(ours, b"key", b"caller", b"agent")
    receiver = wire.Channel(theirs, b"key", b"agent", b"caller")
    sender.send({"do": "facts"})
    assert receiver.receive(5) == {"do": "facts"}
    sender.sent = 0  # the same message once more
    sender.send({"do": "facts"})
    with pytest.raises(WireError, match="changed"):
        receiver.receive(5)
    sender.key = b"other"
    sender.sent = 1
    sender.send({"do": "facts"})
    with pytest.raises(WireError, match="changed"):
        receiver.receive(5)


def test_another_version_and_another_program_are_told_apart(monkeypatch):
    with running(1) as (agent,):
        monkeypatch.setattr(wire, "PROTOCOL", "probe/0")  # the thread of the agent sees the same module
        with pytest.raises(WireError) as other:
            wire.check_greeting({"hulk": "probe/1", "version": "9.9"})
        assert other.value.reason == "version"
        assert "9.9" in str(other.value)
        del agent
    server = socket.create_server(("127.0.0.1", 0))

    def web() -> None:
        link, _ = server.accept()
        link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)

    thread = threading.Thread(target=web)
    thread.start()
    with pytest.raises(WireError, match="no agent of hulk probe"):
        call(server.getsockname(), TOKEN)
    thread.join(10)
    server.close()


def test_nothing_listens_afterwards():
    with running(1) as (agent,):
        address = agent.address
        held = call(address, TOKEN)
    with pytest.raises(WireError) as refused:
        call(address, TOKEN)
    assert refused.value.reason == "refused"
    with pytest.raises(WireError):
        held.receive(5)


def test_it_ends_after_its_time():
    agent = Agent(listen("127.0.0.1", 0), TOKEN)
    agent.serve(0.05)
    with pytest.raises(WireError):
        call(agent.address if agent.listener.fileno() >= 0 else ("127.0.0.1", 9), TOKEN, 1.0)


def test_a_port_in_use_is_said_to_be():
    first = listen("127.0.0.1", 0)
    with pytest.raises(InputError, match="in use"):
        listen("127.0.0.1", first.getsockname()[1])
    first.close()
    with pytest.raises(InputError, match=r"no address 192\.0\.2\.1"):
        listen("192.0.2.1", 0)
    with pytest.raises(InputError, match="is no address"):
        listen("no such host!", 0)


def test_a_token_is_for_its_owner_and_long_enough(tmp_path):
    assert read_token(token_file(tmp_path)) == TOKEN
    with pytest.raises(InputError, match="others may use this token"):
        read_token(token_file(tmp_path, mode=0o640))
    with pytest.raises(InputError, match="needs 16 or more"):
        read_token(token_file(tmp_path, b"short"))
    with pytest.raises(InputError, match="no such file"):
        read_token(tmp_path / "none")
