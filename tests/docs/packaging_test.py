#!/usr/bin/env python3
"""Installs the build into a folder and uses it: assets next to the program, man pages, completion, desktop files.

Usage: packaging_test.py --build FOLDER
"""
import argparse
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

BUILD = None


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.root], check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_installed(self, *words):
        return subprocess.run([self.root / "bin/draftscope", *words], check=True, capture_output=True, text=True, cwd="/").stdout

    def test_assets_are_those_of_the_installation(self):
        path = self.root / "share/draftscope/assets/published_drafters.json"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("vicuna-33b-v1.3", "a-name-of-this-test"), encoding="utf-8")
        self.assertIn("a-name-of-this-test", self.run_installed("drafters"))

    def test_every_command_has_a_page_and_completions(self):
        pages = {page.name for page in (self.root / "share/man/man1").iterdir()}
        for command in ("gui", "run", "profile-machine", "advise"):
            self.assertIn(f"draftscope-{command}.1", pages)
        self.assertIn("draftscope.1", pages)
        script = self.root / "share/bash-completion/completions/draftscope"
        completed = subprocess.run(["bash", "-c", f"source {script}; COMP_WORDS=(draftscope run --temp); COMP_CWORD=2; _draftscope; "
                                    "echo ${COMPREPLY[@]}; COMP_WORDS=(draftscope prof); COMP_CWORD=1; _draftscope; echo ${COMPREPLY[@]}"],
                                   check=True, capture_output=True, text=True).stdout.split()
        self.assertEqual(completed, ["--temperature", "--template", "profile-machine"])

    def test_desktop_files_are_well_formed(self):
        share = self.root / "share"
        if not (share / "applications").exists():
            self.skipTest("a build without the window has none")
        entry = (share / "applications/draftscope.desktop").read_text(encoding="utf-8")
        self.assertIn("Exec=draftscope gui %F", entry)
        for name in ("mime/packages/draftscope.xml", "metainfo/draftscope.metainfo.xml",
                     "icons/hicolor/scalable/apps/draftscope.svg"):
            xml.etree.ElementTree.parse(share / name)

    def test_the_scripts_are_there(self):
        for name in ("fetch_deps.sh", "train_drafter.py", "with_torch.sh", "drafter_training/commands.py"):
            self.assertTrue((self.root / "share/draftscope/tools" / name).exists(), name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    BUILD = parser.parse_args().build
    unittest.main(argv=["packaging_test"])
