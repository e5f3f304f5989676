"""What can go wrong for a program that uses the client library; one type per thing a caller can do about it."""

from __future__ import annotations


class ClientError(Exception):
    """Base of all errors of this library; the text is a sentence for a person."""


class ConnectionFailed(ClientError):
    """No broker answered at that address, or the connection was lost and could not be resumed."""


class RefusedByBroker(ClientError):
    """The broker does not take this client or this request; `code` is for programs."""

    def __init__(self, reason: str, code: str = "refused") -> None:
        super().__init__(reason)
        self.code = code


class ClientIdInUse(RefusedByBroker):
    """Another client has this id somewhere in the overlay."""


class SlowConsumer(ClientError):
    """The broker disconnected this client because too much was waiting for it."""


class InvalidFilter(ClientError, ValueError):
    """The filter or event cannot mean anything: NaN, a bool, an empty interval, mixed types."""


class TooLarge(ClientError, ValueError):
    """Well-formed, but above a limit of the overlay."""


class NotAdvertised(ClientError):
    """A publication outside what this client advertises."""


class SessionClosed(ClientError):
    """The session has ended; the text says why."""


class TimedOut(ClientError):
    """No answer in time: whether the request took effect is not known."""


class TransactionAborted(ClientError):
    """Nothing of the transaction has happened; the text says why."""


class OutcomeUnknown(ClientError):
    """The transaction was about to commit, or has committed in part; the text says what is known."""
