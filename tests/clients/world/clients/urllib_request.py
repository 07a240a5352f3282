from urllib.error import HTTPError
from urllib.request import Request, urlopen

from lines import answer


def send(method, url, body, headers):
    try:
        response = urlopen(Request(url, body, headers, method=method))
    except HTTPError as error:
        response = error
    with response:
        return response.status, response.read().decode(), response.headers.items()


answer(send)
