#!/usr/bin/env python3
"""Runs tests/gpu/preflight.sh in small repositories with a made-up bundle."""
import io
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "preflight.sh"
PROGRAMS = ("draftscope", "tests/gpu_tests", "tests/gpu_cupti_graph_check")


class Preflight(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)
        (self.path / "tests/gpu").mkdir(parents=True)
        shutil.copy(SCRIPT, self.path / "tests/gpu")
        (self.path / "assets/heads").mkdir(parents=True)
        (self.path / "assets/heads/large").write_bytes(bytes(3 << 20))
        (self.path / ".gitignore").write_text("gpu-*\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "first")
        (self.path / "gpu-headers.tar.xz").write_bytes(b"x")
        self.bundle(self.git("describe", "--always").strip())

    def git(self, *words):
        return subprocess.run(["git", *words], cwd=self.path, check=True, capture_output=True, text=True).stdout

    def bundle(self, commit, programs=PROGRAMS, size=0):
        with tarfile.open(self.path / "gpu-bundle.tar.xz", "w:xz") as archive:
            for name, data in [("commit", (commit + "\n").encode()), *((program, b"p") for program in programs)]:
                member = tarfile.TarInfo("gpu-bundle/" + name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        if size:
            with (self.path / "gpu-headers.tar.xz").open("wb") as headers:
                headers.truncate(size)

    def call(self, *words):
        return subprocess.run([self.path / "tests/gpu/preflight.sh", *words], capture_output=True, text=True, check=False)

    def test_a_fresh_bundle_is_ready_and_the_commands_are_printed(self):
        done = self.call("--seconds", "300", "--results", "out")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("tests/gpu/checklist.sh --results out --seconds 300", done.stdout)
        self.assertTrue(done.stdout.endswith("ready\n"))

    def test_size_commit_and_contents_are_checked(self):
        self.bundle("abc1234", PROGRAMS[:2], size=2 << 20)
        done = self.call("--limit", "1")
        self.assertEqual(done.returncode, 1)
        for words in ("2 MiB would travel, more than the limit of 1 MiB", "is of commit abc1234", "has no tests/gpu_cupti_graph_check"):
            self.assertIn(words, done.stderr)
        self.assertNotIn("ready", done.stdout)

    def test_changes_and_missing_archives_are_named(self):
        (self.path / "gpu-bundle.tar.xz").unlink()
        (self.path / ".gitignore").write_text("gpu-*\nmore\n")
        done = self.call()
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpu-bundle.tar.xz: not found; tests/gpu/bundle.sh makes it", done.stderr)
        self.assertIn("not committed", done.stderr)

    def test_wrong_usage(self):
        for words in (["--limit"], ["--limit", "x"], ["--other", "1"]):
            self.assertEqual(self.call(*words).returncode, 2, words)


if __name__ == "__main__":
    unittest.main()
