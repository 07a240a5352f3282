import asyncio
from threading import Thread

import aiohttp
from lines import answer

loop = asyncio.new_event_loop()
Thread(target=loop.run_forever, daemon=True).start()


def run(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


async def new_session():
    return aiohttp.ClientSession()


async def send(method, url, body, headers, seconds):
    timeout = aiohttp.ClientTimeout(seconds)
    options = {"data": body, "headers": headers, "timeout": timeout}
    async with session.request(method, url, **options) as response:
        return response.status, await response.text(), response.headers.items()


session = run(new_session())
answer(lambda *arguments: run(send(*arguments)))
run(session.close())
