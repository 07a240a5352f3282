"""FastAPI with pydantic 2, as its documentation shows it, on stock uvicorn."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from peer import DEPRECATED, Headers, RefusedError, Store, check_key, invalid
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

Status = Literal["available", "pending", "sold"]


class NewPet(BaseModel):
    """A pet to be added."""

    model_config = ConfigDict(strict=True, validate_by_name=True)

    name: str
    category_id: Annotated[int, Field(ge=-(2**63), le=2**63 - 1, alias="categoryId")]
    status: Status = None  # type: ignore[assignment] # absent, but never null


class Pet(BaseModel):
    """A pet in the store."""

    model_config = ConfigDict(validate_by_name=True)

    id: int
    name: str
    category_id: Annotated[int, Field(alias="categoryId")]
    status: Status | None = None


async def require_key(authorization: Annotated[str | None, Header()] = None) -> None:
    """Require a key."""
    check_key(authorization)


STORE = Store(
    lambda id_, name, category, status: Pet(id=id_, name=name, category_id=category, status=status)
)
router = APIRouter(dependencies=[Depends(require_key)])


@router.get("/v1/pets", response_model_exclude_none=True)
async def list_pets(
    response: Response,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    status: Status | None = None,
    cursor: Annotated[str | None, Query(pattern="^p[01][0-9a-f]{13}$")] = None,
) -> list[Pet]:
    """Return a page."""
    page, link = STORE.page(limit, status, int(cursor[1:], 16) if cursor else 0)
    if link:
        response.headers["link"] = link
    return page


@router.post("/v1/pets", status_code=201, response_model_exclude_none=True)
async def create_pet(new: NewPet, response: Response) -> Pet:
    """Add a pet."""
    pet: Pet = STORE.add(new.name, new.category_id, new.status)
    response.headers["location"] = f"/v1/pets/{pet.id}"
    return pet


@router.get("/v1/pets/{pet_id}", response_model_exclude_none=True)
async def get_pet(pet_id: Annotated[str, Path()], response: Response) -> Pet:
    """Return one pet."""
    response.headers.update(DEPRECATED)
    pet: Pet = STORE.get(pet_id)
    return pet


app = FastAPI()
app.include_router(router)
app.add_middleware(Headers)


@app.exception_handler(RefusedError)
async def refuse(request: Request, error: Any) -> Response:
    """Respond to an error."""
    if request.url.path.startswith("/v1/pets/"):
        error.headers |= DEPRECATED
    return Response(error.body, error.status, error.headers, "application/json")


@app.exception_handler(RequestValidationError)
async def invalid_request(request: Request, error: RequestValidationError) -> Response:
    """Respond to an invalid request."""
    first = error.errors()[0]
    return await refuse(request, invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}."))


@app.exception_handler(HTTPException)
async def unrouted(request: Request, _: HTTPException) -> Response:
    """Respond to an unknown path."""
    return await refuse(request, RefusedError(404, "not_found", "Path not found."))
