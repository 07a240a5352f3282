import urllib3
from lines import answer

pool = urllib3.PoolManager()


def send(method, url, body, headers):
    response = pool.request(method, url, body=body, headers=headers)
    return response.status, response.data.decode(), response.headers.items()


answer(send)
