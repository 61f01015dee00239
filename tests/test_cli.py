"""What the command line has before any verb."""

from command_line import call, done
from knifeedge.version import VERSION


def test_version():
    assert done("--version").out == f"knifeedge {VERSION}\n"


def test_without_a_verb_there_is_help():
    result = call()
    assert result.code == 2
    assert "Train, score and compare models" in result.out
    assert result.err.strip() == ""


def test_an_unknown_verb_is_named():
    result = call("foo")
    assert result.code == 2
    assert result.err.startswith("knifeedge: No such command 'foo'. See: ")
