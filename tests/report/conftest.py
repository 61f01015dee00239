"""Run folders that the tests of the report share; nobody may change them."""

import pytest

from knifeedge.report import write_report
from report.fake_runs import HOSTILE, make_protocol

HOSTILE_LOSS = 'baa(base="><script>alert(4)</script>)'


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A protocol whose every name is out to do harm."""
    return make_protocol(
        tmp_path_factory.mktemp("runs") / "<b>bold&",
        names=HOSTILE,
        losses=("wbce", "baa-0.7", HOSTILE_LOSS),
        images=3,
        size=(96, 120),
        model='"><script>alert(3)</script>',
        data="</script><img src=x onerror=alert(5)>",
    )


@pytest.fixture(scope="session")
def page(run, tmp_path_factory):
    """Its report."""
    return write_report([run], tmp_path_factory.mktemp("page") / "report.html")
