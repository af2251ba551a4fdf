#!/usr/bin/env python3
"""Measures the window on a display of its own (Xvfb): time to its first pixels, load of its threads while the demo decodes and at
rest, and time from a move of the mouse to the pixels of the button under it. Needs Xvfb and xdotool.

usage: tests/bench/window_speeds.py PROGRAM [arguments of `draftscope gui`]
"""
import mmap
import os
import pathlib
import subprocess
import sys
import tempfile
import time

WIDTH, HEIGHT, DISPLAY = 1600, 1000, ":78"
BUTTON = (44, 33, 62, 40)  # a part of "Run" that the pointer at POINTER does not cover
POINTER, AWAY = ("16", "43"), ("800", "700")


class Screen:
    """The pixels that Xvfb keeps in a file."""

    def __init__(self, folder):
        with open(f"{folder}/Xvfb_screen0", "rb") as file:
            self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.start = len(self.memory) - WIDTH * HEIGHT * 4

    def part(self, left, top, right, bottom):
        rows = (self.start + (y * WIDTH) * 4 for y in range(top, bottom, 2))
        return b"".join(self.memory[row + left * 4:row + right * 4] for row in rows)


def ticks(folder):
    """Processor time in hundredths of a second of a process or thread."""
    fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def threads(process):
    return {task: ticks(task) for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()}


def wait_for_change(screen, box, before, limit):
    began = time.monotonic()
    while screen.part(*box) == before and time.monotonic() - began < limit:
        time.sleep(0.0005)
    return time.monotonic() - began


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as pixels, tempfile.TemporaryDirectory() as settings:
        server = subprocess.Popen(["Xvfb", DISPLAY, "-screen", "0", f"{WIDTH}x{HEIGHT}x24", "-fbdir", pixels], stderr=subprocess.DEVNULL)
        time.sleep(2)
        environment = dict(os.environ, DISPLAY=DISPLAY, XDG_CONFIG_HOME=settings)
        screen, whole = Screen(pixels), (0, 0, WIDTH, HEIGHT)
        dark = screen.part(*whole)
        program = subprocess.Popen([sys.argv[1], "gui", *sys.argv[2:]], env=environment, stderr=subprocess.DEVNULL)
        try:
            print(f"first pixels   {wait_for_change(screen, whole, dark, 20):.2f} s")
            time.sleep(3)
            before, began = threads(program), time.monotonic()
            time.sleep(4)
            share = {task: (now - before.get(task, 0)) / (time.monotonic() - began) for task, now in threads(program).items()}
            names = {task: (task / "comm").read_text().strip() for task in share}
            drawing = sum(value for task, value in share.items() if names[task].startswith("llvmpipe"))
            own = share[pathlib.Path(f"/proc/{program.pid}/task/{program.pid}")]
            print(f"while decoding {own:.1f} % of a core on the window's thread; {drawing:.1f} % for drawing in software")
            time.sleep(15)
            rest = ticks(pathlib.Path(f"/proc/{program.pid}"))
            time.sleep(20)
            print(f"at rest        {(ticks(pathlib.Path(f'/proc/{program.pid}')) - rest) / 20:.2f} % of a core")
            delays = []
            for _ in range(10):
                subprocess.run(["xdotool", "mousemove", *AWAY], env=environment, check=True)
                time.sleep(0.6)
                calm = screen.part(*BUTTON)
                began = time.monotonic()
                subprocess.run(["xdotool", "mousemove", *POINTER], env=environment, check=True)
                wait_for_change(screen, BUTTON, calm, 2)
                delays.append((time.monotonic() - began) * 1e3)
            delays.sort()
            print(f"mouse to pixel {delays[len(delays) // 2]:.0f} ms median, {delays[-1]:.0f} ms at most, with xdotool's own 3 to 4 ms")
        finally:
            program.terminate()
            server.terminate()


if __name__ == "__main__":
    main()
