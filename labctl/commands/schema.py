"""`labctl schema`: what a file may say, as JSON Schema, from the model by which the file is read."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

import msgspec
import typer
from msgspec import Struct, structs

from labctl.output import Output

Kind = Literal["experiment", "testbed", "claims", "topology"]
EPILOG = "Example: labctl schema experiment > experiment.schema.json"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def command(kind: Annotated[Kind, typer.Argument(help="What the file describes.")]) -> None:
    """Print the JSON Schema of a kind of file, by which an editor completes and checks it.

    Save it beside the file and name it in the file's first line; editors with yaml-language-server (VS Code with
    the YAML extension, Neovim, Emacs, Helix) take it from there:

    # yaml-language-server: $schema=experiment.schema.json
    """
    Output(json=True).document(schema(kind))


def schema(kind: Kind) -> dict[str, Any]:
    """The model's, in which the text below a field is its description."""
    model = model_of(kind)
    found: dict[str, Any] = msgspec.json.schema(model)
    for struct in set(structs_of(model)):
        definition = found["$defs"][struct.__name__]
        definition["description"] = inspect.getdoc(struct)
        for name, text in _descriptions(struct).items():
            definition["properties"][name]["description"] = text
    return {"$schema": DRAFT, "title": f"labctl {kind}", **found}


def model_of(kind: Kind) -> Any:
    # Imported when asked for: what reads claims takes long to load.
    if kind == "experiment":
        from labctl.experiment.experiment import ExperimentFile

        return ExperimentFile
    if kind == "testbed":
        from labctl.testbeds.testbed_file import BedFile

        return BedFile
    if kind == "claims":
        from labctl.report.judgement.claims import ClaimsFile

        return ClaimsFile
    from labctl.topology import TopologyFile

    return TopologyFile


def structs_of(model: Any) -> Iterator[type[Struct]]:
    """Every struct that a type is made of."""
    if isinstance(model, type) and issubclass(model, Struct):
        yield model
        for field in structs.fields(model):
            yield from structs_of(field.type)
    for part in get_args(model):
        yield from structs_of(part)


def _descriptions(struct: type[Struct]) -> dict[str, str]:
    """The texts below fields, also those of its bases, by the names that the file has for the fields."""
    names = {field.name: field.encode_name for field in structs.fields(struct)}
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if issubclass(base, Struct) and base is not Struct:
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(definition, ast.ClassDef)
            for field, text in pairwise(definition.body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(value))):
                        found[names[name]] = inspect.cleandoc(value)
    return found
