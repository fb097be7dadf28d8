"""What is kept of an exception: text that can always be stored, whatever the exception is made of."""

from __future__ import annotations

from collections.abc import Sequence

from storage.codec import clean_text

_LEAVES_SHOWN = 5


def describe(error: BaseException) -> str:
    """``Type: text``; the type's name alone where there is no text. Never raises."""
    return describe_all(leaves_of(error))


def describe_all(leaves: Sequence[BaseException]) -> str:
    """`describe` for several errors at once: the first few, and how many more."""
    more = "" if len(leaves) <= _LEAVES_SHOWN else f" and {len(leaves) - _LEAVES_SHOWN} more"
    return clean_text("; ".join(_one(leaf) for leaf in leaves[:_LEAVES_SHOWN]) + more)


def leaves_of(error: BaseException) -> list[BaseException]:
    """The errors in a group, however deep, in their order; an error that is no group is its own leaf."""
    leaves: list[BaseException] = []
    work = [error]
    while work:
        current = work.pop()
        if isinstance(current, BaseExceptionGroup):
            work.extend(reversed(current.exceptions))
        else:
            leaves.append(current)
    return leaves


def _one(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:  # its text is only asked for; whatever it raises is not meant for us
        text = "(its text cannot be read)"
    return clean_text(f"{name}: {text}") if text else name
