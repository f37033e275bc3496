"""A webhook that allows everything, as a process of its own: `python -m bench.hook CERT KEY` prints the port that it listens on."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys

ANSWER = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%s","allowed":true}}'


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Every request of a connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            [length] = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")]
            review = json.loads(await reader.readexactly(length))
            body = ANSWER % review["request"]["uid"].encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
    except asyncio.IncompleteReadError:
        writer.close()


async def main() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[1:3])
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
