"""Configuration files in YAML, read strictly: nothing unknown, nothing twice, no wrong types."""

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
    """A mapping of a file.

    Attributes:
        line: The line on which it begins, counted from 1.
    """

    __slots__ = ("line",)

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


def load_yaml(path: Path, *, flag: str) -> object:
    """Read a file of one YAML document.

    Args:
        path: The file.
        flag: The flag that names the file, for the message.

    Returns:
        Its content in plain types, with a `Mapping` for each mapping; None if it is empty.

    Raises:
        ConfigurationError: The file cannot be read or is not YAML.
    """
    import yaml  # noqa: PLC0415 - only a machine with such a file pays for it

    try:
        content: object = yaml.load(read_named(path, MOST_BYTES), _make_loader())  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; correct {flag}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = _in_one_line(str(error.problem))
        raise ConfigurationError(f"{path}: line {line}: {problem}; correct it") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        # The last three: a value that its tag denies.
        raise ConfigurationError(f"{path}: this is not YAML; write it as UTF-8 text") from error
    return content


def _make_loader() -> type[yaml.SafeLoader]:
    """Return PyYAML's loader of plain types, made stricter."""
    import yaml  # noqa: PLC0415 - as above

    class Loader(yaml.SafeLoader):
        """Refuses a duplicate key, of which PyYAML would take the last, and endless nesting."""

        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.depth == _DEEPEST:  # PyYAML calls itself for each level
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
            deep: bool = False,  # noqa: FBT001, FBT002 - as the class above has it
        ) -> dict[object, object]:
            seen: set[object] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue  # refused by the class above
                if key.value in seen:
                    mark = key.start_mark
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} is given twice", problem_mark=mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    def construct(loader: Loader, node: yaml.MappingNode) -> Iterator[Mapping]:
        mapping = Mapping(node.start_mark.line + 1)
        yield mapping  # before what is in it, which may refer to it
        mapping.update(loader.construct_mapping(node))

    Loader.add_constructor("tag:yaml.org,2002:map", construct)
    return Loader


class Section:
    """One mapping of a file, whose keys are taken one by one; keys that are left over are unknown.

    Args:
        where: The file and the key that lead here, for messages.
        content: The value.

    Raises:
        ConfigurationError: The value is not a mapping; every other method raises it likewise for a
            value that does not fit.
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
        """Whether nothing is left to take."""
        return not self._left

    def take(self, key: str, kind: type[Kind], wanted: str) -> Kind | None:
        """Take a value of one type; None if the key is missing or has no value."""
        value = self._left.pop(key, None)
        if value is not None and not isinstance(value, kind):
            raise self.refuse(key, f"this is not {wanted}; correct it")
        return value

    def take_section(self, key: str) -> Section | None:
        """Take a mapping; None if the key is missing or has no value."""
        content = self._left.pop(key, None)
        return None if content is None else Section(f"{self.where}: {key}", content)

    def take_choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        """Take one of some strings; None if the key is missing or blank."""
        value = self.take(key, str, "a string")
        if value not in (None, "", *choices):
            raise self.refuse(key, f"{value} is not one of {', '.join(choices)}")
        return value or None

    def take_strings(self, key: str) -> tuple[str, ...] | None:
        """Take a list of strings; None if the key is missing."""
        values = self.take(key, list, "a list of strings")
        if values is None:
            return None
        if not all(isinstance(value, str) for value in values):
            raise self.refuse(key, "this is not a list of strings; put each in quotes")
        return tuple(values)

    def take_strings_by_name(self) -> dict[str, str]:
        """Take everything that is left, which must be strings."""
        for name, value in self._left.items():
            if not (isinstance(name, str) and isinstance(value, str)):
                raise self.refuse(
                    name, "the name and its value must be strings; put both in quotes"
                )
        strings, self._left = self._left, {}
        return strings

    def finish(self) -> None:
        """Refuse keys that were not taken."""
        for key in self._left:
            raise self.refuse(key, "this key is not known here; correct or remove it")

    def refuse(self, key: object, reason: str) -> ConfigurationError:
        """Return the error for a key, from its fault and the remedy."""
        return ConfigurationError(f"{self.where}.{_in_one_line(str(key))}: {_in_one_line(reason)}")


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
