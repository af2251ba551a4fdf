#!/usr/bin/env python3
"""Checks the source list of tests/gpu/lab.sh against a build: it must contain everything that the op tests call.

usage: tests/gpu/lab_test.py BUILD_FOLDER     exit code 1 and one line for each source that is missing or gone
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("base", "engine", "kernels", "tests/support")
# Other instruction sets, the stub back end and the fake GPU are not part of the lab.
NOT_OURS = re.compile(r"kernels/cpu/.*_(avx|amx|vnni|bf16).*|kernels/cuda/absent|tests/support/(simt_|fake_cuda/|__/).*")


def lab_sources():
    text = (ROOT / "tests/gpu/lab.sh").read_text()
    listed = set(re.search(r"^host_code=\((.*?)\)", text, re.M | re.S).group(1).split())
    patterns = ("engine/verify/*.cpp", "tests/support/twin_*.cpp")
    return listed | {path.relative_to(ROOT).with_suffix("").as_posix() for pattern in patterns for path in ROOT.glob(pattern)}


def source_of(build, path):
    """kernels/CMakeFiles/ds_kernels.dir/cpu/matrix.cpp.o -> kernels/cpu/matrix"""
    relative = path.relative_to(build).as_posix()
    return re.sub(r"CMakeFiles/\w+\.dir/", "", relative).removesuffix(".cpp.o")


def symbols(objects):
    """For each object, the strong symbols that it defines and those that it needs."""
    defined, needed = {}, {path: set() for path in objects}
    output = subprocess.run(["nm", "-A", *map(str, objects)], capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        name, _, rest = line.partition(".o:")
        parts = rest.split()
        path = Path(name + ".o")
        if parts[-2] == "U":
            needed[path].add(parts[-1])
        elif parts[-2] in "TDBR":
            defined[parts[-1]] = path
    return defined, needed


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1]).resolve()
    tests = sorted(build.glob("tests/gpu/CMakeFiles/test_device_ops.dir/*.o"))
    if not tests:
        sys.exit(f"{build}: test_device_ops is not built")
    objects = [path for folder in FOLDERS for path in sorted((build / folder).glob("**/*.cpp.o"))
               if not NOT_OURS.fullmatch(source_of(build, path))]
    defined, needed = symbols(objects + tests)
    reached, ahead = set(), list(tests)
    while ahead:
        for symbol in needed[ahead.pop()]:
            path = defined.get(symbol)
            if path is not None and path not in reached and path not in tests:
                reached.add(path)
                ahead.append(path)
    listed = lab_sources()
    findings = [f"tests/gpu/lab.sh: {source} is missing, which the op tests need"
                for source in sorted({source_of(build, path) for path in reached} - listed)]
    findings += [f"tests/gpu/lab.sh: there is no {source}.cpp" for source in sorted(listed)
                 if not (ROOT / f"{source}.cpp").exists()]
    print("\n".join(findings) or f"lab: {len(listed)} sources, {len(reached)} of them needed by the op tests here")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
