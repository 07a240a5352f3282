from http.client import HTTPConnection
from urllib.parse import urlsplit

from lines import answer

connections = {}


def send(method, url, body, headers):
    _, address, path, query, _ = urlsplit(url)
    connection = connections.setdefault(address, HTTPConnection(address))
    connection.request(method, f"{path}?{query}" if query else path, body, headers)
    response = connection.getresponse()
    return response.status, response.read().decode(), response.getheaders()


answer(send)
