# Writes random words from a vocabulary of 500, separated by spaces.
import json
import os
import pathlib
import random

bytes_wanted = 1000 * json.load(open(os.environ["ASSAY_PARAMS"]))["kilobytes"]
words = [bytes(random.Random(n).randbytes(1 + n % 9).hex(), "ascii") for n in range(500)]
chosen = random.Random(7).choices(words, k=bytes_wanted // 5)
pathlib.Path(os.environ["ASSAY_OUTPUTS"], "words.txt").write_bytes(b" ".join(chosen)[:bytes_wanted])
