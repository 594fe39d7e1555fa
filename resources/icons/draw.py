#!/usr/bin/env python3
"""Draws the program's icon, a pipeline's timeline, from one list of rectangles: pipewright.svg and PNG files beside this script.

    draw.py
"""

import pathlib
import struct
import zlib

SIDE = 64  # of the drawing; all figures below are in these units
SIZES = (48, 128, 256)
SAMPLES = 4  # per pixel and direction

GROUND, FORWARD, BACKWARD, IDLE = "#1e2a3a", "#6cb6ff", "#ffb454", "#33465c"


def rectangles():
    """(x, y, width, height, corner's radius, colour), the lowest first: the ground, then a row of cells for each of three ranks."""
    yield 0, 0, SIDE, SIDE, 12, GROUND
    cell, gap, left, top, height = 6, 1.5, 6.5, 12, 11
    rows = ("FFF.BBB", ".FFBFBB", "..FBFBB")  # a letter a cell: 3 ranks of a pipeline that fills, works and drains
    for r, row in enumerate(rows):
        y = top + r * (height + 3.5)
        for c, letter in enumerate(row):
            colour = {"F": FORWARD, "B": BACKWARD, ".": IDLE}[letter]
            yield left + c * (cell + gap), y, cell, height, 1.5, colour


def svg():
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE}">']
    lines += [f'  <rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{r:g}" fill="{colour}"/>' for x, y, w, h, r, colour in rectangles()]
    return "\n".join([*lines, "</svg>", ""])


def holds(x, y, rectangle):
    left, top, width, height, radius, _ = rectangle
    dx = max(left + radius - x, 0, x - (left + width - radius))
    dy = max(top + radius - y, 0, y - (top + height - radius))
    return dx * dx + dy * dy <= radius * radius


def pixel(column, row, size, shapes):
    """Red, green, blue and opacity (0 to 255), the mean of the samples in a pixel."""
    total, seen = [0, 0, 0], 0
    for i in range(SAMPLES * SAMPLES):
        x = (column + (i % SAMPLES + 0.5) / SAMPLES) * SIDE / size
        y = (row + (i // SAMPLES + 0.5) / SAMPLES) * SIDE / size
        colour = next((s[5] for s in shapes if holds(x, y, s)), None)
        if colour is not None:
            seen += 1
            for k in range(3):
                total[k] += int(colour[1 + 2 * k : 3 + 2 * k], 16)
    return bytes([round(t / seen) for t in total] + [round(255 * seen / SAMPLES**2)]) if seen else bytes(4)


def png(size):
    shapes = list(rectangles())[::-1]
    rows = b"".join(b"\0" + b"".join(pixel(c, r, size, shapes) for c in range(size)) for r in range(size))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", size, size, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def main():
    folder = pathlib.Path(__file__).resolve().parent
    (folder / "pipewright.svg").write_text(svg(), encoding="utf-8")
    for size in SIZES:
        (folder / f"pipewright-{size}.png").write_bytes(png(size))


if __name__ == "__main__":
    main()
