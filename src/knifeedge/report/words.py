"""The page's heading and its opening sentence."""

from html import escape

from knifeedge.report.records import Contents, ProtocolRun
from knifeedge.report.tables import signed_percent


def title(contents: Contents) -> str:
    """What the report is about, in a few words."""
    if contents.experiments:
        return "; ".join(one.title for one in contents.experiments)
    if len(contents.runs) == 1:
        run = contents.runs[0]
        return f"{run.model} on {run.data}"
    if contents.runs:
        models = list(dict.fromkeys(run.model for run in contents.runs))
        data = list(dict.fromkeys(run.data for run in contents.runs))
        return f"{_list(models)} on {_list(data)}"
    names = [training.name.rpartition("/")[2] for training in contents.trainings]
    return names[0] if len(names) == 1 else f"{len(names)} training runs"


def utf8(text: str) -> bytes:
    """A text as bytes; what a file's name holds besides UTF-8 is spelled out.

    >>> utf8("a\\udcff")
    b'a\\\\udcff'
    """
    return text.encode("utf-8", "backslashreplace")


def lede(contents: Contents) -> str:
    """The main finding as a sentence, in HTML."""
    if len(contents.runs) == 1 and not contents.experiments:
        return _finding(contents.runs[0])
    counts = [
        (len(contents.experiments), "experiment"),
        (len(contents.runs), "protocol run"),
        (len(contents.trainings), "training run"),
    ]
    parts = [f"{n} {word}" + ("s" if n != 1 else "") for n, word in counts if n]
    losses = list(dict.fromkeys(o.loss for run in contents.runs for o in run.outcomes))
    words = f"{_list(parts)}."
    if losses:
        words += f" Losses: {_list(losses) if len(losses) < 7 else len(losses)}."
    return escape(words)


def _finding(run: ProtocolRun) -> str:
    protocol = next(iter(run.protocols), None)
    scored = {
        outcome.loss: outcome.scored[protocol].summary["ods"]
        for outcome in run.outcomes
        if protocol is not None and protocol in outcome.scored
    }
    seed = run.config.get("seed")
    opening = f"{len(run.outcomes)} losses, seed {seed}."
    if not scored or protocol is None:
        return escape(f"{opening} Nothing is scored yet.")
    best = max(scored, key=lambda loss: scored[loss])
    words = (
        f"{escape(opening)} Best under {escape(protocol)}: <strong>{escape(best)}</strong>"
        f" with an ODS of <strong>{scored[best]:.3f}</strong>"
    )
    base = run.baseline(best)
    if base in scored:
        gain = signed_percent(scored[best], scored[base]).replace(" ", "\N{NO-BREAK SPACE}")
        words += f", {gain} against {escape(base)}"
    return f"{words}. One run with one seed does not tell which loss is better."


def _list(words: list[str]) -> str:
    """Words as a list in a sentence.

    >>> _list(["a", "b", "c"])
    'a, b and c'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
