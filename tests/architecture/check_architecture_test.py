# SPDX-License-Identifier: Apache-2.0
"""Every rule of check_architecture.py refuses what it is there to refuse."""
import pathlib
import tempfile
import unittest
from unittest import mock

import check_architecture
import rules

HEAD = "// SPDX-License-Identifier: Apache-2.0\n"


def breaches(path, text):
    with tempfile.TemporaryDirectory() as root:
        file = pathlib.Path(root, path)
        file.parent.mkdir(parents=True)
        file.write_text(text)
        return check_architecture.Checker(root).run()


class RulesTest(unittest.TestCase):
    def assert_breach(self, rule, path, body, head=HEAD):
        found = breaches(path, head + body)
        self.assertEqual(len(found), 1, found)
        self.assertIn(f": {rule}: ", found[0])
        return found[0]

    def assert_clean(self, path, body):
        self.assertEqual(breaches(path, HEAD + body), [])

    def test_layers(self):
        self.assert_clean("src/outer/a.cpp", '#include "transport/t.h"\n#include "outer/b.h"\n')
        self.assert_breach("layers", "src/outer/a.cpp", '#include "inner/model/model.h"\n')
        self.assert_breach("layers", "src/sim/a.cpp", '#include "outer/strategy.h"\n')
        self.assert_breach("layers", "kernels/a.cpp", '#include "quant/math/codec_math.h"\n')
        self.assert_breach("layers", "src/inner/a.h", '#include "isthmus/outer.h"\n')
        self.assert_breach("layers", "src/inner/a.h", '#include "model.h"\n')

    def test_rooms(self):
        with mock.patch.object(rules, "ROOMS", {"src/outer/top": ["src/outer/base"]}):
            self.assert_clean("src/outer/top/a.cpp", '#include "outer/base/b.h"\n#include "outer/top/a.h"\n')
            self.assert_breach("rooms", "src/outer/base/b.cpp", '#include "outer/top/a.h"\n')
            self.assert_breach("rooms", "src/outer/top/a.cpp", '#include "outer/other/a.h"\n')

    def test_rooms_are_folders_without_circles(self):
        with tempfile.TemporaryDirectory() as root:
            for folder in ("a", "b", "c"):
                pathlib.Path(root, folder).mkdir()
            for rooms, expected in [({"a": ["b"], "b": ["c"]}, 0), ({"a": ["b"], "b": ["d"]}, 1),
                                    ({"a": ["b"], "b": ["c"], "c": ["a"]}, 3)]:
                with mock.patch.object(rules, "ROOMS", rooms):
                    checker = check_architecture.Checker(root)
                    checker.check_rooms()
                    self.assertEqual(len(checker.breaches), expected, checker.breaches)

    def test_folders(self):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root, "src/outer/parts")
            folder.mkdir(parents=True)
            for number in range(59):
                (folder / f"f{number}.cpp").write_text(HEAD)
            checker = check_architecture.Checker(root)
            checker.check_folders()
            self.assertEqual(checker.breaches, [])
            (folder / "README.md").write_text("Parts.\n")
            (folder / "one_too_many.h").write_text(HEAD)
            checker = check_architecture.Checker(root)
            checker.check_folders()
            self.assertEqual(len(checker.breaches), 1, checker.breaches)
            self.assertIn("61 files", checker.breaches[0])

    def test_module_dependencies(self):
        head = "# SPDX-License-Identifier: Apache-2.0\n"
        self.assertEqual(breaches("src/plan/CMakeLists.txt",
                                  head + "isthmus_module(plan SOURCES a.cpp DEPENDS core outer)"), [])
        self.assert_breach("layers", "src/outer/CMakeLists.txt",
                           "isthmus_module(outer\n SOURCES a.cpp\n DEPENDS core inner\n LINKS x)", head)

    def test_owners(self):
        self.assert_clean("src/core/base/rng.cpp", "#include <Random123/philox.h>\n#include <cmath>\n")
        self.assert_breach("owners", "src/inner/a.cpp", "#include <Random123/philox.h>\n")
        self.assert_breach("owners", "src/outer/a.cpp", "#include <tl/expected.hpp>\n")
        self.assert_breach("owners", "src/core/a.cpp", "#include <boost/asio.hpp>\n")

    def test_seam(self):
        for line in ["auto t = std::chrono::steady_clock::now();", "std::this_thread::sleep_for(t);",
                     "std::thread t(f);", "int x = rand();", "std::random_device d;",
                     'auto e = std::getenv("HOME");']:
            self.assert_breach("seam", "src/outer/a.cpp", line + "\n")
        self.assert_clean("src/outer/a.cpp", "// std::thread is not used\nauto s = \"rand()\";\n")
        self.assert_clean("src/core/base/system_runtime.cpp", "std::thread t(f);\n")

    def test_order(self):
        self.assert_breach("order", "src/transport/a.h", "std::unordered_map<int, int> m;\n")
        self.assert_clean("src/core/a.h", "std::unordered_map<int, int> m;\n")

    def test_conditions(self):
        self.assert_breach("conditions", "src/core/a.cpp", "#ifdef __linux__\n#endif\n")
        self.assert_clean("kernels/host_device.h", "#ifdef __CUDACC__\n#endif\n")

    def test_nodiscard(self):
        self.assert_breach("nodiscard", "src/core/a.h",
                           "Expected<std::vector<int>, Error> parse(int x);\n")
        self.assert_breach("nodiscard", "src/core/a.h", "virtual Expected<void, E> f() = 0;\n")
        self.assert_clean("src/core/a.h",
                          "[[nodiscard]] virtual Expected<void, E> f() = 0;\nExpected<int, E> x_;\n")

    def test_spdx(self):
        self.assert_breach("spdx", "src/core/a.cpp", "int x;\n", head="")
        self.assert_breach("spdx", "scripts/run", "echo\n", head="#!/bin/bash\n")

    def test_length(self):
        self.assert_breach("length", "src/core/a.cpp", "int x;\n" * 800)
        self.assert_clean("src/core/a.cpp", "int x;\n" * 799)

    def test_class_sizes(self):
        methods = "".join(f"  int f{i}(int x) const;\n" for i in range(40))
        members = "".join(f"  std::map<int, std::vector<int>> m{i}_;\n" for i in range(20))
        self.assert_clean("src/core/a.h", "class A {\n public:\n" + methods + members + "};\n")
        self.assert_breach("classes", "src/core/a.h", "class A {\n  void g() { h(); }\n" + methods + "};\n")
        self.assert_breach("classes", "src/core/a.h", "class A {\n  int one_ = f(2);\n" + members + "};\n")
        self.assert_clean("src/core/a.h", "struct A {\n  int one;\n" + members + "};\n")
        self.assert_clean("src/core/a.h", "class A {\n  struct B { int x; int y; };\n  A() = default;\n"
                                          "  using C = int;\n" + methods + "};\n")
        self.assert_clean("tests/core/a.h", "class A {\n  void g();\n" + methods + "};\n")

    def test_class_in_one_file(self):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root, "src/core")
            folder.mkdir(parents=True)
            (folder / "a.h").write_text(HEAD + "class A {\n  void f();\n  void g();\n};\n")
            (folder / "a.cpp").write_text(HEAD + "void A::f() {}\n")
            (folder / "b.cpp").write_text(HEAD + "void A::g() {}\n")
            found = check_architecture.Checker(root).run()
            self.assertEqual(len(found), 1, found)
            self.assertIn(": classes: ", found[0])



if __name__ == "__main__":
    unittest.main()
