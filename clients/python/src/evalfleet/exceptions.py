"""Exceptions by reason.

    try:
        await sandbox.read("answer.txt")
    except exceptions.FileNotFound as missing:
        print(missing.facts["path"])
    except exceptions.EvalfleetError as failure:
        print(failure.reason, failure)

docs/errors.md lists the reasons with their facts.
"""

import grpc

from evalfleet._error import EvalfleetError
from evalfleet._reasons import *  # noqa: F403
from evalfleet._reasons import ServiceUnavailable as _ServiceUnavailable
from evalfleet._reasons import __all__ as _reasons

__all__ = ["EvalfleetError", "ServerUnreachable", "ServerUntrusted", *_reasons]


class ServerUnreachable(_ServiceUnavailable):
    """No server answers: none runs, its address is wrong, or it stayed away for longer than the client's `patience`."""

    code = grpc.StatusCode.UNAVAILABLE


class ServerUntrusted(EvalfleetError):
    """There is no TLS connection.

    No CA of the client's `credentials` signed the certificate, or it names another host, or the server has no TLS.
    """

    code = grpc.StatusCode.UNAVAILABLE
