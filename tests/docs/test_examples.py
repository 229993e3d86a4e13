"""Every example runs as its first lines say, on every launcher, with the same output."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.cli.main import main

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINES_MAX = 75

EXPECTED = {
    "abandoned_carts.py": (
        "minute  50: ada has left a pear and a plum\nminute  56: bob has left a pear\n"
        "minute 100: cyd has left a fig\n"
    ),
    "connected_components.py": (
        "ada ada, bob ada, cyd ada, dan dan, eve dan, fay fay, gus dan\n"
        "the same as they come: True\n"
    ),
    "custom_source_and_sink.py": "Sundays written: 52\n",
    "k_means.py": " -8.00   3.00\n  0.01  -5.00\n  7.00   4.01\n",
    "log_top_k.py": (
        " 5,036  /\n 2,518  /docs\n 1,168  /docs/install\n   604  /about\n"
        "   289  /blog/1\n   197  failures\n"
    ),
    "logistic_regression.py": "weights 2.0 -1.0 0.5\n",
    "page_rank.py": (
        "home     0.3087\ndocs     0.2759\nabout    0.1507\ninstall  0.1473\n"
        "blog     0.1175\n"
    ),
    "resume_after_crash.py": (
        "the first run ended with code -9\nevery row exactly once: True\n"
    ),
    "retry_with_backoff.py": (
        "sent: 1000 of 1000\nat the first try: 515, after more than 3: 98\n"
    ),
    "running_totals.py": (
        "ada: 100 70 40 10 210 209\nbob: 20 15 30 20\nalarm 1 for ada: [30, 30, 30]\n"
    ),
    "sensor_averages.py": (
        "attic     24.0 °C\ncellar    12.0 °C\ngarden     9.0 °C\nkitchen   21.0 °C\n"
    ),
    "shortest_paths.py": (
        "mill   0 km\nhill   1 km\nford   3 km\nlake   8 km\nmoor  11 km\n"
    ),
    "transitive_closure.py": (
        "release 0: 8 dependencies\nrelease 1: 12 dependencies\n"
        "release 2: 16 dependencies\n"
    ),
    "unpaid_orders.py": (
        "order 1:  20 euros, paid in hour 5\norder 2:  12 euros, paid in hour 20\n"
        "order 3:  15 euros, not paid in time\norder 4:  36 euros, paid in hour 30\n"
        "too late: ['3']\n"
    ),
    "word_count.py": (
        "The ten most frequent words:\n   2,232  the\n   1,689  of\n   1,333  and\n"
        "   1,114  to\n     942  a\n     747  in\n     700  that\n     625  it\n"
        "     531  was\n     513  is\n"
    ),
}


def command(*words: str) -> int | str | None:
    """Carry out a command in this process, which has imported everything already."""
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return end.value.code


def run_example(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run an example from the command line, as a reader of its docstring would."""
    command = [sys.executable, "-m", "millstream", "run", str(path), *options]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize(
    "launcher",
    [
        "local",
        pytest.param("processes", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_prints_the_same_on_every_launcher(
    path: Path,
    launcher: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What runs in one process runs on a cluster, and says the same."""
    monkeypatch.chdir(ROOT)

    assert command("run", str(path), "--on", launcher, "--workers", "2") == 0
    assert capsys.readouterr().out.startswith(EXPECTED[path.name])


ON_SPARK = """
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.cli.main import main

os.environ["PYSPARK_PYTHON"] = sys.executable
SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for example in sys.argv[1:]:
    print(f"--- {Path(example).name}", flush=True)
    try:
        main(["run", example, "--on", "spark", "--workers", "2"])
    except SystemExit as end:
        assert end.code == 0, example
"""


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_examples_print_the_same_on_spark() -> None:
    """One session for all of them, which takes a while to start."""
    command = [sys.executable, "-c", ON_SPARK, *map(str, EXAMPLES)]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )

    assert ended.returncode == 0, ended.stderr
    for printed in ended.stdout.split("--- ")[1:]:
        name, _, output = printed.partition("\n")
        assert output.startswith(EXPECTED[name]), output
    assert ended.stdout.count("--- ") == len(EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_gives_the_same_in_the_simulator(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of every sink are those of a calm run, or the job fails cleanly."""
    monkeypatch.chdir(ROOT)

    assert command("simulate", str(path), "--seeds", "3") == 0
    assert "3 seeds, 0 with problems" in capsys.readouterr().out


def test_word_count_says_how_long_it_took_and_where_to_go_next() -> None:
    """It is what `make demo` shows to somebody who sees Millstream for the first time."""
    ended = run_example(ROOT / "examples" / "word_count.py", "--on", "local")

    assert re.search(r"Counted in \d+\.\d\d s", ended.stdout)
    assert "README.md" in ended.stdout
    assert "examples/" in ended.stdout


def test_log_example_takes_its_argument_from_the_command_line() -> None:
    """What follows `--` belongs to the job file."""
    path = ROOT / "examples" / "log_top_k.py"

    ended = run_example(path, "--on", "local", "--", "1")

    assert ended.stdout == " 5,036  /\n   197  failures\n"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_how_to_run_it(path: Path) -> None:
    """An example has one idea; its docstring, which is not counted, explains it."""
    text = path.read_text()
    doc = ast.get_docstring(ast.parse(text), clean=False) or ""

    assert f"millstream run examples/{path.name}" in doc
    assert len(text.splitlines()) - len(doc.splitlines()) < LINES_MAX


def test_every_example_has_its_output_checked() -> None:
    """A new example needs an entry above."""
    assert {path.name for path in EXAMPLES} == set(EXPECTED)
