"""Children by fork: they have all imports already, so that a test may use many."""

import os
import socket
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def fork(work: Callable[[], object]) -> int:
    """Run a function in a child process; its process number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads around
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def free_port() -> int:
    """A port below those that connections are given: none takes it before it is listened to."""
    start = 10_000 + os.getpid() % 10_000  # tests that run beside this one look elsewhere first
    for port in range(start, start + 10_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("every port is taken")


def run_ranks(count: int, work: Callable[[], object]) -> list[int]:
    """Run a function in as many processes as torchrun would start here; their exit codes."""
    port = free_port()

    def as_rank(rank: int) -> None:
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "TORCHELASTIC_RUN_ID": "test",
        }
        work()

    children = [fork(lambda rank=rank: as_rank(rank)) for rank in range(count)]  # type: ignore[misc]
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def first_rank_of(count: int, work: Callable[[int], object], folder: Path) -> Any:
    """What the first of several ranks, joined by gloo, gives; tensors, in dicts or alone."""

    def join() -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        try:
            result = work(dist.get_rank())
            if dist.get_rank() == 0:
                torch.save(result, folder / "result.pt")
            dist.barrier()
        finally:
            dist.destroy_process_group()

    codes = run_ranks(count, join)
    if any(codes):
        raise RuntimeError(f"the ranks ended with {codes}")
    return torch.load(folder / "result.pt", weights_only=True)
