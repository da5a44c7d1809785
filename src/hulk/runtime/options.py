"""`Settings` on the command line: typer options made of its fields, for `hulk run` and for a worker. Works without
torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import typer
from pydantic.fields import FieldInfo

from hulk.runtime.settings import Settings, option_of

Command = Callable[..., None]
_PLAIN = (bool, int, float, Path)
"""Types that typer reads; of all others it reads a text, which `Settings` understands or refuses."""


def takes_settings(*, without: Collection[str] = (), also_fields: bool = False) -> Callable[[Command], Command]:
    """A command whose parameter `settings` is made of options: one for each field but those named in `without`. Only
    what was given counts as set (`model_fields_set`). `also_fields`: the fields' own names are options too."""

    def wrap(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        made = list(_options(without, also_fields=also_fields))
        parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        for parameter in own.parameters.values():
            parameters += made if parameter.name == "settings" else [parameter]

        @wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            found = {option.name: values.pop(option.name) for option in made}
            given = {name: value for name, value in found.items() if _is_given(context, name)}
            command(**values, settings=Settings.of(given))

        signature = own.replace(parameters=[p.replace(kind=p.KEYWORD_ONLY) for p in parameters])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return run

    return wrap


def arguments_of(settings: Settings) -> list[str]:
    """The arguments of a worker with these settings."""
    values = settings.model_dump(mode="json", exclude_defaults=True)
    return [option_of(name) if value is True else f"{option_of(name)}={value}" for name, value in values.items()]


def _options(without: Collection[str], *, also_fields: bool) -> Iterator[inspect.Parameter]:
    for name, field in Settings.model_fields.items():
        if name in without:
            continue
        option = option_of(name)
        names = [f"{option}/--no-{option.removeprefix('--')}" if field.annotation is bool else option]
        if also_fields and field.alias:
            names.append(f"--{name}")
        info = typer.Option(*names, help=field.description, min=_bound(field, "ge"), max=_bound(field, "le"))
        kind = _kind(field)
        default = field.default if kind in _PLAIN or field.default is None else str(field.default)
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind if default is not None else kind | None, info],
        )


def _kind(field: FieldInfo) -> type:
    """What typer reads for a field."""
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 and kinds[0] in _PLAIN else str


def _bound(field: FieldInfo, name: str) -> float | None:
    return next((getattr(limit, name) for limit in field.metadata if hasattr(limit, name)), None)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and not source.name.startswith("DEFAULT")
