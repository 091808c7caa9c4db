"""`run --fuzz K`: runs a user's kernel with other seeds, values and sizes, and reduces a failing case to a small one.

A case is the user's command line with another seed, with other values for the numbers from which shapes are computed,
and with other initial values for the arrays that begin `random`. Arrays with other initial values (zeros, arange, a
file, a range) do not change. Before a case runs, `measure.precision` decides whether the expected output is precise
enough to judge the kernel; if it is not, the case is undecided.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from cudabench.devices import Choice
from cudabench.errors import CudabenchError, UsageError
from cudabench.measure import precision, session
from cudabench.measure.run import Run
from cudabench.plan.series import Series
from cudabench.records.plan import Settings
from cudabench.records.results import Result
from cudabench.userkernel import arguments, expressions, plan
from cudabench.userkernel.problem import UserProblem
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.textures import array_within
from cudabench.userkernel.values import Array

# The classes of input values. The classes that find the most faults come first, because users ask for few cases.
CLASSES = (
    "negative", "signed-zero", "ties", "not-positive", "spike", "random", "whole", "large", "zeros", "mixed", "tiny",
    "denormal", "infinity", "nan",
)  # fmt: skip
SIZES = (1, 2, 3, 7, 31, 33, 64, 127, 257, 521, 1031, 4093, 16381, 65521)  # mostly odd or prime
SMALL = 1031  # sizes up to SMALL are tried even if the size of the user's problem is smaller
MAX_ELEMENTS = 1 << 21  # all arrays of a case together have at most this many elements
MAX_SHRINK = 24  # at most this many runs are spent on making a failing case smaller

# NumPy functions that are meant for inputs with NaN.
NAN_AWARE = frozenset(("isnan", "isfinite", "nan_to_num", "nansum", "nanmax", "nanmin", "nanmean", "fmax", "fmin"))

_RANGES = {  # for each dtype: the largest absolute value in the classes large, tiny and denormal
    "float16": ("30", "1e-3", "5e-5"),
    "bfloat16": ("1e6", "1e-20", "1e-39"),
    "float32": ("1e6", "1e-20", "1e-39"),
    "complex64": ("1e6", "1e-12", "1e-39"),
    "float64": ("1e6", "1e-20", "1e-309"),
    "complex128": ("1e6", "1e-20", "1e-309"),
}


@dataclass(frozen=True)
class Trial:
    """A case. `values`: the class of the input values. `sizes`: by name, the numbers that differ from the user's
    request. `request`: the user's request with the values and sizes of this case."""

    values: str
    sizes: Mapping[str, int]
    request: UserRequest


@dataclass
class FuzzRecord:
    """The result of fuzzing a kernel. `cases`: how many cases ran. `undecided`: the cases that could not be judged.
    `failed`: the failing case after its reduction, or None. `command`: the command line to repeat the failing case."""

    cases: int = 0
    undecided: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, Any] | None = None
    command: str | None = None


