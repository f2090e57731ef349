"""Several options of a command as one parameter of its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])


def passing(function: F, name: str, build: Callable[..., Any], parameters: tuple[str, ...]) -> F:
    """Return a command's function that gets what `build` makes of several parameters as one, with this name."""

    def wrapped(**given: Any) -> Any:
        given[name] = build(**{parameter: given.pop(parameter) for parameter in parameters})
        return function(**given)

    wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
    wrapped.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    return wrapped  # type: ignore[return-value]


def is_given(name: str) -> bool:
    """Return whether the user has set the parameter `name` of the command that runs."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT
