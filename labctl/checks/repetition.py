"""Whether a repetition of an experiment counts: the one judgement that `run`, `check` and `report` tell.

A repetition is *whole* if everything is there that `cell.json` says was to be: a line for each transaction,
and the history of each node, from its first line to its last. Of one that is not whole nothing is valid: what
is missing may have shown a fault. It has *committed* if each of its coordinators has a transaction that did: a
scenario in which every transaction fails has measured nothing, whatever else it kept. And it has kept its
promises by its histories (`labctl.checks.judge`) and by what its coordinators saw of the last messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from broker.protocol import events
from client.scenarios.approaches import approach_of
from labctl.checks import judge as histories
from labctl.checks.verdict import Answer, Verdict
from labctl.results import layout
from labctl.results.accounts import Account, Attempted, Due
from labctl.results.histories import NodeHistory

WHOLE, COMMITS, ROUTING = "whole", "commits", "routing"
NEEDED = (WHOLE, COMMITS, ROUTING)
NEEDED_OF_TRANSACTIONS = (*NEEDED, "atomicity", "liveness")
REASONS_MAX = 3


class Judged(Struct, frozen=True):
    answer: Answer
    verdicts: tuple[Verdict, ...]
    transactions: int = 0
    """That were to be committed."""
    committed: int = 0

    @property
    def reasons(self) -> list[str]:
        """Why it is not valid."""
        found = [v for v in self.verdicts if v.answer == self.answer != "valid"]
        told = [f"{verdict.property}: {text}" for verdict in found for text in verdict.faults]
        return told or [
            f"{v.property}: nothing to judge by" for v in found if v.property in NEEDED_OF_TRANSACTIONS
        ]


def overall(approach: str, answers: Mapping[str, Answer]) -> Answer:
    """One broken promise makes a repetition invalid; it is valid when all that is needed was seen."""
    if "invalid" in answers.values():
        return "invalid"
    needed = NEEDED_OF_TRANSACTIONS if approach_of(approach).is_transactional else NEEDED
    return "valid" if all(answers.get(name) == "valid" for name in needed) else "unknown"


def judge(account: Account) -> Judged:
    endings = _endings(account)
    missing = list(_missing(account, endings))
    whole = Verdict(WHOLE, "unknown" if missing else "valid", len(account.result.files), tuple(missing))
    by_histories = [replace(v, answer="unknown") if missing else v for v in _by_histories(account)]
    due = account.due
    if due is None:
        return Judged("unknown", (whole, *by_histories))
    counted = [attempt for attempt in account.attempts if not attempt.warm_up]
    verdicts = (whole, _commits(account, due, endings), _routing(due, counted), *by_histories)
    answer = overall(due.approach, {verdict.property: verdict.answer for verdict in verdicts})
    committed = sum(attempt.outcome == "committed" for attempt in counted)
    return Judged(answer, verdicts, due.counted, committed)


Endings = Mapping[str, tuple[str, str]]
"""Outcome and reason of each transaction, as its coordinator noted them."""


def _endings(account: Account) -> Endings:
    coordinators: dict[str, str] = {}
    found: dict[str, tuple[str, str]] = {}
    for line in account.result.lines() if account.result.files else ():
        tx = str(line.fields.get("tx"))
        if line.name == events.BEGIN:
            coordinators[tx] = line.node
        elif line.name == events.ENDED and coordinators.get(tx) == line.node:
            found[tx] = (str(line.fields.get("outcome")), str(line.fields.get("reason")))
    return found


# Whether it is whole


def _missing(account: Account, endings: Endings) -> Iterator[str]:
    yield from account.gaps
    yield from account.result.gaps
    due = account.due
    if due is None:
        yield f"{layout.CELL} does not say what was to be done"
        return
    yield from _missing_lines(due, account.attempts)
    for name, count in due.measured.items():
        if name != layout.TRANSACTIONS and (found := account.measured.get(name, 0)) != count:
            yield f"{name} has {found} lines that can be read, where {count} were written"
    lives: dict[str, NodeHistory] = {}
    for file in account.result.files:
        lives[file.node] = file
    for node in due.nodes:
        if node not in lives:
            yield f"there is no history of {node}"
    for node, last in lives.items():
        if last.role == "client" and not histories.has_last_word(last):
            yield f"the history of {node} ends before {node} has"
    noted = sum(outcome == "committed" for outcome, _ in endings.values())
    told = sum(attempt.outcome == "committed" for attempt in account.attempts)
    if approach_of(due.approach).is_transactional and noted < told:
        yield f"histories have {noted} transactions that committed for their coordinators, who told of {told}"


def _missing_lines(due: Due, attempts: Sequence[Attempted]) -> Iterator[str]:
    distinct = len({(attempt.copy, attempt.number) for attempt in attempts})
    if distinct != len(attempts):
        yield f"{len(attempts) - distinct} lines are of transactions that have one already"
    if distinct != due.lines:
        yield f"there are lines of {distinct} transactions, where {due.lines} were to be"


# Whether it has done what it was to do


def _commits(account: Account, due: Due, endings: Endings) -> Verdict:
    """Each coordinator has committed at least one of its transactions."""
    counted = [attempt for attempt in account.attempts if not attempt.warm_up]
    done = Counter(attempt.copy for attempt in counted if attempt.outcome == "committed")
    idle, total = max(0, due.copies - len(done)), due.counted
    text = f"{done.total()} of {total} transactions committed"
    if done and idle:
        text += f", none of {idle} of the {due.copies} coordinators"
    if done.total() < total:
        text += _why_not(counted, endings)
    if not idle:
        return Verdict(COMMITS, "valid", total, note=text)
    # What is missing may have committed, unless histories say that nothing has.
    nothing = bool(endings) and not any(outcome == "committed" for outcome, _ in endings.values())
    is_certain = len(account.attempts) == due.lines or (nothing and not account.result.gaps)
    return Verdict(COMMITS, "invalid" if is_certain else "unknown", total, (text,))


def _why_not(counted: Sequence[Attempted], endings: Endings) -> str:
    """The most frequent reasons that coordinators were given or, where they told none, noted."""
    told = [(a.outcome, a.reason) for a in counted if a.outcome != "committed" and a.reason]
    noted = [(outcome, reason) for outcome, reason in endings.values() if outcome != "committed" and reason]
    reasons = Counter(told or noted).most_common()
    texts = [f"{count} {outcome}: {reason}" for (outcome, reason), count in reasons[:REASONS_MAX]]
    if more := sum(count for _, count in reasons[REASONS_MAX:]):
        texts.append(f"{more} for other reasons")
    return f" ({'; '.join(texts)})" if texts else ""


# Whether it kept its promises


def _routing(due: Due, counted: Sequence[Attempted]) -> Verdict:
    """What coordinators and agents saw: whether each transaction's last message went to whom it should."""
    wrong = tuple(
        f"transaction {attempt.number} of coordinator {attempt.copy}: {attempt.fault or 'wrong'}"
        for attempt in counted
        if attempt.correct is False
    )
    is_exact = approach_of(due.approach).is_exact
    some = any(attempt.outcome == "committed" for attempt in counted)
    answer: Answer = "invalid" if wrong and is_exact else "valid" if some else "unknown"
    return Verdict(ROUTING, answer, len(counted), *((wrong, ()) if is_exact else ((), wrong)))


def _by_histories(account: Account) -> list[Verdict]:
    if not account.result.files:
        return []
    try:
        return histories.judge(account.result)
    except (KeyError, TypeError, ValueError, AssertionError, msgspec.MsgspecError) as error:
        # One history that makes no sense must not take the judgement of all others with it.
        text = f"the histories make no sense: {type(error).__name__}: {error}"
        return [Verdict("history", "unknown", 0, (text,))]
