# SPDX-License-Identifier: Apache-2.0
"""Every rule of check_readmes.py refuses what it is there to refuse."""
import pathlib
import tempfile
import unittest

import check_readmes

TABLE = "| file | what it holds |\n|---|---|\n"


def breaches(files):
    """`files`: path below src/a -> text."""
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root, "src/a")
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return check_readmes.breaches(root)


class CheckTest(unittest.TestCase):
    def assert_breach(self, rule, files):
        found = breaches(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(f": {rule}: ", found[0])

    def test_a_table_names_each_file(self):
        readme = TABLE + "| `rng.*`, `hash_*` | both |\n"
        self.assertEqual(breaches({"rng.h": "", "rng.cpp": "", "hash_a.cpp": "", "README.md": readme}), [])

    def test_a_sentence_names_a_file_too(self):
        self.assertEqual(breaches({"embed.cmake": "", "README.md": "`embed.cmake` makes it.\n"}), [])

    def test_build_files_and_notes_need_no_name(self):
        self.assertEqual(breaches({"CMakeLists.txt": "", "DESIGN.md": "", "README.md": "# a\n"}), [])

    def test_missing(self):
        self.assert_breach("missing", {"rng.h": ""})

    def test_stale(self):
        self.assert_breach("stale", {"README.md": TABLE + "| `gone.*` | nothing |\n"})

    def test_unnamed(self):
        self.assert_breach("unnamed", {"rng.h": "", "README.md": TABLE})

    def test_other_tables_may_name_anything(self):
        self.assertEqual(breaches({"README.md": "| folder | idea |\n|---|---|\n| `gone` | a room |\n"}), [])

    def test_code_blocks_are_no_tables(self):
        self.assertEqual(breaches({"README.md": "```\n" + TABLE + "| `gone` | |\n```\n"}), [])


if __name__ == "__main__":
    unittest.main()
