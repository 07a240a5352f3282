import httpx
from lines import answer

client = httpx.Client()


def send(method, url, body, headers):
    response = client.request(method, url, content=body, headers=headers)
    return response.status_code, response.text, response.headers.multi_items()


answer(send)
