import httpx
from lines import answer

client = httpx.Client()


def send(method, url, body, headers, seconds):
    response = client.request(method, url, content=body, headers=headers, timeout=seconds)
    return response.status_code, response.text, response.headers.multi_items()


answer(send)
