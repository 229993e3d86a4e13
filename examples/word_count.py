"""Count the words of a text and show the ten most frequent.

What it shows: a text file read by all workers, functions fused into one stage, counts
combined before they move, and a sort that keeps only what is asked for.

    millstream run examples/word_count.py
    millstream run examples/word_count.py --on local
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import millstream as ms

CORPUS = Path(__file__).parent / "data" / "corpus.txt"
WORD = re.compile(r"[a-z]+")

flow = ms.Flow("word-count")
words = flow.read_text(CORPUS).flat_map(lambda line: WORD.findall(line.lower()))
counts = words.group_by(str).count()
top = counts.sort_by(lambda pair: (-pair[1], pair[0])).limit(10).collect()

if __name__ == "__main__":
    began = time.perf_counter()
    flow.run()
    took = time.perf_counter() - began

    print("The ten most frequent words:")
    for word, count in top.result():
        print(f"{count:8,}  {word}")
    print(f"\nCounted in {took:.2f} s, start of the workers included.")
    print("Next: README.md, docs/, and the other files in examples/; for the plan:")
    print("    millstream explain examples/word_count.py")