class Fuzz:
    """Makes and runs the cases of a user's kernel on one device.

    `count`: the number of cases. `where`: an expression of the numeric arguments that must be true for every case.
    Raises UsageError if no expected output is given by an expression, or if `where` is false for the user's request.
    """

    def __init__(
        self, request: UserRequest, device: Choice, settings: Settings, count: int, where: str | None = None
    ) -> None:
        self.request, self.device, self.count, self.where = replace(request, save=()), device, count, where
        # One sample is enough, because only the outputs matter here.
        self.settings = replace(settings, min_time=0.0, max_time=0.0, min_samples=1, cpu=False)
        self.problem = plan.problem(self.request)
        if not any(expectation.path is None for expectation in self.problem.expectations):
            raise UsageError(
                "--fuzz needs the outputs for other inputs: add --expect 'NAME=EXPRESSION'; a file has them for one "
                "input only."
            )
        if not self._where_holds(self.problem):
            raise UsageError(f"--where '{where}' does not hold for the arguments given: change one of them.")
        self._allowed: dict[tuple[tuple[str, int], ...], bool] = {}
        self.session = session.Session(device, self.settings)

    # Values -----------------------------------------------------------------------------------------------------------

    @cached_property
    def random_arrays(self) -> set[str]:
        """The names of the arrays whose values may change: they begin random, an expected output depends on them, and
        no expression uses them as indices."""
        parsed = [
            self.problem.parsed(expectation) for expectation in self.problem.expectations if expectation.path is None
        ]
        names = {name for expression in parsed for name in expression.names}
        index_names = {name for expression in parsed for name in precision.indices(expression)}
        return {
            array.name
            for array in self.problem.arrays
            if array.init == "random"
            and {array.name, self.problem.initial_name(array.name)} & names
            and not {array.name, self.problem.initial_name(array.name)} & index_names
        }

    @cached_property
    def size_numbers(self) -> dict[str, int]:
        """The whole numbers of the command line from which shapes are computed, by name."""
        texts = self.request.given()
        words = {name: set(re.findall(r"[^\W\d]\w*", text)) for name, text in texts.items()}
        shape_names: set[str] = set()
        for array in self.problem.arrays:
            array_text = arguments.array_parts(array_within(texts.get(array.name, ""))[1])
            shape_names |= set(re.findall(r"[^\W\d]\w*", array_text[1])) if array_text else set()
        for _ in texts:  # the loop follows numbers whose expressions use other numbers
            shape_names |= {word for name in shape_names & set(texts) for word in words[name]}
        numbers = {name: value for name, value in self.problem.numbers.items() if name in texts}
        return {
            name: value
            for name, value in numbers.items()
            if name in shape_names and isinstance(value, int) and not words[name] & set(numbers) and value > 0
        }

    def trial(self, values: str, sizes: Mapping[str, int], seed: int) -> Trial:
        """Return the case for a class of values, some sizes by name, and a seed."""
        request = replace(self._changed_request(sizes, "random"), seed=seed)
        if values != "random":
            shapes = {array.name: array for array in plan.problem(request).arrays}
            request = replace(self._changed_request(sizes, values, shapes, seed), seed=seed)
        return Trial(values, dict(sizes), request)

    def _changed_request(
        self, sizes: Mapping[str, int], values: str, shapes: Mapping[str, Array] | None = None, seed: int = 0
    ) -> UserRequest:
        """Return the request with other sizes and other initial values of arrays. `shapes`: by name, arrays with their
        dtypes and shapes; without `shapes` the initial values do not change."""
        changed = {}
        for name, value in self.request.given().items():
            before, array, behind = array_within(value)
            parts = arguments.array_parts(array)
            if name in sizes:
                prefix, colon, _ = value.rpartition(":")
                changed[name] = f"{prefix}{colon}{sizes[name]}"
            elif shapes and parts and name in self.random_arrays:
                changed[name] = f"{before}{parts[0]}[{parts[1]}]:{initial_values(values, shapes[name], seed)}{behind}"
        return self.request.with_values(changed)

    # Sizes ------------------------------------------------------------------------------------------------------------

    def is_valid(self, sizes: Mapping[str, int]) -> bool:
        """Return whether a case with these sizes has valid shapes, a valid launch and few enough elements, and meets
        --where."""
        key = tuple(sizes.items())
        if key not in self._allowed:
            request = self._changed_request(sizes, "random")
            self._allowed[key] = False
            with suppress(CudabenchError):  # raised for an invalid shape or launch
                problem = plan.problem(request)
                self._allowed[key] = (
                    self._where_holds(problem)
                    and sum(math.prod(array.shape) for array in problem.arrays) <= MAX_ELEMENTS
                    and divides_evenly(request, problem)
                    and bool(plan.build([request]).cases)
                )
        return self._allowed[key]

    def _where_holds(self, problem: UserProblem) -> bool:
        numbers = problem.numbers
        return not self.where or bool(expressions.parse(self.where, "--where", numbers).evaluate(numbers))

    def sizes(self) -> Iterator[dict[str, int]]:
        """Yield the sizes for an endless sequence of cases: first the largest valid sizes, then other sizes in turn; {}
        if no size may change."""
        options = {name: self._choices(name, base) for name, base in self.size_numbers.items()}
        for step in itertools.count():
            # Each number begins with its largest size, and steps through its sizes with a step of its own, so that many
            # combinations occur.
            candidates = [
                (name, choices[-1 - (step * (2 * order + 3)) % len(choices)])
                for order, (name, choices) in enumerate(options.items())
                if choices
            ]
            subsets = (dict(candidates[start:]) for start in range(len(candidates) + 1))
            # If the user's problem is larger than a case may be, the subsets are not allowed; then all numbers become
            # small together.
            small = ({name: min(size, base) for name, base in self.size_numbers.items()} for size in reversed(SIZES))
            yield next(filter(self.is_valid, itertools.chain(subsets, small)), {})

    def _choices(self, name: str, base: int) -> list[int]:
        """Return the possible values of the number `name`, ascending: those that are valid if the other numbers do not
        change, or if the other numbers are small. `base`: the value of the number in the request."""
        in_launch = name in set(re.findall(r"[^\W\d]\w*", f"{self.request.grid} {self.request.block}"))
        # If the launch does not depend on the number, a larger number might give more elements than the launch covers.
        most = max(base, SMALL) if in_launch else base
        candidates = sorted({size for size in (*SIZES, base - 1, base) if 0 < size <= most})
        other_sizes = {
            other_name: min(size, SMALL) for other_name, size in self.size_numbers.items() if other_name != name
        }
        return [
            size for size in candidates if self.is_valid({name: size}) or self.is_valid({**other_sizes, name: size})
        ]

    # Running ----------------------------------------------------------------------------------------------------------

    def run(self, show_progress: Callable[[str, str, float], None]) -> FuzzRecord:
        """Run cases until one fails, reduce this case, and return the record. `show_progress` is called with the
        progress."""
        record, rows = FuzzRecord(), self.sizes()
        undecided_classes: set[str] = set()
        texts = [expectation.text for expectation in self.problem.expectations if expectation.path is None]
        functions = {name for text in texts for name in re.findall(r"\bnp\.(\w+)", text)}
        dtypes = {array.dtype for array in self.problem.arrays if array.name in self.random_arrays}
        classes = (
            [name for name in CLASSES if _is_useful(name, dtypes, functions)] if self.random_arrays else ["random"]
        )
        with self.session:
            for n in range(self.count):
                values, sizes = classes[n % len(classes)], next(rows)
                show_progress(self.request.kernels[0] if self.request.kernels else "", "fuzzing", n / self.count)
                plainer = [(values, sizes), ("random", sizes), ("random", {})]
                for kind, extents in dict.fromkeys((v, tuple(s.items())) for v, s in plainer):
                    if not self.is_valid(dict(extents)):
                        continue
                    trial, reason = self._with_tolerance(self.trial(kind, dict(extents), self.request.seed + 1 + n))
                    if reason is None:
                        break
                    if kind not in undecided_classes:  # report each undecided class once
                        undecided_classes.add(kind)
                        record.undecided.append({"values": kind, "sizes": dict(extents), "reason": reason})
                else:
                    continue
                record.cases += 1
                if fault := self._fault(trial):
                    trial, fault = self._reduce(trial, fault)
                    record.failed = {
                        "values": trial.values,
                        "sizes": dict(trial.sizes),
                        "seed": trial.request.seed,
                        "reason": fault.reason,
                    }
                    record.command = command(trial.request, self.device)
                    break
        return record

    def _with_tolerance(self, trial: Trial) -> tuple[Trial, str | None]:
        """Return (the case with the tolerance that rounding needs; the reason why the case cannot judge the kernel, or
        None)."""
        judgement = precision.judge(plan.problem(trial.request), trial.request.seed)
        if judgement.atol is not None:
            trial = replace(trial, request=replace(trial.request, atol=float(f"{judgement.atol:.3g}")))
        return trial, judgement.undecided

    def _fault(self, trial: Trial) -> Result | None:
        """Run a case, and return its result if it is wrong or failed; None if it is correct."""
        try:
            series = plan.build([trial.request])
            result = self.session.result(series.make, series.cases[0])
        except UsageError:  # the command line does not accept these values
            return None
        # The kernel may have left memory on the device's heap. The next case needs a fresh heap.
        if any(warning.code == "malloc" for warning in result.warnings):
            self.session.end()
        return result if result.status in ("wrong", "failed") else None

    def _reduce(self, trial: Trial, fault: Result) -> tuple[Trial, Result]:
        """Return (simpler case that fails too, its result). Random values are tried first, then smaller sizes."""
        runs_left = MAX_SHRINK

        def fails(values: str, sizes: Mapping[str, int]) -> bool:
            nonlocal trial, fault, runs_left
            if runs_left <= 0 or not self.is_valid(sizes):
                return False
            runs_left -= 1
            smaller, reason = self._with_tolerance(self.trial(values, sizes, trial.request.seed))
            smaller_fault = None if reason is not None else self._fault(smaller)
            if smaller_fault is not None:
                trial, fault = smaller, smaller_fault
            return smaller_fault is not None

        if trial.values != "random":
            fails("random", trial.sizes)
        if trial.sizes:
            fails(trial.values, {})
        all_sizes = {**self.size_numbers, **trial.sizes}
        for size in SIZES:
            sizes = {name: min(size, extent) for name, extent in all_sizes.items()}
            if sizes == all_sizes or fails(trial.values, _changed_sizes(sizes, self.size_numbers)):
                break
        for name in self.size_numbers:
            all_sizes = {**self.size_numbers, **trial.sizes}
            for size in SIZES:
                if size >= all_sizes[name] or fails(
                    trial.values, _changed_sizes({**all_sizes, name: size}, self.size_numbers)
                ):
                    break
        return trial, fault


