"""A web service with a task queue inside: ``POST /COMPANY`` submits a task, ``GET /COMPANY/TASK`` reports on it.

Run it with ``python -m examples.web_host [DATABASE [PORT]]``. To need no other package it speaks just enough
HTTP itself; with a web framework the two functions `submit` and `report` stay as they are.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import trio

from actors import Context, Refused, Runtime, Submit, TurnkeeperError, open_runtime

HEAD_BYTES_MAX = 16_384
BODY_BYTES_MAX = 1_000_000
PATIENCE_S = 10.0
Answer = tuple[int, dict[str, Any]]


async def greet(ctx: Context) -> str:
    return f"Hello {ctx.payload['name']}"


async def submit(runtime: Runtime, company: str, wanted: dict[str, Any], key: str | None) -> Answer:
    """Store the task; the same ``Idempotency-Key`` stores it once."""
    task = Submit("Greet", handler="greet", payload={"name": str(wanted["name"])}, key=key)
    stored = await runtime.company(company).ask(task)
    return 200 if stored.existing else 201, {"task": stored.id}


async def report(runtime: Runtime, company: str, task: str) -> Answer:
    status = await runtime.company(company).status(task)
    result = await runtime.company(company).result(task)
    return 200, {"state": status.state.value, "result": dict(result)}


async def answer(runtime: Runtime, method: str, path: str, key: str | None, body: bytes) -> Answer:
    """Route a request. What the sender got wrong is told with its text; nothing changes."""
    try:
        match method, path.strip("/").split("/"):
            case "POST", [company]:
                return await submit(runtime, company, json.loads(body), key)
            case "GET", [company, task]:
                return await report(runtime, company, task)
            case _:
                return 404, {"error": "POST /COMPANY or GET /COMPANY/TASK"}
    except Refused as refusal:
        return 409, {"error": str(refusal)}
    except (TurnkeeperError, ValueError, KeyError, TypeError) as error:
        return 400, {"error": str(error)}


async def serve(runtime: Runtime, stream: trio.SocketStream) -> None:
    """One request of one connection."""
    with trio.move_on_after(PATIENCE_S):
        async with stream:
            head, body = await _until_blank_line(stream)
            first, *lines = head.decode("latin-1").split("\r\n")
            method, path, *_ = [*first.split(" "), "", ""]
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            length = headers.get("content-length", "0")
            wanted = min(int(length) if length.isdecimal() else 0, BODY_BYTES_MAX)
            while len(body) < wanted:
                more = await stream.receive_some()
                if not more:
                    return
                body += more
            status, said = await answer(runtime, method, path, headers.get("idempotency-key"), body)
            text = json.dumps(said).encode()
            lead = f"HTTP/1.1 {status} .\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
            await stream.send_all(lead.encode() + text)


async def _until_blank_line(stream: trio.SocketStream) -> tuple[bytes, bytes]:
    """The head of a request, and what came after it."""
    got = b""
    while b"\r\n\r\n" not in got and len(got) < HEAD_BYTES_MAX:
        more = await stream.receive_some()
        if not more:
            break
        got += more
    head, _, rest = got.partition(b"\r\n\r\n")
    return head, rest


async def host(
    database: str, port: int, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled. Reports the port once connections are taken."""
    async with open_runtime(database, handlers={"greet": greet}) as runtime:
        (listener, *_) = await trio.open_tcp_listeners(port, host="127.0.0.1")
        task_status.started(listener.socket.getsockname()[1])
        await trio.serve_listeners(partial(serve, runtime), [listener])


if __name__ == "__main__":
    arguments = sys.argv[1:] + ["web.db", "8080"][len(sys.argv) - 1 :]
    print(f"http://127.0.0.1:{arguments[1]}")
    trio.run(host, arguments[0], int(arguments[1]))
