"""A login or a permission that is taken away while the store is open: unavailable until it is back.

At the start the same is an error of the settings: test_address, test_store.
"""

from collections.abc import Iterator, Sequence

import pytest

from backends.redis.tests.servers import Server
from backends.redis.tests.stores import fresh, opened, unavailable, unavailable_for
from backends.redis.tests.topologies import Cluster, Sentinels, url_of
from petstore.contract import Access, Expected, SettingsError
from tests.support.repositories import AT, REX, again, make_token, pets

ALL = "~*", "&*", "+@all"
REFUSED = "the user or the password is refused"


class Place:
    """Servers with a user "rex" whose password is "hunter2"."""

    def __init__(self, group: Server | Sentinels | Cluster) -> None:
        self.url = url_of(group).replace("://", "://rex:hunter2@")
        self._servers: Sequence[Server] = [group] if isinstance(group, Server) else group.nodes

    def allow(self) -> None:
        """Give the user the password and all permissions."""
        self.change("reset", "on", ">hunter2", *ALL)

    def change(self, *rules: str) -> None:
        """Change the user; its connections stay open."""
        for server in self._servers:
            server.call("ACL", "SETUSER", "rex", *rules)

    def disconnect(self) -> None:
        """Close its connections."""
        for server in self._servers:
            server.call("CLIENT", "KILL", "USER", "rex")


@pytest.fixture(
    params=[
        "server",
        *(pytest.param(group, marks=pytest.mark.slow) for group in ("sentinels", "nodes")),
    ]
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(request.getfixturevalue(request.param))
    made.allow()
    yield made
    made.change("reset")


@pytest.mark.parametrize("rules", [("resetpass", ">other"), ("off",)], ids=["changed", "off"])
async def test_a_refused_login_is_unavailable_until_it_is_allowed_again(
    place: Place, rules: tuple[str, ...]
) -> None:
    async with opened(place.url, partitions=2) as repository:
        pet = await repository.create_pet(REX)
        place.change(*rules)
        place.disconnect()
        await unavailable_for(REFUSED, lambda: repository.get_pet(pet.id))
        for call in (
            pets(repository),
            repository.create_pet(REX, make_token(1)),
            repository.place_order(pet.id, AT),
        ):
            message = await unavailable(call)
            assert REFUSED in message
            assert "hunter2" not in message
        with pytest.raises(SettingsError, match=REFUSED):
            async with opened(place.url):
                pass
        place.allow()
        await again(lambda: repository.place_order(pet.id, AT))
        assert [found.id for found in await again(lambda: pets(repository))] == [pet.id]


@pytest.mark.parametrize("rules", [("-@scripting",), ("resetkeys", "%R~*")])
async def test_a_login_that_may_only_read_is_refused_at_the_start_unless_nothing_is_written(
    place: Place, rules: tuple[str, ...]
) -> None:
    prefix = fresh()
    async with opened(place.url, prefix=prefix):
        pass
    place.change(*rules)
    with pytest.raises(SettingsError, match="NOPERM"):
        async with opened(place.url, prefix=prefix):
            pass
    reading = Expected(access=Access.READ)
    async with opened(place.url, prefix=prefix, expected=reading) as repository:
        assert await pets(repository) == []


@pytest.mark.parametrize("rule", ["-@all", "-zadd"], ids=["all", "in a script"])
@pytest.mark.parametrize(
    "place", ["server", pytest.param("redis", marks=pytest.mark.slow)], indirect=True
)
async def test_a_permission_that_is_taken_from_open_connections_is_unavailable_until_it_is_back(
    place: Place, rule: str
) -> None:
    async with opened(place.url, partitions=2) as repository:
        pet = await repository.create_pet(REX)
        await pets(repository)  # connects
        place.change(rule)
        for call in (repository.create_pet(REX), repository.place_order(pet.id, AT)):
            assert REFUSED in await unavailable(call)
        if rule == "-@all":
            assert REFUSED in await unavailable(pets(repository))
            assert REFUSED in await unavailable(repository.get_pet(pet.id))
        else:
            assert len(await pets(repository)) == 1
        place.allow()
        await repository.place_order(pet.id, AT)
        assert len(await pets(repository)) == 1


@pytest.mark.parametrize("place", ["server"], indirect=True)
async def test_a_connection_that_is_no_longer_logged_in_is_replaced(
    place: Place, server: Server
) -> None:
    with server.client(username="rex", password="hunter2") as admin:
        admin.execute_command("ACL", "SETUSER", "default", "off")
        try:
            async with opened(place.url) as repository:
                await repository.create_pet(REX)
                pages = repository._masters.owners[0].pages  # noqa: SLF001 - to log it out
                await pages.call("RESET")
                assert "NOAUTH" in await unavailable(pets(repository))
                await again(lambda: repository.create_pet(REX))
                assert len(await pets(repository)) == 2
        finally:
            admin.execute_command("ACL", "SETUSER", "default", "on")
