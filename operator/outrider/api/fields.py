"""Bounded scalar types that the models of the resource are made of.

Strings and lists are bounded because the API server refuses a CRD whose CEL rules might cost too much. No floats
anywhere: they do not survive every client, and comparing them in Git is a nuisance; hence milliseconds and percent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, WithJsonSchema

from outrider.api.rules import Part, Rule, entries_matching, judged, matching, refusing


def _quantity_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
VERSION_PATTERN = r"^[0-9]+\.[0-9]+\.[0-9]+([.-]?[a-z0-9.]+)?$"
WORD_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
REVISION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_./-]*$"
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
OBJECT_NAME_PATTERN = rf"^{_DOMAIN}$"
LABEL_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

Int = Annotated[int, Field(strict=True)]
Bool = StrictBool
Text = Annotated[
    str,
    Field(min_length=1, max_length=512),
    *judged(
        matching(
            r"^[A-Za-z0-9_./~@][ -~]*$",
            "it must begin with a letter, a digit or one of _ . / ~ @ and hold printable ASCII characters only: vLLM"
            " takes what begins with a dash for an argument",
        )
    ),
]
"""A name or a path."""
Path = Annotated[
    Text,
    *judged(
        refusing(" ", "the path must hold no blanks: rename the folder, or mount it under another name"),
        refusing("^/", "the path begins at the root of the source: remove the / in front"),
        refusing(r"(^|/)\.\.(/|$)", "the path must stay inside the source: remove every .. from it"),
    ),
]
"""A relative path that stays below where it starts."""
ModelId = Annotated[
    Text,
    *judged(
        refusing(
            "^(s3|gs)://",
            "weights in a bucket are named in source.objectStore.uri: put this address there, beside the id, and keep"
            " the name of the repository here, such as meta-llama/Llama-3.1-8B-Instruct",
        ),
        Rule(
            "!self.contains('://') || self.matches('^(s3|gs)://')",
            lambda value: "://" not in value,
            "name the repository, such as meta-llama/Llama-3.1-8B-Instruct, or a path inside the container: an address"
            " with :// is neither, so remove everything up to the repository's owner",
        ),
    ),
]
"""A repository or a path, and no address of either."""
Address = Annotated[
    Text,
    *judged(
        refusing(" ", "an address holds no blanks: write %20 for each, or remove it"),
        matching(
            "^https://[^/]",
            "the address must begin with https:// and a host: over http:// weights and tokens could be read and"
            " replaced on their way",
        ),
        refusing(
            "^[^/]*//[^/?#]*@",
            "the address must hold no user or password, which everybody who reads the resource would see: remove it"
            " up to the @ and give it in a Secret",
        ),
    ),
]
"""An https address without credentials."""
Image = Annotated[str, Field(pattern=r"^[!-~]+$", max_length=512)]
"""Reference of a container image."""
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
Word = Annotated[str, Field(pattern=WORD_PATTERN, max_length=128)]
"""One word of an engine's vocabulary, such as a quantisation method."""
Revision = Annotated[str, Field(pattern=REVISION_PATTERN, max_length=128)]
"""A commit, tag or branch of a model repository."""
ObjectName = Annotated[str, Field(pattern=OBJECT_NAME_PATTERN, max_length=253)]
LabelName = Annotated[str, Field(pattern=LABEL_NAME_PATTERN, max_length=63)]
"""A name of small letters, digits and dashes, as Kubernetes gives to parts of a pod."""
Quantity = Annotated[
    str,
    BeforeValidator(_quantity_text),
    Field(pattern=QUANTITY_PATTERN, max_length=32),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "minimum": 0,
            "maxLength": 32,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""A Kubernetes quantity; YAML may give a bare number, as in ``cpu: 4``."""
LABEL_KEY = rf"^({_DOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
EXTENDED_RESOURCE = rf"^{_DOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"

StringMap = Annotated[
    dict[str, Annotated[str, Field(max_length=63)]],
    Field(max_length=32),
    *judged(
        entries_matching(
            LABEL_KEY,
            LABEL_VALUE,
            "keys and values must be those of labels: letters, digits, dashes, dots and underscores, beginning and"
            " ending with a letter or digit; a key may have a domain and a slash in front",
        )
    ),
]
"""A bounded map, for labels and selectors."""
Annotations = Annotated[
    dict[str, Annotated[str, Field(max_length=4096)]],
    Field(max_length=32),
    *judged(
        entries_matching(
            LABEL_KEY,
            "",
            "keys must be those of annotations: letters, digits, dashes, dots and underscores, beginning and ending"
            " with a letter or digit, with or without a domain and a slash in front",
        )
    ),
]
"""A bounded map whose values may be long."""


_UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity_value(quantity: str) -> float:
    """A `Quantity` as a number: bytes of memory, processors of cpu."""
    digits = quantity.rstrip("mkMGTi")
    return float(digits) * _UNITS.get(quantity[len(digits) :], 1)


class SecretKey(Part):
    """One key of a Secret in the namespace of the service."""

    name: ObjectName
    """Name of a Secret in the namespace of the service, for example `hub-token`."""
    key: Annotated[str, Field(pattern=r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$", max_length=253)]
    """Key inside the Secret, for example `token`."""
