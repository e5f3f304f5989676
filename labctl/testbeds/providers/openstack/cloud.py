"""The connection to a cloud, and what its errors mean in plain words.

openstacksdk is loaded here, when a cloud is needed: it takes a second. Its proxies are typed loosely on
purpose; what we read from them goes into types of our own at once.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from labctl.retry import try_again
from labctl.testbeds.providers.provider import ProviderError
from labctl.testbeds.testbed import OpenStackOptions, Testbed
from labctl.testbeds.timeouts import Timeouts

if TYPE_CHECKING:
    import openstack

Answer = TypeVar("Answer")

COMPUTE_MICROVERSION = "2.52"
"""The first in which a server is tagged in the request that creates it; it has soft anti-affinity, too."""


class CloudRefused(ProviderError):
    """The cloud's answer is certain: nothing was done."""


class Conflict(CloudRefused):
    """Not now: the thing is in use, or in the middle of something."""


class Cloud:
    """One cloud as one user of one project."""

    def __init__(self, connection: openstack.connection.Connection, name: str, timeouts: Timeouts) -> None:
        self.name = name
        self.timeouts = timeouts
        self._connection = connection
        with plainly(self, "log in"):
            connection.authorize()
            # Made here once: the proxies are made when first asked for, which threads must not do at once.
            self.compute: Any = connection.compute
            self.network: Any = connection.network
            self.image: Any = connection.image
            self.project: str = str(connection.current_project_id)

    @property
    def auth_url(self) -> str:
        return str(self._connection.config.config.get("auth", {}).get("auth_url", ""))

    @property
    def user(self) -> str:
        auth = self._connection.config.config.get("auth", {})
        return str(auth.get("username") or auth.get("user_id") or "this user")

    def own_address(self) -> str:
        """The address from which this machine talks to the cloud; no packet is sent."""
        url = urlsplit(self.auth_url)
        family, _, _, _, there = socket.getaddrinfo(url.hostname, url.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(there)
            return str(probe.getsockname()[0])

    def close(self) -> None:
        self._connection.close()


def open_cloud(testbed: Testbed) -> Cloud:
    """Find the cloud in clouds.yaml or the environment, and log in."""
    import openstack
    from keystoneauth1 import exceptions as auth_errors
    from openstack import exceptions

    for logger in ("keystoneauth", "openstack"):
        # They would tell in their own words, on stderr, what we say in ours.
        logging.getLogger(logger).addHandler(logging.NullHandler())
    assert isinstance(testbed.options, OpenStackOptions)
    wanted = testbed.options.cloud or os.environ.get("OS_CLOUD", "")
    known: list[str] = []
    try:
        loader = openstack.config.OpenStackConfig()
        known = sorted(set(loader.get_cloud_names()) - {"defaults", "envvars"})
        region = loader.get_one(cloud=wanted or None, compute_default_microversion=COMPUTE_MICROVERSION)
        region.config["api_timeout"] = testbed.timeouts.request_s
        _check_password(wanted, region.config)
        connection = openstack.connection.Connection(config=region)
    except (exceptions.ConfigException, auth_errors.ClientException) as error:
        raise ProviderError(_no_such_cloud(wanted, known, _one_line(str(error)))) from None
    return Cloud(connection, wanted or "of the environment", testbed.timeouts)


def _check_password(wanted: str, config: Mapping[str, Any]) -> None:
    """The library says this with an exception of no kind at all."""
    by_password = "password" in (config.get("auth_type") or "password")
    if by_password and config.get("auth") and not config["auth"].get("password"):
        raise ProviderError(
            f"no password is given for the cloud {wanted!r}: write it into clouds.yaml or secure.yaml, or set "
            "OS_PASSWORD"
        )


def _no_such_cloud(wanted: str, known: list[str], said: str) -> str:
    if not wanted:
        hint = f"clouds.yaml has {', '.join(known)}" if known else f"there is no clouds.yaml ({said})"
        return f"which cloud? Name one with --cloud, OS_CLOUD or in the testbed file; {hint}"
    if wanted in known:
        return f"the cloud {wanted!r} cannot be used as clouds.yaml describes it: {said}"
    hint = f"it has {', '.join(known)}" if known else f"it has none ({said})"
    return f"clouds.yaml has no cloud {wanted!r}; {hint}"


@contextmanager
def plainly(cloud: Cloud, doing: str) -> Iterator[None]:
    """Whatever goes wrong in a request becomes one sentence about what was being done.

    `CloudRefused` where the cloud has answered no; a plain `ProviderError` where it is unknown what it did.
    """
    import requests
    from keystoneauth1 import exceptions as auth_errors
    from openstack import exceptions

    try:
        yield
    except exceptions.HttpException as error:
        raise _answered(cloud, doing, error.status_code or 0, str(error.details or error)) from None
    except (auth_errors.Unauthorized, auth_errors.MissingRequiredOptions) as error:
        raise _denied(cloud, str(error)) from None
    except auth_errors.HttpError as error:
        raise _answered(cloud, doing, error.http_status, str(error)) from None
    except (auth_errors.ConnectFailure, auth_errors.SSLError) as error:
        raise ProviderError(_unreachable(cloud, doing, str(error))) from None
    except (exceptions.SDKException, auth_errors.ClientException, requests.RequestException) as error:
        # The library wraps some of the above into its own error, and leaves only the text.
        raise _by_text(cloud, doing, str(error)) from None


def patiently(ask: Callable[[], Answer], timeouts: Timeouts) -> Answer:
    """Repeat a question while it has no answer: one lost packet must not end what took minutes.

    Only for what changes nothing. That the cloud says no is an answer.
    """

    def is_silence(error: Exception) -> bool:
        return isinstance(error, ProviderError) and not isinstance(error, CloudRefused)

    return try_again(is_silence, ask, timeouts.retry_s, timeouts.poll_s)


def _answered(cloud: Cloud, doing: str, status: int, said: str) -> ProviderError:
    said = _one_line(said)
    if status == 401:
        return _denied(cloud, said)
    if "uota" in said:
        return CloudRefused(
            f"quota exceeded, cannot {doing}: {said}; delete something or ask for a higher quota"
        )
    if status == 403:
        return CloudRefused(f"{cloud.user} may not {doing} in the cloud {cloud.name}: {said}")
    if status == 409:
        return Conflict(f"cannot {doing}: {said}")
    if 400 <= status < 500:
        return CloudRefused(f"the cloud {cloud.name} refuses to {doing}: {said}")
    return ProviderError(f"the cloud {cloud.name} failed to {doing} (HTTP {status}): {said}")


def _denied(cloud: Cloud, said: str) -> ProviderError:
    return CloudRefused(
        f"the cloud {cloud.name} does not let {cloud.user} in: wrong user name, password or project; check "
        f"clouds.yaml ({_one_line(said)})"
    )


def _by_text(cloud: Cloud, doing: str, said: str) -> ProviderError:
    if "HTTP 401" in said or "requires authentication" in said:
        return _denied(cloud, said)
    if "Unable to establish connection" in said:
        return ProviderError(_unreachable(cloud, doing, said))
    return ProviderError(f"cannot {doing} in the cloud {cloud.name}: {_one_line(said)}")


def _unreachable(cloud: Cloud, doing: str, said: str) -> str:
    match = re.search(r"connection to (\S+?):? ", said)
    where = match[1] if match else cloud.auth_url
    return f"cannot {doing}: the cloud {cloud.name} does not answer at {where}; is the address right, and is there a network?"


def _one_line(said: str) -> str:
    return " ".join(said.split())[:300].rstrip(".")
