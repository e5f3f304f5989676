"""Which repetition is meant by what somebody has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from labctl.exits import UsageProblem
from labctl.report.judgement import claims
from labctl.results import provenance
from labctl.simulate.recorded.repetition import is_of_other_code, which
from tests.support import synthetic
from tests.support.synthetic import Spec

D_TX, S_TX = claims.cell("d-tx"), claims.cell("s-tx")


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return synthetic.write(tmp_path / "result", Spec((D_TX, S_TX), repetitions=2, transactions=1, warm_up=0))


def test_a_cell_and_a_number_name_one_and_the_first_is_the_default(result: Path) -> None:
    assert which(result, S_TX.id, 2) == result / "cells" / S_TX.id / "02"
    assert which(result, S_TX.id) == result / "cells" / S_TX.id / "01"


def test_of_a_result_with_one_cell_it_need_not_be_named(tmp_path: Path) -> None:
    result = synthetic.write(tmp_path / "one", Spec((D_TX,), repetitions=1, transactions=1, warm_up=0))
    assert which(result).parent.name == D_TX.id


def test_a_folder_of_histories_is_meant_itself(tmp_path: Path) -> None:
    assert which(tmp_path) == tmp_path
    with pytest.raises(UsageProblem, match="leave out --cell"):
        which(tmp_path, S_TX.id)


def test_what_is_not_there_is_told_with_what_is(result: Path) -> None:
    with pytest.raises(UsageProblem, match=f"several cells: give --cell, one of {D_TX.id}, {S_TX.id}"):
        which(result)
    with pytest.raises(UsageProblem, match="no cell 's-ty'; choose from"):
        which(result, "s-ty")
    with pytest.raises(UsageProblem, match=r"no repetition 3 of .*; choose from 1, 2"):
        which(result, S_TX.id, 3)
    with pytest.raises(UsageProblem, match="there is no folder"):
        which(result / "nowhere")


def test_a_run_by_other_code_is_known(result: Path) -> None:
    part = which(result, S_TX.id)
    assert is_of_other_code(part)
    run = result / "run.json"
    run.write_text(run.read_text().replace(synthetic.CODE["broker"], provenance.code()["broker"]))
    assert not is_of_other_code(part)
    assert not is_of_other_code(result.parent)
