"""What a command and a server that stays say to each other: a question with its handles, an answer. JSON, by length."""

from __future__ import annotations

import os
import socket
import struct

import msgspec

from batch_export.errors import RunError

UP = b"up"
"""What a server says once it answers; anything else says why there is none."""
_LENGTH = struct.Struct("!Q")
_AT_MOST_BYTES = 64 << 20
_HANDLES = 3


class Question(msgspec.Struct, frozen=True):
    """What a command wants.

    Attributes:
        circumstances: its own, see `circumstances.py`.
        environment: the variables of its children.
        idle_s: how long the server is to stay after it.
        session: whether it wants a session, and sends the handles for it: the control socket, the lifeline, the log.
    """

    circumstances: dict[str, str]
    environment: dict[str, str]
    idle_s: float
    session: bool


class Answer(msgspec.Struct, frozen=True):
    """What the server is and does.

    Attributes:
        differs: why it cannot serve the command, by name; empty: it can, and a session has begun if one was asked for.
        sessions: how many commands it serves, without this one.
        idle_s: how long it stays without one.
    """

    differs: list[str]
    sessions: int
    idle_s: float


def send(connection: socket.socket, message: msgspec.Struct, handles: list[int] | None = None) -> None:
    """Sends a message.

    Raises:
        OSError: nobody listens.
    """
    data = msgspec.json.encode(message)
    socket.send_fds(connection, [_LENGTH.pack(len(data))], handles or [])
    connection.sendall(data)


def receive_question(connection: socket.socket) -> tuple[Question, list[int]]:
    """Returns a question and its handles, which are the caller's to close.

    Raises:
        RunError: it is none that this version understands; no handle is left open.
    """
    head, handles, _, _ = socket.recv_fds(connection, _LENGTH.size, _HANDLES)
    try:
        question = msgspec.json.decode(_rest(connection, head), type=Question)
        if len(handles) != (_HANDLES if question.session else 0):
            raise RunError("a question came with the wrong handles")
    except (msgspec.MsgspecError, OSError, RunError) as error:
        for handle in handles:
            os.close(handle)
        raise RunError(f"a question was not understood: {error}") from error
    return question, list(handles)


def receive_answer(connection: socket.socket) -> Answer:
    """Returns the answer.

    Raises:
        RunError: there is none that this version understands.
    """
    try:
        return msgspec.json.decode(_rest(connection, connection.recv(_LENGTH.size)), type=Answer)
    except (msgspec.MsgspecError, OSError) as error:
        raise RunError(f"the server did not answer: {error}") from error


def _rest(connection: socket.socket, data: bytes) -> bytes:
    while len(data) < _LENGTH.size:
        data += _some(connection, _LENGTH.size - len(data))
    (length,) = _LENGTH.unpack(data)
    if length > _AT_MOST_BYTES:
        raise RunError(f"a message of {length} bytes")
    body = b""
    while len(body) < length:
        body += _some(connection, length - len(body))
    return body


def _some(connection: socket.socket, count: int) -> bytes:
    data = connection.recv(count)
    if not data:
        raise RunError("the connection was closed")
    return data
