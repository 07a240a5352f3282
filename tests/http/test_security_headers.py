"""The security headers for browsers."""

from tests.support.services import Live


def test_every_response_has_the_security_headers(fresh: Live) -> None:
    policy = "default-src 'none'; frame-ancestors 'none'"
    for method, path in (
        ("GET", "/v1/pets"),
        ("POST", "/v1/pets"),
        ("OPTIONS", "/v1/pets"),
        ("DELETE", "/v1/pets"),
        ("GET", "/v1/nothing"),
    ):
        response = fresh.client.request(method, path)
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["content-security-policy"] == policy
    for path in ("/livez", "/docs", "/docs/swagger-ui.css", "/openapi.json", "/nothing"):
        assert fresh.client.get(path).headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in fresh.client.get("/docs").headers["content-security-policy"]
    raw = fresh.raw(b"not HTTP\r\n\r\n")
    for line in ("x-content-type-options: nosniff", f"content-security-policy: {policy}"):
        assert f"\r\n{line}\r\n".encode() in raw
