"""The short form of `make model`: each pair of policies, verbs and faults in a history."""

from __future__ import annotations

from random import Random

import pytest

from tests.core.model.elements import PAIRS, covering, pairs_of
from tests.core.model.reduce import check


@pytest.mark.histories
def test_all_pairs_go_as_the_model_says() -> None:
    random, pairs = Random(1), set[frozenset[str]]()
    for elements in covering(random):
        check(elements, random)
        pairs.update(pairs_of(elements))
    assert pairs == {*PAIRS}
