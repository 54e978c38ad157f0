# SPDX-License-Identifier: Apache-2.0
"""An address of a service: what comes to PORT here goes to the same port of HOST."""

import asyncio
import contextlib
import sys


async def pass_on(reader, writer):
    with contextlib.suppress(ConnectionError), contextlib.closing(writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def main(host, port):
    async def serve(reader, writer):
        try:
            its_reader, its_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
        else:
            await asyncio.gather(pass_on(reader, its_writer), pass_on(its_reader, writer))

    async with await asyncio.start_server(serve, port=port) as server:
        print("ready", flush=True)
        await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
