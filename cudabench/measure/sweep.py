"""One kernel over many blocks, macros, template arguments and problems: in two passes, and which is best.

The first pass measures every point for a short time, one after the other. Points that come out close to the best are
then measured again in rounds, each round in the opposite order of the one before, so that a card that warms up or
throttles does not favour the point that came first. Their samples of all rounds together give the final figures, and
what a point's median moves from round to round says how much a difference between two points means.

The simulator has no noise: one pass, and points are ordered by their bound on the card that is priced, those of one
bound by what they waste; without a card by the unit that their counts keep busiest.

A space too large to be measured point by point is searched by a strategy of Kernel Tuner (van Werkhoven 2019), which
has a dozen published ones and knows what its users found of them, so none is written here. Its `Searchspace` holds the
points, one of its strategies asks for them, and a `Runner` of ours measures them as any sweep does: verified, in one
worker. Nothing of Kernel Tuner compiles, launches or times.

Points of one problem compete; each problem, another size, type or distribution of the inputs, has a best of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from statistics import median
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from cudabench import operations
from cudabench.errors import CudabenchError, UsageError
from cudabench.measure.run import Run
from cudabench.measure.session import Make
from cudabench.occupancy import MAX_THREADS_PER_BLOCK
from cudabench.plan import cases
from cudabench.plan.cases import Request
from cudabench.plan.series import Series
from cudabench.plan.space import Axis, Plan, Point, Refusal, Values, combinations
from cudabench.records.file import ResultsFile
from cudabench.records.launch import Dim
from cudabench.records.planned import Case, Operation, Settings
from cudabench.records.results import Result
from cudabench.results import stats
from cudabench.results.sweep_points import CLOSE, ROUNDS, Final, by_problem, cost, identity
from cudabench.userkernel.space import Space

COARSE_S = 0.1  # of sampling a block in the first pass
MOST_FINALISTS = 6
EVALUATIONS = 100
REPEATS = 20  # a strategy that asks for what it knows so often has come to its end
NO_LIMIT = 1 << 62  # Kernel Tuner checks threads by parameters' names; ours are checked when a point is planned


# Which points ---------------------------------------------------------------------------------------------------------


def plan(
    operation: Operation, request: Request, candidates: Sequence[Dim], groups: Sequence[Sequence[Axis]] = ()
) -> Plan:
    """Return a point for each block that the kernel takes, with each combination of the axes in `groups`, which are
    macros. Raises UsageError where the request does not name one kernel or the kernel takes none of the blocks."""
    if request.source is None:
        named = [kernel for kernel, _ in cases.select_kernels(operation, request.kernels)]
        if len(named) != 1:
            names = ", ".join(kernel.name for kernel in named)
            raise UsageError(
                f"A sweep takes one kernel; '{' '.join(request.kernels)}' means {names}: name one of them."
            )
    series = Series(partial(operations.get, operation.name), ())
    made: list[Point] = []
    refused: list[Refusal] = []
    # Mistakes that are not the point's also show with the kernel's own block; they end the sweep.
    first = next(combinations(groups))
    cases.build(operation, replace(request, block=None, defines={**request.defines, **first}))
    for values in combinations(groups):
        for block in candidates:
            own = replace(request, block=block[: operation.block_dimensions], defines={**request.defines, **values})
            try:
                (case,) = cases.build(operation, own)
            except UsageError as error:
                refused.append(Refusal(block, str(error), values))
            else:
                made.append(Point(values, series, replace(case, named=False, parameters=values)))
    if not made:
        detail = f" {refused[0].reason}" if refused else f" They have over {MAX_THREADS_PER_BLOCK} threads."
        raise UsageError(f"None of the blocks can be swept.{detail}")
    return Plan(tuple(made), tuple(refused), tuple(axis for group in groups for axis in group))


# The first pass ------------------------------------------------------------------------------------------------------


def first_pass(run: Run, points: Sequence[Point], known: Mapping[tuple[Any, ...], Result]) -> None:
    """Measure every point on every device, but those in `known`, whose results are taken over."""
    left = []
    for point in points:
        if before := known.get(identity(point.case)):
            run.take(point, before)
        else:
            left.append(point)
    run.write()
    for device in run.devices:
        with run.session(len(left), device) as session:
            for point in left:
                run.measure(session, point)


def known(file: ResultsFile, name: str, run: Run, fixed: Mapping[str, Any]) -> dict[tuple[Any, ...], Result]:
    """Return the results of an earlier sweep by their points, with what it knows of the device put into `run`.

    `fixed` is what neither sweep varies. Raises UsageError for a file of something else: another kernel, source,
    problem, protocol, compiler or device, whose figures would not belong to those of this run.
    """
    before = file.settings.get("sweep")
    if isinstance(before, list):  # the blocks, in a file of an older version that `api.sweep` made
        before = {"fixed": file.settings}
    if not isinstance(before, dict) or not isinstance(before.get("fixed"), dict):
        raise UsageError(f"--resume {name}: it is not a sweep's results file; name one, or leave --resume out.")
    differing = [key for key, value in fixed.items() if before["fixed"].get(key) != value]
    protocol = ("cache", "min_time", "max_time", "min_samples", "device")
    differing += [key for key in protocol if file.settings.get(key) != run.file.settings.get(key)]
    differing += [key for key, version in run.file.tool.items() if file.tool.get(key) != version]
    if file.provenance.get("sources") != run.file.provenance.get("sources"):
        differing.append("source")
    if differing:
        raise UsageError(
            f"--resume {name}: its {', '.join(dict.fromkeys(differing))} is not this sweep's, so its figures do not "
            "belong here: start anew without --resume."
        )
    run.file.devices.extend(file.devices)
    return {identity(result): result for result in file.results if result.status in ("ok", "wrong")}


# The second pass -----------------------------------------------------------------------------------------------------


def coarse(settings: Settings) -> Settings:
    """Return the settings of the first pass."""
    least = min(settings.min_time, COARSE_S)
    return replace(settings, min_time=least, max_time=min(settings.max_time, 10 * least), cpu=False)


def fine(settings: Settings) -> Settings:
    """Return the settings of one round of the second pass."""
    return replace(settings, min_time=settings.min_time / ROUNDS, max_time=settings.max_time / ROUNDS, cpu=False)


def finalists(results: Iterable[Result]) -> list[Result]:
    """Return the results that are close to the best, best first; none where nothing was timed."""
    timed = sorted((r for r in results if r.status == "ok" and r.time), key=cost)
    return [r for r in timed if cost(r)[0] <= cost(timed[0])[0] * (1 + CLOSE)][:MOST_FINALISTS]


T = TypeVar("T")


def rounds(chosen: Sequence[T]) -> list[T]:
    """Return what is measured in all rounds, every other one backwards."""
    return [case for at in range(ROUNDS) for case in (chosen if at % 2 == 0 else chosen[::-1])]


def second_pass(run: Run, plan: Plan, settings: Settings) -> list[Final]:
    """Measure the best points of each problem again; what comes out takes the place of their first results."""
    finals: list[Final] = []
    points = {identity(case): (outcome.series.make, case) for outcome in run.outcomes for case in outcome.series.cases}
    for results in by_problem(run.file.results, plan.axes).values():
        if not (chosen := {identity(result): result for result in finalists(results)}):
            continue
        with run.session(ROUNDS * len(chosen), settings=fine(settings)) as session:
            found = again(session.result, [points[point] for point in chosen])
        for final in found:
            run.replace(chosen[identity(final.result)], final.result)
        finals += found
        run.finish()
        run.write()
    return finals


def again(measure: Callable[[Make, Case], Result], chosen: Sequence[tuple[Make, Case]]) -> list[Final]:
    """Measure cases, each with what makes its operation, in rounds and return their results, best first; one that ever
    went wrong is that result."""
    found: dict[tuple[Any, ...], list[Result]] = {identity(case): [] for _, case in chosen}
    for make, case in rounds(chosen):
        found[identity(case)].append(measure(make, case))
    merged = (merge(results) for results in found.values() if results)
    # A right kernel that was not timed sorts by its cost as well; wrong ones come last.
    return sorted(merged, key=lambda final: (final.result.status != "ok", cost(final.result)))


def merge(results: Sequence[Result]) -> Final:
    """Return several measurements of one block as one: all samples, and figures of their median."""
    bad = next((result for result in results if result.status != "ok"), None)
    first = results[0]
    times = [result.time for result in results if result.time]
    if bad or not times:
        return Final(bad or first, 0.0)
    one = times[0]
    samples = [sample for time in times for sample in time.samples_s]
    places = [place for time in times for place in time.samples_place]
    clocks = [clock for time in times for clock in time.samples_sm_mhz] if all(t.samples_sm_mhz for t in times) else []
    together = stats.summarize(samples, one.cache, one.runs_per_sample, one.places, places, clocks)
    speedup = one.median_s / together.median_s

    def faster(figure: float | None) -> float | None:
        return None if figure is None else figure * speedup

    copies = [result.copy_gbps for result in results if result.copy_gbps]
    copy, bandwidth = median(copies) if copies else None, faster(first.bandwidth_gbps)
    medians = [time.median_s for time in times]
    merged = replace(
        first,
        time=together,
        bandwidth_gbps=bandwidth,
        gflops=faster(first.gflops),
        copy_gbps=copy,
        copy_fraction=bandwidth / copy if bandwidth is not None and copy else None,
        peak_fraction=faster(first.peak_fraction),
        warnings=tuple(dict.fromkeys(warning for result in results for warning in result.warnings)),
    )
    return Final(merged, (max(medians) - min(medians)) / together.median_s)


# Searching -----------------------------------------------------------------------------------------------------------


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
