"""A space too large to be measured point by point, searched by a strategy of Kernel Tuner.

Kernel Tuner (van Werkhoven 2019) has a dozen published strategies and knows what its users found of them, so none is
written here. Its `Searchspace` holds the points, one of its strategies asks for them, and a `Runner` of ours measures
them as any sweep does: verified, in one worker. Nothing of Kernel Tuner compiles, launches or times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from cudabench.errors import CudabenchError, UsageError
from cudabench.measure.run import Run
from cudabench.plan.space import Axis, Plan, Refusal, Values, combinations
from cudabench.records.results import Result
from cudabench.results.sweep_points import cost, identity
from cudabench.userkernel.space import Space

EVALUATIONS = 100
REPEATS = 20  # a strategy that asks for what it knows so often has come to its end
NO_LIMIT = 1 << 62  # Kernel Tuner checks threads by parameters' names; ours are checked when a point is planned


def search(
    run: Run, space: Space, strategy: str, evaluations: int | None, known: Mapping[tuple[Any, ...], Result]
) -> Plan:
    """Search a space, and return the plan of what was tried. Every problem is searched by itself.

    evaluations: points that are measured or taken from `known`, of each problem. Raises CudabenchError where Kernel
    Tuner is not installed.
    """
    tuner = _kernel_tuner(strategy)
    own = [group for group in space.groups if any(axis.problem for axis in group)]
    tuned = [group for group in space.groups if not any(axis.problem for axis in group)]
    points, refused = [], []
    problems = list(combinations(own))
    if not tuned:
        raise UsageError("--strategy searches macros, parameters and blocks, and none is varied: leave it out.")
    with run.session((evaluations or EVALUATIONS) * len(problems)) as session:
        for problem in problems:
            tried: dict[tuple[str, ...], Result | None] = {}

            def evaluate(values: Values, tried: dict[tuple[str, ...], Result | None] = tried) -> Result | None:
                key = tuple(values.values())
                if key not in tried:
                    try:
                        point = space.point(values)
                    except UsageError as error:
                        refused.append(Refusal((0, 0, 0), str(error), values))
                        tried[key] = None
                        return None
                    before = known.get(identity(point.case))
                    tried[key] = run.take(point, before) if before else run.measure(session, point)
                    points.append(point)
                return tried[key]

            tuner(tuned, problem, space.admits, evaluate, evaluations or EVALUATIONS)
    if not points:
        raise UsageError(f"The search met no point that can be launched; the first: {refused[0].reason}")
    return Plan(tuple(points), tuple(refused), space.axes)


Evaluate = Callable[[Values], "Result | None"]
Tuner = Callable[[Sequence[Sequence[Axis]], Mapping[str, str], Callable[[Values], bool], Evaluate, int], None]


def _kernel_tuner(strategy: str) -> Tuner:
    """Return what lets a strategy go through a space. Raises CudabenchError without Kernel Tuner."""
    try:
        from kernel_tuner import util
        from kernel_tuner.interface import Options
        from kernel_tuner.runners.runner import Runner
        from kernel_tuner.searchspace import Searchspace

        module = import_module(f"kernel_tuner.strategies.{strategy}")
    except ImportError as error:
        raise CudabenchError(
            f"--strategy {strategy} is Kernel Tuner's, which is not here ({error.name}): pip install "
            "'cudabench[tune]'; without --strategy all points are measured."
        ) from None

    def tune(
        groups: Sequence[Sequence[Axis]],
        problem: Mapping[str, str],
        admits: Callable[[Values], bool],
        evaluate: Evaluate,
        evaluations: int,
    ) -> None:
        # A parameter a group: axes that go together are one. Its values are places, whose order strategies walk along.
        params = {f"p{at}": list(range(len(group[0].values))) for at, group in enumerate(groups)}

        def values_of(config: Sequence[Any]) -> Values:
            placed = zip(groups, config, strict=True)
            return {**{axis.name: axis.values[int(place)] for group, place in placed for axis in group}, **problem}

        def meant(places: Any) -> bool:  # a mapping of all, or the only one; Kernel Tuner would take a lambda apart
            return admits(values_of([places[name] for name in params] if isinstance(places, Mapping) else [places]))

        space = Searchspace(params, meant, NO_LIMIT)
        if not space.size:
            raise UsageError("--where does not hold for any of the combinations.")
        if space.size <= evaluations:
            for config in space.list:
                evaluate(values_of(config))
            return
        options = Options(
            strategy=strategy,
            strategy_options=Options(max_fevals=evaluations),
            tune_params=params,
            objective=["time"],
            objective_higher_is_better=[False],
            budget=util.TuningBudget(None, evaluations),
            restrictions_unmodified=None,
            cache={},
            max_fevals=evaluations,
            simulation_mode=False,
            verbose=False,
            eps=1e-3,
            seed=None,
        )
        runner = _measuring(util, Runner)(values_of, evaluate)
        try:
            with _repeatable(), suppress(util.StopCriterionReached):
                module.tune(space, runner, options)
        except Exception as error:
            if error is runner.fault or isinstance(error, CudabenchError):
                raise
            raise CudabenchError(f"--strategy {strategy} gave up ({error}): take another one.") from None

    return tune


def _measuring(util: Any, base: Any) -> Any:
    """Return the class of what gives strategies our own measurements; `util` and `base` are Kernel Tuner's."""

    class Measuring(base):  # type: ignore[misc]
        """Gives strategies what our own measurement of a point says."""

        def __init__(self, values_of: Callable[[Sequence[Any]], Values], evaluate: Evaluate) -> None:
            super().__init__()
            self.values_of, self.evaluate = values_of, evaluate
            self.seen: dict[tuple[Any, ...], dict[str, Any]] = {}
            self.asked = 0
            self.fault: Exception | None = None  # of a measurement, not of a strategy
            self.dev = SimpleNamespace(max_threads=NO_LIMIT)  # bayes_opt asks

        def get_device_info(self) -> Any:
            return None

        def get_environment(self, tuning_options: Any) -> dict[str, Any]:
            return {}

        def run(self, parameter_space: Sequence[Any], tuning_options: Any) -> list[dict[str, Any] | None]:
            """Return a record a point; None for those beyond the budget."""
            found: list[dict[str, Any] | None] = []
            for config in parameter_space:
                key = tuple(config)
                self.asked += 1
                if self.asked > REPEATS * tuning_options.budget.max_fevals:
                    raise util.StopCriterionReached  # one that walks in a circle
                if key not in self.seen:
                    if tuning_options.budget.is_done():
                        found.append(None)
                        continue
                    tuning_options.budget.add_evaluations(1)
                    try:
                        result = self.evaluate(self.values_of(key))
                    except Exception as error:
                        self.fault = error
                        raise
                    record = dict(zip(tuning_options.tune_params, key, strict=True))
                    if result is None or result.status != "ok":
                        record["__error__"] = util.RuntimeFailedConfig()
                    else:
                        record["time"] = cost(result)[0]
                    self.seen[key] = record
                found.append(self.seen[key])
            return found

    return Measuring


@contextmanager
def _repeatable() -> Iterator[None]:
    """Let strategies, which draw from the global generators, draw the same every time."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(0)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
