"""``python -m tests.answers``: writes what is kept anew; with a subject, and a text that lines have, prints answers."""

from __future__ import annotations

import os
import sys

from tests.answers import FOLDER, SUBJECTS, answers_of, describe_line, file_of, subject


def main(argv: list[str]) -> None:
    os.environ["JAX_NUM_CPU_DEVICES"] = "2"  # as tests have it
    if argv and argv[0] != "write":
        lines, names = subject(argv[0])
        for line in lines:
            if all(text in line for text in argv[1:]):
                for call, answer in answers_of(line, names):
                    print(f"{call}\n    {answer}")
        return
    FOLDER.mkdir(exist_ok=True)
    for name in argv[1:] or SUBJECTS:
        lines, names = subject(name)
        text = "\n".join(describe_line(line, names) for line in lines)
        file_of(name).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
