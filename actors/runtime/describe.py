"""What is kept of an exception: text that can always be stored, whatever the exception is made of."""

from __future__ import annotations

from storage.codec import clean_text

_LEAVES_SHOWN = 5


def describe(error: BaseException) -> str:
    """``Type: text``; the type's name alone where there is no text. Never raises."""
    if isinstance(error, BaseExceptionGroup):
        leaves = _leaves(error)
        more = "" if len(leaves) <= _LEAVES_SHOWN else f" and {len(leaves) - _LEAVES_SHOWN} more"
        return clean_text("; ".join(_one(leaf) for leaf in leaves[:_LEAVES_SHOWN]) + more)
    return _one(error)


def _one(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be read)"
    return clean_text(f"{name}: {text}") if text else name


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    work: list[BaseException] = [group]
    while work:
        error = work.pop()
        if isinstance(error, BaseExceptionGroup):
            work.extend(reversed(error.exceptions))
        else:
            leaves.append(error)
    return leaves
