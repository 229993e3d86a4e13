"""What is sent to workers: the secrets apart from the flow, and none of them shown."""

from __future__ import annotations

import pickle
import stat
from typing import TYPE_CHECKING

import cloudpickle
import pytest

import millstream as ms
from millstream.config import Config
from millstream.launch.job import deploy
from millstream.launch.machine import path_guard
from millstream.launch.options import LaunchOptions
from millstream.launch.packaging import packed, parted, unpacked
from millstream.launch.snapshot_context import SnapshotContext
from millstream.launch.worker_main import Bootstrap
from millstream.protocol.handshake import Protection
from millstream.protocol.ids import PeerId
from millstream.runtime.tls import make_certificate

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.runtime.deployment import Deployment

SECRET = b"the-secret-of-the-job-0123456789"
KEY = b"the-key-of-the-state-directory-0"
PASSWORDS = ("hunter2", "hunter3", "hunter4", "hunter5")
STATE = "memory://bob:hunter4@host/state"


def secretive(folder: Path) -> Deployment:
    """Deploy a flow with a credential wherever there may be one."""
    import fsspec  # noqa: PLC0415 - takes a while to load

    url = f"memory://bob:hunter2@host{folder}/in.txt"
    system, path = fsspec.core.url_to_fs(url)
    system.pipe_file(path, b"row\n")
    flow = ms.Flow("secretive")
    lines = flow.read_text(url)
    lines.write_text(f"memory://bob:hunter3@host{folder}/out")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    pairs = lines.map(lambda line: (line,))
    pairs.write_postgres("host=db password=hunter5", "words", columns=["word"])
    context = SnapshotContext("job", "run", STATE, KEY)
    return deploy(flow.plan, Config(), 2, context)


def bootstrap(deployment: bytes) -> Bootstrap:
    return Bootstrap(
        PeerId(1),
        SECRET,
        b"job",
        ("127.0.0.1", 1),
        deployment,
        (),
        1,
        Protection.TLS,
        make_certificate(),
    )


def test_the_flow_travels_without_its_secrets(tmp_path: Path) -> None:
    """What is large may be written to a file on the way; what is secret is small."""
    deployment = secretive(tmp_path)
    secrets, body = parted(packed(deployment))

    assert not [word for word in PASSWORDS if word.encode() in body]
    assert KEY not in body
    assert all(word.encode() in secrets for word in PASSWORDS)
    assert KEY in secrets
    with unpacked(secrets + body) as found:
        again = cloudpickle.dumps(found)
        assert all(word.encode() in again for word in PASSWORDS)
        assert (found.state_key, found.state_directory) == (KEY, STATE)


def test_nothing_that_is_printed_shows_a_secret(tmp_path: Path) -> None:
    """A repr ends up in a log, in a debugger's transcript, in a report of a bug."""
    deployment = secretive(tmp_path)
    options = LaunchOptions(
        state=STATE, resume_from=STATE, master="sc://h/;token=hunter2"
    )
    shown = [
        repr(bootstrap(packed(deployment))),
        repr(deployment),
        repr(SnapshotContext("job", "run", STATE, KEY)),
        repr(options),
        *(
            repr(node.spec)
            for stage in deployment.stages.stages
            for node in stage.nodes
        ),
    ]

    for text in shown:
        assert not [word for word in PASSWORDS if word in text]
        assert SECRET.decode() not in text
        assert KEY.decode() not in text


def test_splits_hold_no_credential(tmp_path: Path) -> None:
    """They are stored with the first snapshot, and outlive the password."""
    deployment = secretive(tmp_path)
    stored = pickle.dumps((deployment.splits, deployment.sources))

    assert b"in.txt" in stored
    assert not [word for word in PASSWORDS if word.encode() in stored]


def test_two_flows_side_by_side_keep_their_own(tmp_path: Path) -> None:
    """What one has put aside is not found by the other."""
    first = packed(secretive(tmp_path / "a"))
    second = packed(secretive(tmp_path / "b"))
    with unpacked(first) as one, unpacked(second) as other:
        places = [
            pickle.dumps(each.stages.stages[0].nodes[0].spec) for each in (one, other)
        ]

    assert str(tmp_path / "a").encode() in places[0]
    assert str(tmp_path / "b").encode() in places[1]


def test_a_directory_that_another_user_may_have_made_is_not_trusted(
    tmp_path: Path,
) -> None:
    """Modules of it would run in the worker."""
    can_trust = pickle.loads(cloudpickle.dumps(path_guard(trusts_all=False)))
    ours, everybodys = tmp_path / "ours", tmp_path / "everybodys"
    for path in (ours, everybodys, everybodys / "made"):
        path.mkdir()
    (tmp_path / "link").symlink_to(everybodys)
    everybodys.chmod(0o777)

    assert can_trust(str(ours))
    assert not can_trust(str(tmp_path / "missing"))
    assert not can_trust(str(everybodys))
    assert not can_trust(str(everybodys / "made"))
    assert not can_trust(str(tmp_path / "link"))
    everybodys.chmod(0o777 | stat.S_ISVTX)
    assert not can_trust(str(everybodys))
    assert can_trust(str(everybodys / "made"))
    assert path_guard(trusts_all=True)(str(everybodys))
