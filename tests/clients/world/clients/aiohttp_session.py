import asyncio

import aiohttp
from lines import answer


async def new_session():
    return aiohttp.ClientSession()


with asyncio.Runner() as runner:
    session = runner.run(new_session())

    async def send(method, url, body, headers):
        async with session.request(method, url, data=body, headers=headers) as response:
            return response.status, await response.text(), response.headers.items()

    answer(lambda *arguments: runner.run(send(*arguments)))
    runner.run(session.close())