def _changed_sizes(sizes: Mapping[str, int], numbers: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if size != numbers[name]}


def _is_useful(values: str, dtypes: set[str], functions: set[str]) -> bool:
    """Return whether a class of values is useful: its values differ from those of `random` for one of the types, and
    the expected output is defined for these values."""
    floats = {dtype for dtype in dtypes if dtype.startswith(("float", "bfloat", "complex"))}
    if values in ("denormal", "infinity", "large", "not-positive", "signed-zero", "tiny"):
        return bool(floats)
    if values == "nan":
        return bool(floats) and bool(functions & NAN_AWARE)
    return values == "random" or bool(dtypes)


def initial_values(values: str, array: Array, seed: int) -> str:
    """Return the initial values of an array for a class of values, in the syntax of --arg, such as 'uniform(-1,0)'."""
    dtype = array.dtype
    if dtype == "bool":
        return {"zeros": "zeros", "ties": "ones"}.get(values, "random")
    axes = len(array.shape)
    if values == "spike":
        indices = [min(((seed * 7919 + 2 * at) % extent) | 1, extent - 1) for at, extent in enumerate(array.shape)]
        condition = "&".join(f"(i{axis}=={index})" for axis, index in enumerate(indices))
        return f"{1000 if dtype in _RANGES else 100}*({condition})"
    starts = {"zeros": "zeros", "ties": "integers(0,3)"}
    if dtype in _RANGES:
        large, tiny, denormal = _RANGES[dtype]
        flat = "+".join(f"{3**at if at else 1}*i{axis}" for at, axis in enumerate(reversed(range(axes))))
        rotation = f"(7*({flat})+{seed})"
        starts |= {
            "negative": "uniform(-1,0)",
            "signed-zero": f"np.where({rotation}%2==0,-0.0,1.0*({rotation}%3-1))",
            "not-positive": f"np.where({rotation}%5<2,-0.0,-1.0*({rotation}%3))",
            "mixed": "normal(0,1)",
            "whole": "integers(-100,100)",
            "large": f"uniform(-{large},{large})",
            "tiny": f"uniform(-{tiny},{tiny})",
            "denormal": f"uniform(-{denormal},{denormal})",
            "infinity": f"np.where(({flat})%5==2,np.where(({flat})%2==0,inf,-inf),({flat})%7-3)",
            "nan": f"np.where(({flat})%5==2,nan,({flat})%7-3)",
        }
    elif dtype.startswith("int"):
        starts |= {"negative": "integers(-100,0)", "mixed": "integers(-100,100)", "whole": "integers"}
    else:
        starts |= dict.fromkeys(("negative", "mixed", "whole"), "integers")
    return starts.get(values, "random")


