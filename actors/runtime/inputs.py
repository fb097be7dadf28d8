"""What a handler is given: the stored texts of its attempt, decoded."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from actors.handlers import Context, WayBack
from storage.codec import decode
from storage.contract.turns import Inputs

from .attempts import Attempt
from .handle import Company
from .services import Services

_NO_UPSTREAM: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def context_of(services: Services, attempt: Attempt, inputs: Inputs, way_back: WayBack) -> Context:
    """Raises ``ValueError`` for a text that cannot be decoded: a row that was not written by Turnkeeper."""
    assert attempt.spec is not None
    company, key = attempt.ref.company, attempt.ref.key
    task_payload = None if inputs.payload is None else decode(inputs.payload)
    own = None if inputs.node_payload is None else decode(inputs.node_payload)
    results = {
        name: decode(text or "null") for name, text in zip(attempt.input_names, inputs.results, strict=True)
    }
    return Context(
        company=Company(services, company),
        task=key.task,
        run=key.run,
        node=attempt.spec.name,
        attempt=key.number,
        generation=attempt.generation,
        payload=task_payload if own is None else own,
        task_payload=task_payload,
        inputs=MappingProxyType(results),
        upstream=_upstream(inputs),
        feedback=attempt.feedback,
        key=f"{company}/{key.task}/{key.run}/{attempt.spec.name}/{attempt.generation}",
        private_folder=services.private_folder,
        way_back=way_back,
    )


def _upstream(inputs: Inputs) -> Mapping[str, Mapping[str, Any]]:
    """The results of the upstream tasks: task → node → result."""
    if not inputs.upstream:
        return _NO_UPSTREAM
    tasks: dict[str, dict[str, Any]] = {}
    for task, node, text in inputs.upstream:
        results = tasks.setdefault(task, {})
        if node is not None:
            results[node] = decode(text or "null")
    return MappingProxyType({task: MappingProxyType(results) for task, results in tasks.items()})
