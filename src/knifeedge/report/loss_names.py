"""What a loss's name says; a name that nobody understands says nothing.

Understanding a name loads torch, so it is imported when it is needed.
"""

from typing import TYPE_CHECKING

from knifeedge.errors import ConfigError

if TYPE_CHECKING:
    from knifeedge.losses.names import AdjusterSettings, LossName


def adjuster_settings(loss: str) -> "AdjusterSettings | None":
    """The settings of the adjuster; None for a loss without one.

    >>> adjuster_settings("baa(base=ebt,threshold=sa,window=0.1,decay=8)")
    AdjusterSettings(threshold=None, window=0.1, decay=8.0, delta=1.0)
    >>> adjuster_settings("wbce") is None
    True
    """
    name = _parse(loss)
    return None if name is None or name.adjuster is None else name.settings


def base_of(loss: str) -> str | None:
    """The loss that is adjusted; None for a loss that is not adjusted.

    >>> base_of("baa-0.7"), base_of("baa(base=focal(gamma=3),window=0.1)"), base_of("ebt")
    ('wbce', 'focal(gamma=3)', None)
    """
    name = _parse(loss)
    return None if name is None or name.adjuster is None else str(name.baseline)


def folder_of(loss: str) -> str:
    """The folder of a loss's training.

    >>> folder_of("baa(base=swbce,threshold=0.6)")
    'baa-base=swbce,threshold=0.6'
    """
    from knifeedge.losses.names import loss_folder

    return loss_folder(loss)


def _parse(loss: str) -> "LossName | None":
    from knifeedge.losses.names import parse_loss

    try:
        return parse_loss(loss)
    except ConfigError:
        return None
