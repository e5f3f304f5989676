"""A clouds.yaml that is missing, broken or incomplete: a sentence each, before any cloud is talked to."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from labctl.cli import app
from tests.openstack.services import free_ports

# The library warns of what it does itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

COMPLETE = """clouds:
  x:
    auth:
      auth_url: http://127.0.0.1:{port}/v3
      username: me
      password: secret
      project_name: p
      user_domain_id: default
      project_domain_id: default
"""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OS_CLOUD", "OS_PASSWORD", "OS_AUTH_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))


def sentence(folder: Path, text: str | None, *more: str) -> str:
    if text is not None:
        (folder / "clouds.yaml").write_text(text)
    done = CliRunner().invoke(
        app, ["provision", "--testbed", "openstack", "--brokers", "1", "--dry-run", *more]
    )
    assert done.exit_code == 4, done.output
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    assert "there is no clouds.yaml" in sentence(tmp_path, None)
    assert "has no cloud 'x'; it has none" in sentence(tmp_path, None, "--cloud", "x")


def test_a_file_that_is_no_mapping_is_said(tmp_path: Path) -> None:
    assert "not a valid mapping" in sentence(tmp_path, "hello\n", "--cloud", "x")


def test_an_unknown_cloud_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    assert "has no cloud 'y'; it has x" in sentence(tmp_path, COMPLETE.format(port=1), "--cloud", "y")


def test_a_missing_password_is_said(tmp_path: Path) -> None:
    incomplete = COMPLETE.format(port=1).replace("      password: secret\n", "")
    assert "no password is given for the cloud 'x'" in sentence(tmp_path, incomplete, "--cloud", "x")


def test_a_cloud_that_does_not_answer_is_named_with_its_address_and_without_the_password(
    tmp_path: Path,
) -> None:
    [closed] = free_ports(1)
    said = sentence(tmp_path, COMPLETE.format(port=closed), "--cloud", "x")
    assert f"the cloud x does not answer at http://127.0.0.1:{closed}/v3" in said
    assert "secret" not in said
