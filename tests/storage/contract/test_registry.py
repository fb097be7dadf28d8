"""Every type of the contract is served by the engine, and nothing else is."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import storage.contract
from storage.contract.store import CompanyOperation, Operation, Query
from storage.sqlite.engine import OPERATIONS, QUERIES

for module in pkgutil.iter_modules(storage.contract.__path__):
    importlib.import_module(f"storage.contract.{module.name}")


def all_of(kind: type[Any]) -> set[type[Any]]:
    """The types of the contract that are of this kind."""
    return {each for each in _below(kind) if each.__module__.startswith("storage.contract.")} - {
        CompanyOperation
    }


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def test_every_operation_is_carried_out_and_every_query_answered() -> None:
    served = {kind for kind in (*OPERATIONS, *QUERIES) if kind.__module__.startswith("storage.")}
    assert served == all_of(Operation) | all_of(Query)


def test_every_type_of_the_contract_says_what_it_does() -> None:
    silent = {kind.__name__ for kind in all_of(Operation) | all_of(Query) if not (kind.__doc__ or "").strip()}
    assert silent == set()
