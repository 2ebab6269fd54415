"""Parses YAML files strictly: unknown keys, duplicate keys and wrong types are errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_files import read_named

if TYPE_CHECKING:
    import yaml

Kind = TypeVar("Kind")
_DEEPEST = 32
MOST_BYTES = 1 << 20


class Mapping(dict[object, object]):
    """A mapping that was read from a YAML file.

    Attributes:
        line: The number of the line on which the mapping begins, starting from 1.
    """

    __slots__ = ("line",)

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


def load_yaml(path: Path, *, flag: str) -> object:
    """Read a YAML file that contains one document.

    Args:
        path: The path of the file.
        flag: The flag that specifies the file, for the error message.

    Returns:
        The content in plain types, with a `Mapping` for each mapping; None if the file is empty.

    Raises:
        ConfigurationError: The file cannot be read or is not YAML.
    """
    import yaml  # noqa: PLC0415 - only needed with such a file

    try:
        content: object = yaml.load(read_named(path, MOST_BYTES), _make_loader())  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; correct {flag}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = _in_one_line(str(error.problem))
        raise ConfigurationError(f"{path}: line {line}: {problem}; correct it") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        # The last three errors are raised for a value that does not match its tag.
        raise ConfigurationError(f"{path}: this is not YAML; write it as UTF-8 text") from error
    return content


def parse_yaml(text: str) -> object:
    """Parse a YAML text that another program wrote; the text must contain a single document.

    Raises:
        ValueError: The text is not YAML, is nested too deeply, or contains a key twice in one
            mapping.
    """
    import yaml  # noqa: PLC0415 - as above

    try:
        content: object = yaml.load(text, _make_loader())  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, LookupError, AttributeError) as error:
        raise ValueError("it is not YAML") from error
    return content


def _make_loader() -> type[yaml.SafeLoader]:
    """Return a stricter version of PyYAML's safe loader."""
    import yaml  # noqa: PLC0415 - as above

    class Loader(yaml.SafeLoader):
        """A loader that rejects excessive nesting and duplicate keys; PyYAML accepts both."""

        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.depth == _DEEPEST:  # PyYAML recurses for each level
                raise yaml.MarkedYAMLError(
                    problem=f"nested more than {_DEEPEST} levels deep",
                    problem_mark=parent.start_mark if parent else None,
                )
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(
            self,
            node: yaml.MappingNode,
            deep: bool = False,  # noqa: FBT001, FBT002 - as in the base class
        ) -> dict[object, object]:
            seen: set[object] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue  # the base class rejects this key
                if key.value in seen:
                    mark = key.start_mark
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} is given twice", problem_mark=mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    def construct(loader: Loader, node: yaml.MappingNode) -> Iterator[Mapping]:
        mapping = Mapping(node.start_mark.line + 1)
        yield mapping  # the mapping is yielded before its content, which may refer to it
        mapping.update(loader.construct_mapping(node))

    Loader.add_constructor("tag:yaml.org,2002:map", construct)
    return Loader


class Section:
    """A mapping in a YAML file, from which known keys are taken; all other keys are errors.

    Args:
        where: The path of the file and the parent keys, for error messages.
        content: The value to be read as a mapping.

    Raises:
        ConfigurationError: The value is not a mapping. The methods that take values raise the same
            error for an invalid value.
    """

    def __init__(self, where: str, content: object) -> None:
        if not isinstance(content, dict):
            raise ConfigurationError(
                f"{where}: this is no mapping; write each setting as `key: value`"
            )
        self.where = where
        self._left = dict(content)

    @property
    def empty(self) -> bool:
        """Whether all keys of the mapping have been taken."""
        return not self._left

    def take(self, key: str, kind: type[Kind], wanted: str) -> Kind | None:
        """Remove a key and return its value; None if the key is missing or has no value.

        The value must have the type `kind`, which error messages describe as `wanted`.
        """
        value = self._left.pop(key, None)
        if value is not None and not isinstance(value, kind):
            raise self.refuse(key, f"this is not {wanted}; correct it")
        return value

    def take_section(self, key: str) -> Section | None:
        """Remove a key and return its mapping; None if the key is missing or has no value."""
        content = self._left.pop(key, None)
        return None if content is None else Section(f"{self.where}: {key}", content)

    def take_choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        """Remove a key and return its value; None if the key is missing or has no value.

        The value must be one of `choices`. An empty string counts as no value.
        """
        value = self.take(key, str, "a string")
        if value not in (None, "", *choices):
            raise self.refuse(key, f"{value} is not one of {', '.join(choices)}")
        return value or None

    def take_strings(self, key: str) -> tuple[str, ...] | None:
        """Remove a key and return its strings; None if the key is missing or has no value."""
        values = self.take(key, list, "a list of strings")
        if values is None:
            return None
        if not all(isinstance(value, str) for value in values):
            raise self.refuse(key, "this is not a list of strings; put each in quotes")
        return tuple(values)

    def take_strings_by_name(self) -> dict[str, str]:
        """Remove and return all remaining keys and their values, which must be strings."""
        for name, value in self._left.items():
            if not (isinstance(name, str) and isinstance(value, str)):
                raise self.refuse(
                    name, "the name and its value must be strings; put both in quotes"
                )
        strings, self._left = self._left, {}
        return strings

    def finish(self) -> None:
        """Raise ConfigurationError if the mapping contains a key that has not been taken."""
        for key in self._left:
            raise self.refuse(key, "this key is not known here; correct or remove it")

    def refuse(self, key: object, reason: str) -> ConfigurationError:
        """Return an error about a mapping's key; `reason` contains the fault and the remedy."""
        return ConfigurationError(f"{self.where}.{_in_one_line(str(key))}: {_in_one_line(reason)}")


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
