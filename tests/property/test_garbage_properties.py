"""Collection of garbage over random histories of commits, losses and restarts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.snapshot_checks import Subject
from tests.support.snapshots import Driver, MemoryFiles

from millstream.protocol.ids import Epoch
from millstream.state.layout import ManifestId, parsed_state_file

STEPS = st.lists(
    st.one_of(
        st.sampled_from(["commit", "commit", "abandon", "open", "restart", "damage"]),
        st.integers(1, 3),  # a collection that retains so many
    ),
    max_size=30,
)


class Story:
    """A job to which things happen, and what must be there."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.runs = 0
        self.open: set[str] = set()
        self.driver = self.restarted()

    def restarted(self) -> Driver:
        """Return another driver; what the last one had open is garbage now."""
        self.runs += 1
        self.open = set()
        return Subject().started(self.files, f"run{self.runs}")

    def happen(self, step: str | int) -> None:
        driver = self.driver
        if isinstance(step, int):
            self.collect(step)
        elif step == "commit":
            driver.commit()
            self.open = set()
        elif step == "abandon":
            driver.epoch += 1
            driver.seal(0)
            self.open = set()
        elif step == "open":
            driver.epoch += 1
            self.open = {driver.seal(task).name for task in range(2)}
            driver.epoch -= 1
        elif step == "restart":
            self.driver = self.restarted()
        else:
            self.damage()

    def damage(self) -> None:
        """Spoil the newest manifest if it is not the only one."""
        newest = self.driver.store.manifests()[:2]
        if len(newest) > 1:
            self.files.content[newest[0].name] = b"damaged"

    def collect(self, retain: int) -> None:
        store = self.driver.store
        oldest = Epoch(self.driver.epoch + 1)
        wanted = self.usable()[:retain]
        store.collect_garbage(retain, oldest_open=oldest)
        assert self.usable() == wanted
        manifests = [store.load(each) for each in wanted]
        if self.driver.last is not None:
            manifests.append(self.driver.last)
        kept = {ref.name for each in manifests for ref in each.references()}
        for name in self.files.names("epochs"):
            file = parsed_state_file(name)
            assert file is not None
            is_open = file.run == self.driver.run and file.epoch >= oldest
            assert name in kept or is_open, f"{name} is an orphan"
        assert kept | self.open <= set(self.files.content)

    def usable(self) -> list[ManifestId]:
        """Return the manifests that are whole with all their files."""
        store = self.driver.store
        found = [(each, *store.inspect(each)) for each in store.manifests()]
        return [each for each, manifest, wrong in found if manifest and not wrong]


@given(STEPS)
def test_what_a_retained_manifest_lists_is_there_and_orphans_go(
    steps: list[str | int],
) -> None:
    """Over restarts, abandoned epochs and damaged manifests."""
    story = Story()
    for step in [*steps, 1]:
        story.happen(step)
