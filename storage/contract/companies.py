"""Companies: claiming, finding and listing them."""

from __future__ import annotations

from storage.records import CompanyRecord
from storage.values import value

from .store import Operation, Query


@value
class ClaimCompany(Operation[CompanyRecord | None]):
    """Become the company's actor: its epoch rises, so that every earlier claim is stale.

    ``create``: make the company if there is none; without it the answer is ``None`` then.
    """

    name: str
    create: bool


@value
class FindCompany(Query[CompanyRecord | None]):
    """The company of this name; ``None`` if there is none."""

    name: str


@value
class ListCompanies(Query[tuple[str, ...]]):
    """Names of all companies, sorted."""
