"""Runs a sweep: measures a kernel with many blocks, macros, template arguments and problems, and finds the best ones.

A point is one combination of these values. The first pass measures every point for a short time, one after another. The
second pass measures the points close to the best point again, in rounds. Each round has the opposite order of the round
before, so that a card that warms up or throttles does not favour the first point. The final times are from the samples
of all rounds. The change of a point's median between rounds shows how large a difference between points must be to be
significant.

The simulator has no noise, so one pass is enough. Points are sorted by their lower bound on the chosen card, and points
with equal bounds by their wasted cycles; without a card, points are sorted by the work of their busiest unit.

If there are too many points, one of the published strategies of Kernel Tuner (van Werkhoven 2019) chooses the points to
measure. Kernel Tuner's `Searchspace` contains the points, the strategy asks for points, and our subclass of its
`Runner` measures them like other points: verified, in one worker. Kernel Tuner compiles, launches and times nothing.

Only points of the same problem (size, type and distribution of the inputs) are compared; each problem has its own best
point.
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
from cudabench.records.plan import Case, Operation, Settings
from cudabench.records.results import Result
from cudabench.results import stats
from cudabench.results.sweep_points import CLOSE, ROUNDS, Final, by_problem, cost, identity
from cudabench.userkernel.space import Space

COARSE_S = 0.1  # seconds of sampling for each point in the first pass
MOST_FINALISTS = 6  # the second pass measures at most this many points of a problem
EVALUATIONS = 100  # a search measures at most this many points of a problem, unless the user sets another number
# A search strategy is stopped after REPEATS requests for each point that it may measure, because it then probably asks
# only for points that are already measured.
REPEATS = 20
# This number turns off Kernel Tuner's limit on threads, because cudabench checks the points when it plans them.
NO_LIMIT = 1 << 62


# Points to measure ----------------------------------------------------------------------------------------------------


def plan_points(
    operation: Operation, request: Request, candidates: Sequence[Dim], groups: Sequence[Sequence[Axis]] = ()
) -> Plan:
    """Return the plan with a point for each valid block in `candidates` and each combination of the macros in `groups`.

    The axes of one group vary together. Raises UsageError if the request does not name exactly one kernel, or if none
    of the blocks is valid for it.
    """
    if request.source is None:
        selected = [kernel for kernel, _ in cases.select_kernels(operation, request.kernels)]
        if len(selected) != 1:
            names = ", ".join(kernel.name for kernel in selected)
            raise UsageError(
                f"A sweep takes one kernel; '{' '.join(request.kernels)}' means {names}: name one of them."
            )
    series = Series(partial(operations.get, operation.name), ())
    points: list[Point] = []
    refused: list[Refusal] = []
    # Build first with the default block: a mistake in the request that does not concern the block ends the sweep here.
    first_values = next(combinations(groups))
    cases.build(operation, replace(request, block=None, defines={**request.defines, **first_values}))
    for values in combinations(groups):
        for block in candidates:
            trial = replace(request, block=block[: operation.block_dimensions], defines={**request.defines, **values})
            try:
                (case,) = cases.build(operation, trial)
            except UsageError as error:
                refused.append(Refusal(block, str(error), values))
            else:
                points.append(Point(values, series, replace(case, named=False, parameters=values)))
    if not points:
        detail = f" {refused[0].reason}" if refused else f" They have over {MAX_THREADS_PER_BLOCK} threads."
        raise UsageError(f"None of the blocks can be swept.{detail}")
    return Plan(tuple(points), tuple(refused), tuple(axis for group in groups for axis in group))


# The first pass ------------------------------------------------------------------------------------------------------


def first_pass(run: Run, points: Sequence[Point], known: Mapping[tuple[Any, ...], Result]) -> None:
    """Measure every point on every device. A point with a result in `known` (by identity) gets this result instead."""
    remaining = []
    for point in points:
        if earlier := known.get(identity(point.case)):
            run.take(point, earlier)
        else:
            remaining.append(point)
    run.write()
    for device in run.devices:
        with run.session(len(remaining), device) as session:
            for point in remaining:
                run.measure(session, point)


def earlier_results(file: ResultsFile, name: str, run: Run, fixed: Mapping[str, Any]) -> dict[tuple[Any, ...], Result]:
    """Return the results of an earlier sweep, by the identity of their points, and add its devices to `run`.

    `name`: the name of the earlier results file. `fixed`: the options that this sweep does not vary. Raises UsageError
    if the earlier sweep had another kernel, source, problem, protocol, compiler or device, because the results of both
    sweeps then cannot be compared.
    """
    earlier = file.settings.get("sweep")
    if isinstance(earlier, list):  # older files of `api.sweep` have the list of blocks here
        earlier = {"fixed": file.settings}
    if not isinstance(earlier, dict) or not isinstance(earlier.get("fixed"), dict):
        raise UsageError(
            f"--resume {name}: it is not the results file of a sweep; name such a file, or leave --resume out."
        )
    differing = [key for key, value in fixed.items() if earlier["fixed"].get(key) != value]
    protocol = ("cache", "min_time", "max_time", "min_samples", "device")
    differing += [key for key in protocol if file.settings.get(key) != run.file.settings.get(key)]
    differing += [key for key, version in run.file.tool.items() if file.tool.get(key) != version]
    if file.provenance.get("sources") != run.file.provenance.get("sources"):
        differing.append("source")
    if differing:
        raise UsageError(
            f"--resume {name}: its {', '.join(dict.fromkeys(differing))} is not the same as in this sweep, so the "
            "figures cannot be compared: start again without --resume."
        )
    run.file.devices.extend(file.devices)
    return {identity(result): result for result in file.results if result.status in ("ok", "wrong")}


# The second pass -----------------------------------------------------------------------------------------------------


def coarse_settings(settings: Settings) -> Settings:
    """Return the settings for the first pass, with short sampling."""
    least = min(settings.min_time, COARSE_S)
    return replace(settings, min_time=least, max_time=min(settings.max_time, 10 * least), cpu=False)


def fine_settings(settings: Settings) -> Settings:
    """Return the settings for one round of the second pass, with the round's share of the sampling time."""
    return replace(settings, min_time=settings.min_time / ROUNDS, max_time=settings.max_time / ROUNDS, cpu=False)