# A launch ------------------------------------------------------------------------------------------------------------


def divides_evenly(request: UserRequest, problem: UserProblem) -> bool:
    """Return whether every // in --grid and --block divides without remainder. For example, n//256 in the user's --grid
    shows that the kernel accepts only multiples of 256."""
    for text, option in ((request.grid, "--grid"), (request.block, "--block")):
        if text is None or "//" not in text:
            continue
        values = expressions.parse(text.replace("//", "/"), option, problem.numbers).evaluate(problem.numbers)
        if any(float(value) != math.floor(value) for value in (values if isinstance(values, tuple) else (values,))):
            return False
    return True


# A line --------------------------------------------------------------------------------------------------------------


def command(request: UserRequest, device: Choice) -> str:
    """Return the command line that repeats a request."""
    return shlex.join([*request.words(), "--device", device.name])


def fuzz_all(
    requests: Sequence[UserRequest],
    run: Run,
    settings: Settings,
    count: int,
    where: str | None,
    tell: Callable[[Result, FuzzRecord], None],
) -> None:
    """Fuzz each kernel that was correct in a run, on the device of its result; if a case fails, the result becomes
    wrong.

    `requests`: one request for each kernel. `count`, `where`: see `Fuzz`. `tell` is called with each new result and its
    record.
    """
    by_name = {(request.file, request.kernels[0]): request for request in requests}
    with run.listener(len(run.file.results)) as shown:
        for result in list(run.file.results):
            request = by_name.get((result.source, result.kernel))
            device = next((choice for choice in run.devices if choice.name == result.device), run.devices[0])
            if result.status != "ok" or request is None:
                continue
            record = Fuzz(request, device, settings, count, where).run(shown.show_progress)
            updated = replace(result, fuzz=asdict(record))
            if record.failed:
                updated = replace(
                    without_times(updated),
                    status="wrong",
                    reason=f"with {_case_text(record.failed)}: {record.failed['reason']}",
                )
            run.replace(result, updated)
            run.write()
            tell(updated, record)


