"""FastAPI with SQLAlchemy's asyncio sessions, as their documentation shows them.

It runs as `fastapi_app` does, with the address of a database in DATABASE_URL.
"""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.exceptions import RequestValidationError
from fastapi_app import NewPet, Pet, invalid_request, refuse, require_key, unrouted
from peer import DEPRECATED, Headers, RefusedError, not_available, pet_id
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import BigInteger, DateTime, ForeignKey, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from starlette.exceptions import HTTPException


class Base(DeclarativeBase):
    """The tables."""


class PetModel(Base):
    """A row."""

    __tablename__ = "pets"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    name: Mapped[str]
    category_id: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[str | None]


class OrderModel(Base):
    """A row."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    pet_id: Mapped[int] = mapped_column(ForeignKey("pets.id"))
    status: Mapped[str]
    placed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class NewOrder(BaseModel):
    """An order to be placed."""

    model_config = ConfigDict(strict=True)

    pet_id: Annotated[int, Field(ge=-(2**63), le=2**63 - 1, alias="petId")]


class Order(BaseModel):
    """An order of a pet."""

    model_config = ConfigDict(validate_by_name=True)

    id: int
    pet_id: Annotated[int, Field(alias="petId")]
    status: str
    placed_at: Annotated[datetime, Field(alias="placedAt")]


engine = create_async_engine(
    os.environ["DATABASE_URL"].replace("postgresql:", "postgresql+asyncpg:")
)
sessions = async_sessionmaker(engine, expire_on_commit=False)
router = APIRouter(dependencies=[Depends(require_key)])


async def open_session() -> AsyncIterator[AsyncSession]:
    """Open a session for a request."""
    async with sessions() as session:
        yield session


Session = Annotated[AsyncSession, Depends(open_session)]


@router.post("/v1/pets", status_code=201, response_model_exclude_none=True)
async def create_pet(new: NewPet, response: Response, session: Session) -> Pet:
    """Add a pet."""
    row = PetModel(**new.model_dump())
    session.add(row)
    await session.commit()
    response.headers["location"] = f"/v1/pets/{row.id}"
    return to_pet(row)


@router.get("/v1/pets/{text}", response_model_exclude_none=True)
async def get_pet(text: str, response: Response, session: Session) -> Pet:
    """Return one pet."""
    response.headers.update(DEPRECATED)
    row = await session.get(PetModel, pet_id(text))
    if row is None:
        raise RefusedError(404, "not_found", "Pet not found.")
    return to_pet(row)


@router.post("/v1/store/orders", status_code=201)
async def place_order(new: NewOrder, response: Response, session: Session) -> Order:
    """Make a pet pending and store its order, in one transaction."""
    available = PetModel.id == new.pet_id, PetModel.status == "available"
    found = await session.execute(update(PetModel).where(*available).values(status="pending"))
    if not found.rowcount:
        raise not_available(await session.get(PetModel, new.pet_id))
    row = OrderModel(pet_id=new.pet_id, status="placed", placed_at=datetime.now(UTC))
    session.add(row)
    await session.commit()
    response.headers["location"] = f"/v1/store/orders/{row.id}"
    return Order(id=row.id, pet_id=row.pet_id, status=row.status, placed_at=row.placed_at)


def to_pet(row: PetModel) -> Pet:
    """Return the pet of a row."""
    return Pet(id=row.id, name=row.name, category_id=row.category_id, status=row.status)


app = FastAPI()
app.include_router(router)
app.add_middleware(Headers)
app.add_exception_handler(RefusedError, refuse)
app.add_exception_handler(RequestValidationError, invalid_request)
app.add_exception_handler(HTTPException, unrouted)