def finalists(results: Iterable[Result]) -> list[Result]:
    """Return the results whose time is close to the best time, the best first; empty if no result has a time."""
    timed = sorted((r for r in results if r.status == "ok" and r.time), key=cost)
    return [r for r in timed if cost(r)[0] <= cost(timed[0])[0] * (1 + CLOSE)][:MOST_FINALISTS]


T = TypeVar("T")


def in_rounds(chosen: Sequence[T]) -> list[T]:
    """Return the order of all measurements: `chosen` once for each round, reversed in every second round."""
    return [case for number in range(ROUNDS) for case in (chosen if number % 2 == 0 else chosen[::-1])]


def second_pass(run: Run, plan: Plan, settings: Settings) -> list[Final]:
    """Measure the best points of each problem again, replace their first results, and return the final ones."""
    finals: list[Final] = []
    points = {identity(case): (outcome.series.make, case) for outcome in run.outcomes for case in outcome.series.cases}
    for results in by_problem(run.file.results, plan.axes).values():
        if not (chosen := {identity(result): result for result in finalists(results)}):
            continue
        with run.session(ROUNDS * len(chosen), settings=fine_settings(settings)) as session:
            measured_finals = measure_again(session.result, [points[point] for point in chosen])
        for final in measured_finals:
            run.replace(chosen[identity(final.result)], final.result)
        finals += measured_finals
        run.finish()
        run.write()
    return finals


def measure_again(measure: Callable[[Make, Case], Result], chosen: Sequence[tuple[Make, Case]]) -> list[Final]:
    """Measure cases in rounds, and return one merged result for each, the best first; wrong ones come last.

    A case that is wrong in one round is wrong. `chosen`: (function that makes the operation, case) for each.
    """
    measurements: dict[tuple[Any, ...], list[Result]] = {identity(case): [] for _, case in chosen}
    for make, case in in_rounds(chosen):
        measurements[identity(case)].append(measure(make, case))
    merged = (merge_rounds(results) for results in measurements.values() if results)
    # `cost` also gives an order to correct kernels without a time.
    return sorted(merged, key=lambda final: (final.result.status != "ok", cost(final.result)))


def merge_rounds(results: Sequence[Result]) -> Final:
    """Return one result for several measurements of a point, with all samples, and with rates for the median of these.

    If a measurement does not have the status 'ok', return the first such measurement.
    """
    faulty = next((result for result in results if result.status != "ok"), None)
    first = results[0]
    times = [result.time for result in results if result.time]
    if faulty or not times:
        return Final(faulty or first, 0.0)
    first_time = times[0]
    samples = [sample for time in times for sample in time.samples_s]
    places = [place for time in times for place in time.samples_place]
    clocks = [clock for time in times for clock in time.samples_sm_mhz] if all(t.samples_sm_mhz for t in times) else []
    timing = stats.summarize(samples, first_time.cache, first_time.runs_per_sample, first_time.places, places, clocks)
    speedup = first_time.median_s / timing.median_s

    def faster(figure: float | None) -> float | None:
        return None if figure is None else figure * speedup

    copies = [result.copy_gbps for result in results if result.copy_gbps]
    copy, bandwidth = median(copies) if copies else None, faster(first.bandwidth_gbps)
    medians = [time.median_s for time in times]
    merged = replace(
        first,
        time=timing,
        bandwidth_gbps=bandwidth,
        gflops=faster(first.gflops),
        copy_gbps=copy,
        copy_fraction=bandwidth / copy if bandwidth is not None and copy else None,
        peak_fraction=faster(first.peak_fraction),
        warnings=tuple(dict.fromkeys(warning for result in results for warning in result.warnings)),
    )
    return Final(merged, (max(medians) - min(medians)) / timing.median_s)


# Searching -----------------------------------------------------------------------------------------------------------


