"""Forecasts of PyTorch programs: their memory on a CUDA card, without a GPU.

    python -m tenon.forecast train.py -- --batch-size 32

or, from a program:

    forecast = tenon.forecast(train, 32)     # calls train(32) under fake tensors
    print(forecast)
    forecast.recording.explain()             # a recording like any other

docs/forecast.md is the longer story. Nothing here imports torch before a forecast is asked for.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Callable, Optional

from tenon.forecast._answer import CARDS, Forecast
from tenon.forecast._engine import ForecastError

__all__ = ["CARDS", "Forecast", "ForecastError", "forecast", "forecast_script"]


def forecast(
    program: Callable[..., Any],
    *arguments: Any,
    steps: int = 3,
    card: str = "H100",
    time_limit: float = 600,
    real: str = "auto",
    ranks: int = 0,
    shard: str = "",
    mask_share: Optional[float] = None,
    **keywords: Any,
) -> Forecast:
    """Call a program under fake tensors and say what memory it takes on the card.

    Args:
        program: makes its model and tensors itself and trains; called as
            `program(*arguments, **keywords)`.
        steps: ends it after so many `optimizer.step()`; 0: where it ends by itself.
        card: one of `CARDS`.
        time_limit: seconds after which it ends.
        real: whether it runs with real values on the host: "auto" (where sizes depend on data; the
            program is called again then), "never" or "always".
        ranks: processes of the program, one for each card; the first one is forecast. 0: what the
            program itself says.
        shard: what the ranks share of a program that makes no process group itself: "ddp", "zero1",
            "zero2" or "zero3".
        mask_share: how much of masks with unknown values is set, 0 to 1. The program runs once
            then, under fakes alone.
    """
    from tenon.forecast._run import run_function

    return run_function(
        program,
        arguments,
        keywords,
        steps=steps,
        card=card,
        time_limit=time_limit,
        real=real,
        ranks=ranks,
        changes=[shard] if shard else [],
        mask_share=mask_share,
    )


def forecast_script(
    script: str,
    *arguments: str,
    steps: int = 3,
    card: str = "H100",
    time_limit: float = 600,
    real: str = "auto",
    ranks: int = 0,
    shard: str = "",
    mask_share: Optional[float] = None,
) -> Forecast:
    """The same for a script, untouched, with its command's arguments."""
    from tenon.forecast._run import run_script

    return run_script(
        script,
        arguments,
        steps=steps,
        card=card,
        time_limit=time_limit,
        real=real,
        ranks=ranks,
        changes=[shard] if shard else [],
        mask_share=mask_share,
    )


class _Callable(types.ModuleType):
    """`tenon.forecast` is a module and a function."""

    def __call__(self, program: Callable[..., Any], *arguments: Any, **keywords: Any) -> Forecast:
        return forecast(program, *arguments, **keywords)


sys.modules[__name__].__class__ = _Callable
