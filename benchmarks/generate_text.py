"""Write prose-like text in an invented language, the same for the same seed.

Word frequencies follow Zipf's law: English function words hold the first ranks, words
made of syllables the rest.  A line has 10 to 15 words; sentences run across lines,
begin with a capital and end with punctuation.

    python benchmarks/generate_text.py --bytes 200_000_000 --seed 7 OUT

All randomness comes from `Generator.random` of a seeded PCG64 and is turned into words
by plain arithmetic, so the text does not depend on how NumPy implements `choice`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["generate"]

FUNCTION_WORDS = """
the of and to a in that it was is for on with as he be at by had not are but from or
have an they which one you were all her she there would their we him been has when who
will no more if out so said what up its about into than them can only other time new
some could these two may first then do any like my now over such our man me even most
made after also did many before must through back years where much your way well down
should because each just those people how too little state good very make world still
own see men work long here get both between life being under never day same another
know while last might us great old year off come since against go came right used take
three
""".split()  # noqa: SIM905 - one word a line would fill pages

# fmt: off
ONSETS = [
    "b", "br", "ch", "d", "dr", "f", "fl", "gl", "h", "j", "k", "l", "m", "n", "p", "pl",
    "qu", "r", "s", "sk", "st", "t", "th", "tr", "v", "w", "y", "z",
]
# fmt: on
VOWELS = ["a", "a", "e", "e", "i", "i", "o", "o", "u", "ai", "ea", "ou"]
CODAS = ["", "", "", "", "l", "m", "n", "n", "nd", "r", "s", "sh", "th"]

VOCABULARY_SIZE = 20_000
VOCABULARY_SEED = 1
RANK_OFFSET = 1.5
"""Mandelbrot's correction: flattens the first few ranks, as in real text."""

LINE_WORDS_MIN, LINE_WORDS_MAX = 10, 15
CHUNK_LINES = 80_000
CHANCE_OF_CAPITAL = 0.01
ENDINGS = ("", ",", ".", "?", "!")
CHANCE_OF_ENDING = (0.74, 0.12, 0.11, 0.02, 0.01)
SEPARATORS = (" ", "\n")
FIRST_SENTENCE_ENDING = 2


def pick(chances: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Turn uniform draws into indices that occur with the given chances."""
    bounds = np.cumsum(chances)
    return np.searchsorted(bounds[:-1] / bounds[-1], draws, side="right")


def invented_words(count: int) -> list[str]:
    """Return distinct pronounceable words, short ones mostly first."""
    rng = np.random.Generator(np.random.PCG64(VOCABULARY_SEED))
    known = set(FUNCTION_WORDS)
    words: list[str] = []
    while len(words) < count:
        syllable_count_max = 1.0 + 2.0 * len(words) / count
        word = "".join(
            sounds[int(rng.random() * len(sounds))]
            for _ in range(1 + int(rng.random() * syllable_count_max))
            for sounds in (ONSETS, VOWELS, CODAS)
        )
        if word not in known:
            known.add(word)
            words.append(word)
    return words


def spellings(words: list[str]) -> pa.Array:
    """Return every word in every form: case, then ending, then separator."""
    return pa.array(
        [
            form + ending + separator
            for word in words
            for form in (word, word.capitalize())
            for ending in ENDINGS
            for separator in SEPARATORS
        ],
        type=pa.large_string(),
    )


def line_ends(rng: np.random.Generator) -> np.ndarray:
    """Return a flag per word of a chunk that is set on the last one of a line."""
    choices = LINE_WORDS_MAX - LINE_WORDS_MIN + 1
    lengths = LINE_WORDS_MIN + (rng.random(CHUNK_LINES) * choices).astype(np.int64)
    is_last = np.zeros(lengths.sum(), dtype=bool)
    is_last[np.cumsum(lengths) - 1] = True
    return is_last


def without_repeats(words: np.ndarray) -> np.ndarray:
    """Move on to the next rank where a word would follow itself."""
    repeats = np.flatnonzero(words[1:] == words[:-1]) + 1
    words[repeats] += 1
    return words


def chunks(seed: int) -> Iterator[bytes]:
    """Yield whole lines of text, about six megabytes at a time, without end."""
    rng = np.random.Generator(np.random.PCG64(seed))
    content_count = VOCABULARY_SIZE - len(FUNCTION_WORDS)
    forms = spellings([*FUNCTION_WORDS, *invented_words(content_count)])
    # The last rank is left out so that `without_repeats` always has a next one.
    zipf = 1.0 / (np.arange(VOCABULARY_SIZE - 1) + 1.0 + RANK_OFFSET)
    while True:
        is_last = line_ends(rng)
        words = without_repeats(pick(zipf, rng.random(is_last.size)))
        endings = pick(np.array(CHANCE_OF_ENDING), rng.random(is_last.size))
        endings[words < len(FUNCTION_WORDS)] = 0
        is_capital = rng.random(is_last.size) < CHANCE_OF_CAPITAL
        is_capital[0] = True
        is_capital[1:] |= endings[:-1] >= FIRST_SENTENCE_ENDING
        form = (words * 2 + is_capital) * len(ENDINGS) + endings
        text = forms.take(pa.array(form * len(SEPARATORS) + is_last))
        yield text.buffers()[2].to_pybytes()


def generate(target: Path, size_bytes: int, seed: int) -> int:
    """Write at most `size_bytes` of whole lines to `target`; return how many bytes.

    The file appears under its name only when it is complete.
    """
    partial = target.with_name(target.name + ".partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with partial.open("wb") as file:
        for chunk in chunks(seed):
            if written + len(chunk) > size_bytes:
                end = chunk.rfind(b"\n", 0, size_bytes - written) + 1
                written += file.write(chunk[:end])
                break
            written += file.write(chunk)
    partial.replace(target)
    return written


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description="Generate Zipf-like text.")
    parser.add_argument("target", type=Path, metavar="OUT", help="file to write")
    parser.add_argument("--bytes", type=int, default=200_000_000, help="size at most")
    parser.add_argument("--seed", type=int, default=7, help="same seed, same text")
    arguments = parser.parse_args()
    written = generate(arguments.target, arguments.bytes, arguments.seed)
    print(f"wrote {written:,} bytes to {arguments.target}")


if __name__ == "__main__":
    main()
