"""Functions that a plan names as ``module:function``: found when the plan is read, so a wrong name is found
then too."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

CALL: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class CallUnknown(Exception):
    """No function that takes one argument is there under this name. The text says why."""


def find_call(name: str, folder: Path) -> Callable[..., Any]:
    """The function ``module:function``; ``folder`` is searched before the rest of ``sys.path``, and stays
    on it.

    Importing runs the module's own code: whatever it raises becomes `CallUnknown`.
    """
    if CALL.fullmatch(name) is None:
        raise CallUnknown('must be written "module:function"')
    module_name, _, path = name.partition(":")
    found: Any = _module(module_name, folder)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CallUnknown(f"module {module_name!r} has no {path!r}") from None
    if not callable(found):
        raise CallUnknown(f"{path!r} in module {module_name!r} is not a function")
    _refuse_other_arguments(found, path)
    return found  # type: ignore[no-any-return]  # getattr of whatever the user's module holds


def _module(name: str, folder: Path) -> Any:
    where = str(folder)
    if where not in sys.path:
        sys.path.insert(0, where)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CallUnknown(f"there is no module {error.name!r} in {folder} or on sys.path") from None
        raise CallUnknown(f"module {name!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise CallUnknown(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _refuse_other_arguments(function: Callable[..., Any], path: str) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise CallUnknown(f"{path!r} must take one argument, the context of the attempt") from None
    except ValueError:
        return  # a function without a signature, written in C: calling it will tell
