#!/usr/bin/env python3
"""Checks the figures of tools/house.py on small trees, and the include rules of tools/check_tree.py."""
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_tree  # noqa: E402
import house  # noqa: E402

BACKEND = """class Backend {
  public:
    virtual bool is_host() const { return false; }
    virtual void join() {}
    virtual bool fills(int /*rows*/) { return false; }
    virtual Status synchronize() = 0;
};
"""
CPU = "class CpuBackend {\n    bool is_host() const override { return true; }\n    Status synchronize() override { return failure(); }\n};\n"
CUDA = "class CudaBackend {\n    void join() override {\n        wait();\n    }\n    bool fills(int rows) override { return fill(rows); }\n};\n"


class Branches(unittest.TestCase):
    def found(self, engine, header=""):
        files = {"kernels/backend.h": BACKEND, "kernels/cpu/cpu_backend.cpp": CPU, "kernels/cuda/cuda_backend.cpp": CUDA,
                 "engine/a/a.cpp": engine, "engine/a/a.h": header}
        return [one.split(": ", 1)[1] for one in house.branches(files)]

    def test_a_test_counts_under_any_name(self):
        self.assertEqual(self.found("if (backend.is_host()) f();\n"), ["if (backend.is_host()) f();"])
        self.assertEqual(len(self.found("const bool early = !backend.is_host();\nif (early) f();\n")), 2)
        self.assertEqual(len(self.found("if (at_once_) f();\n", "bool at_once() const { return on_host_; }\nat_once_ = backend.is_host();\n")), 3)

    def test_a_call_of_a_function_that_one_backend_leaves_empty_counts(self):
        self.assertEqual(self.found("backend.join();\nbackend.synchronize();\nif (!on->fills(3)) f();\n"), ["backend.join();", "if (!on->fills(3)) f();"])

    def test_comments_and_texts_do_not_count(self):
        self.assertEqual(self.found("f();  // if (on_host)\nf(\"on_host\");\n"), [])


class Classes(unittest.TestCase):
    def test_members_of_a_struct_made_for_a_class_count(self):
        step = "class Step {\n    struct At {\n        int a = 0, b = 0;\n    };\n    At at_;\n    Sizes sizes_;\n    Shared shared_;\n    int n() const;\n};\n"
        files = {"engine/a/step.h": step, "engine/a/sizes.h": "struct Sizes {\n    int rows, cols, heads;\n};\n",
                 "engine/a/shared.h": "struct Shared {\n    int x, y;\n};\n", "engine/a/other.cpp": "Shared f();\n"}
        found = {one["name"]: one for one in house.classes(files)}
        self.assertEqual(found["Step"]["members"], 3)
        self.assertEqual(found["Step"]["all_members"], 3 + 2 + 3)


class Files(unittest.TestCase):
    def test_functions_are_measured_over_their_bodies(self):
        text = "int one() { return 1; }\nclass A {\n    A(int x)\n        : x_(x) {\n        f([] {\n            g();\n        });\n    }\n};\n"
        text += "void two(char c) {\n    if (c == '{') {\n        f();\n    }\n}\n"
        self.assertEqual(sorted(house.function_lengths(text)), [(1, 1), (4, 4), (4, 10)])

    def test_headers_with_one_user(self):
        product = {"base/a.h": "int a();\n", "base/a.cpp": '#include "base/a.h"\n', "base/b.h": "int b();\n",
                   "base/c.cpp": '#include "base/a.h"\n#include "base/b.h"\n', "base/d.cpp": '#include "base/b.h"\n'}
        self.assertEqual(house.single_user_headers(product), [(1, "base/a.h", "base/c")])

    def test_a_header_of_unrelated_types_is_found(self):
        def types(names):
            return "".join(f"struct {name} {{\n    int x;\n}};\n" for name in names)
        unrelated = ["Tree", "Clock", "Plane", "Gate", "Ring"]
        self.assertEqual(len(house.unrelated_types({"base/a.h": types(unrelated)})), 1)
        self.assertEqual(house.unrelated_types({"base/a.h": types(unrelated) + "Ring f(const Tree&);\n"}), [])
        self.assertEqual(house.unrelated_types({"base/a.h": types(name + "Op" for name in unrelated)}), [])

    def test_private_words(self):
        text = "int sets_come_, own, own_bytes, bad_words_ids, replaced;\n"
        self.assertEqual(house.private_words({"engine/a.h": text, "app/a.h": text}), {"sets_come_": 1, "own": 1})


class Walks(unittest.TestCase):
    WALKS = {"first product": [("a.cpp", "A::begin"), ("a.cpp", "A::run"), ("b.h", "B::product")], "acceptance": [("a.cpp", "A::run")],
             "names": [("rows", "a.cpp", "A::run")]}

    def problems(self, begin, run):
        text = f"void A::begin(int x) {{\n    {begin}\n}}\n\nvoid A::run(int x) {{\n    {run}\n}}\n"
        return list(house.walk_problems({"a.cpp": text, "b.h": "class B {\n    void product(int x);\n};\n"}, self.WALKS))

    def test_hops_and_names_are_checked(self):
        self.assertEqual(self.problems("run(1);", "b.product(rows);"), [])
        self.assertEqual(self.problems("f(1);", "b.product(rows);"), ["first product: A::begin in a.cpp does not call A::run"])
        self.assertEqual(self.problems("run(1);", "b.product(x);"), ["names: no rows in A::run of a.cpp"])


class Includes(unittest.TestCase):
    def findings(self, path, *names):
        return list(check_tree.check_includes(path, "".join(f'#include "{name}"\n' for name in names)))

    def test_folders_of_a_room_have_an_order(self):
        self.assertEqual(self.findings("app/jobs/run/a.cpp", "app/jobs/resolve/resolve.h", "app/jobs/run/b.h", "engine/decode/session.h"), [])
        self.assertEqual(self.findings("app/jobs/resolve/a.cpp", "app/jobs/run/run_job.h"),
                         ["app/jobs/resolve/a.cpp:1: app/jobs/resolve may not include app/jobs/run/run_job.h"])
        self.assertEqual(len(self.findings("engine/tree/a.cpp", "engine/decode/session.h")), 1)
        self.assertEqual(len(self.findings("storage/a.cpp", "storage/export/b.h")), 1)
        self.assertEqual(len(self.findings("app/gui/panels/a.cpp", "app/jobs/controller/controller.h", "app/jobs/commands/commands.h")), 1)

    def test_a_folder_without_a_row_is_found(self):
        self.assertEqual(self.findings("engine/other/a.cpp"), ["engine/other/a.cpp: this folder has no row in tools/check_tree.py"])

    def test_rows_make_no_circle(self):
        self.assertEqual(list(check_tree.check_rows()), [])
        for folder, below in check_tree.ALLOWED.items():
            for other in below:
                self.assertNotIn(folder, check_tree.ALLOWED.get(other, ()))


if __name__ == "__main__":
    unittest.main()
