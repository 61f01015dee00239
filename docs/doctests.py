"""For the API pages: the doctests at the end of a docstring become its section of examples."""

import re

import griffe

DOCTEST = re.compile(r"(?:^|\n\n)(>>> .*)\Z", re.DOTALL)


class Doctests(griffe.Extension):
    """Gives a docstring's last doctests the heading that the parser looks for."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Called for every class, function and module."""
        if obj.docstring is None:
            return
        match = DOCTEST.search(obj.docstring.value)
        if match:
            examples = "\n".join(f"    {line}".rstrip() for line in match[1].splitlines())
            before = obj.docstring.value[: match.start()]
            obj.docstring.value = f"{before}\n\nExamples:\n{examples}"
