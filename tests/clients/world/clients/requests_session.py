import requests
from lines import answer

session = requests.Session()


def send(method, url, body, headers, seconds):
    response = session.request(method, url, data=body, headers=headers, timeout=seconds)
    return response.status_code, response.text, response.headers.items()


answer(send)