def search(
    run: Run, space: Space, strategy: str, evaluations: int | None, known: Mapping[tuple[Any, ...], Result]
) -> Plan:
    """Search a space by a strategy, each problem separately, and return a plan with the points that were tried.

    `evaluations`: the most points that are tried for each problem. `known`: earlier results by the identity of their
    points; these points are not measured again, but are included in `evaluations`. Raises CudabenchError if Kernel
    Tuner is not installed.
    """
    tuner = _kernel_tuner(strategy)
    problem_groups = [group for group in space.groups if any(axis.problem for axis in group)]
    tuned = [group for group in space.groups if not any(axis.problem for axis in group)]
    points, refused = [], []
    problems = list(combinations(problem_groups))
    if not tuned:
        raise UsageError(
            "--strategy searches macros, parameters and blocks, but none has several values: leave it out."
        )
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
                    earlier = known.get(identity(point.case))
                    tried[key] = run.take(point, earlier) if earlier else run.measure(session, point)
                    points.append(point)
                return tried[key]

            tuner(tuned, problem, space.admits, evaluate, evaluations or EVALUATIONS)
    if not points:
        raise UsageError(f"The search found no point that can be launched; the first: {refused[0].reason}")
    return Plan(tuple(points), tuple(refused), space.axes)


Evaluate = Callable[[Values], "Result | None"]
Tuner = Callable[[Sequence[Sequence[Axis]], Mapping[str, str], Callable[[Values], bool], Evaluate, int], None]


def _kernel_tuner(strategy: str) -> Tuner:
    """Return the function that searches a space by a strategy of Kernel Tuner.

    Raises CudabenchError if Kernel Tuner is not installed.
    """
    try:
        from kernel_tuner import util
        from kernel_tuner.interface import Options
        from kernel_tuner.runners.runner import Runner
        from kernel_tuner.searchspace import Searchspace

        module = import_module(f"kernel_tuner.strategies.{strategy}")
    except ImportError as error:
        raise CudabenchError(
            f"--strategy {strategy} needs Kernel Tuner, and {error.name} is not installed: pip install "
            "'cudabench[tune]'; without --strategy all points are measured."
        ) from None

    def tune(
        groups: Sequence[Sequence[Axis]],
        problem: Mapping[str, str],
        admits: Callable[[Values], bool],
        evaluate: Evaluate,
        evaluations: int,
    ) -> None:
        # Kernel Tuner gets one parameter for each group of axes. The value of the parameter is an index into the
        # group's values.
        params = {f"p{at}": list(range(len(group[0].values))) for at, group in enumerate(groups)}

        def values_of(config: Sequence[Any]) -> Values:
            placed = zip(groups, config, strict=True)
            return {**{axis.name: axis.values[int(place)] for group, place in placed for axis in group}, **problem}

        # `places` is a mapping, or the value itself if there is only one parameter. Kernel Tuner would parse a lambda,
        # so this is a function.
        def is_admitted(places: Any) -> bool:
            return admits(values_of([places[name] for name in params] if isinstance(places, Mapping) else [places]))

        space = Searchspace(params, is_admitted, NO_LIMIT)
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
        runner = _runner_class(util, Runner)(values_of, evaluate)
        try:
            with _repeatable(), suppress(util.StopCriterionReached):
                module.tune(space, runner, options)
        except Exception as error:
            if error is runner.fault or isinstance(error, CudabenchError):
                raise
            raise CudabenchError(f"--strategy {strategy} failed ({error}): use another one.") from None

    return tune


def _runner_class(util: Any, base: Any) -> Any:
    """Return a subclass of Kernel Tuner's class `Runner` (`base`) that gives our measurements to strategies.

    `util`: Kernel Tuner's module of that name.
    """

    class Measuring(base):  # type: ignore[misc]
        """Measures the points that a strategy asks for."""

        def __init__(self, values_of: Callable[[Sequence[Any]], Values], evaluate: Evaluate) -> None:
            super().__init__()
            self.values_of, self.evaluate = values_of, evaluate
            self.seen: dict[tuple[Any, ...], dict[str, Any]] = {}
            self.asked = 0
            # The error that a measurement raised. Errors of the strategy itself are not stored here.
            self.fault: Exception | None = None
            self.dev = SimpleNamespace(max_threads=NO_LIMIT)  # the strategy bayes_opt reads this attribute

        def get_device_info(self) -> Any:
            return None

        def get_environment(self, tuning_options: Any) -> dict[str, Any]:
            return {}

        def run(self, parameter_space: Sequence[Any], tuning_options: Any) -> list[dict[str, Any] | None]:
            """Return a record for each point; None for points that the budget does not allow."""
            records: list[dict[str, Any] | None] = []
            for config in parameter_space:
                key = tuple(config)
                self.asked += 1
                if self.asked > REPEATS * tuning_options.budget.max_fevals:
                    raise util.StopCriterionReached  # the strategy only asks for the same points again
                if key not in self.seen:
                    if tuning_options.budget.is_done():
                        records.append(None)
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
                records.append(self.seen[key])
            return records

    return Measuring


@contextmanager
def _repeatable() -> Iterator[None]:
    """Context manager: seed the global random generators, which strategies use, and restore them at the end."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(0)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