def report_lines(result: Result, record: FuzzRecord) -> list[str]:
    """Return the sentences that report how the fuzzing of a kernel ended."""
    if record.failed:
        lines = [f"fuzz: {result.kernel} is wrong with {_case_text(record.failed)}. To repeat it: {record.command}"]
        if record.failed["sizes"]:
            name = next(iter(record.failed["sizes"]))
            lines.append(f"If the kernel does not take such sizes, give its sizes, as in --where '{name}%16==0'.")
        return lines
    plural = "s" * (record.cases != 1)
    return [
        f"fuzz: {result.kernel} is right in {record.cases} more case{plural}.",
        *(
            f"fuzz: {undecided['values']} values were not used: {undecided['reason']}."
            for undecided in record.undecided
        ),
    ]


def _case_text(failed: Mapping[str, Any]) -> str:
    sizes = "".join(f", {name}={size}" for name, size in failed["sizes"].items())
    return f"{failed['values']} values{sizes}, seed {failed['seed']}"


def without_times(result: Result) -> Result:
    """Return a result without its time and the rates computed from it, because a wrong kernel has no valid time."""
    return replace(
        result, time=None, bandwidth_gbps=None, gflops=None, copy_gbps=None, copy_fraction=None, peak_fraction=None,
        speedup_vs_cpu=None,
    )  # fmt: skip


def each_kernel(requests: Sequence[UserRequest], series: Sequence[Series]) -> list[UserRequest]:
    """Return one request for each kernel of the series; a request whose kernel is a glob becomes several."""
    kernel_requests = []
    for case in (case for each_series in series for case in each_series.cases):
        of_file = [request for request in requests if request.file == case.source.name]
        matching = next(
            (request for request in of_file if not request.kernels or case.kernel in request.kernels), of_file[0]
        )
        kernel_requests.append(replace(matching, kernels=(case.kernel,)))
    return kernel_requests
