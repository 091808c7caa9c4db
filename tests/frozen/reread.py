"""Print the values of a results file that `cudabench.load` loses: each key with its number of lost values."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import cudabench


def values(node: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value below a node with its path of keys; entries of a list have the same path."""
    below = node.items() if isinstance(node, dict) else [("", one) for one in node] if isinstance(node, list) else ()
    for key, one in below:
        yield from values(one, f"{place}.{key}" if key else place)
    if not isinstance(node, (dict, list)) and node is not None:
        yield place, node


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        old = Counter(values(json.load(file)))
    lost = old - Counter(values(json.loads(json.dumps(cudabench.load(sys.argv[1]).document()))))
    print(f"{sum(old.values())} values, {sum(lost.values())} lost")
    for place, count in Counter(place for place, _ in lost.elements()).items():
        print(f"lost: {place}, {count} values")
