#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of this folder, on pages made up for them: each rule has a page that keeps it and one that breaks it."""
import contextlib
import io
import pathlib
import tempfile
import unittest

import commands
import links
import prose


def words(count):
    return " ".join(["word"] * (count - 1)) + " end."


class Prose(unittest.TestCase):
    def counts(self, text, name="docs/how-to/page.md"):
        found, _ = prose.findings(name, text)
        return [len(each) for each in found]

    def test_a_line_has_120_characters_outside_of_code_tables_and_long_addresses(self):
        self.assertEqual(self.counts("x" * 120), [0, 0, 0])
        self.assertEqual(self.counts("x" * 121), [1, 0, 0])
        self.assertEqual(self.counts("```\n" + "x" * 121 + "\n```"), [0, 0, 0])
        self.assertEqual(self.counts("a\n\n    " + "x" * 121 + "\n    " + "x" * 121), [0, 0, 0])
        self.assertEqual(self.counts("| " + "x" * 121 + " |"), [0, 0, 0])
        self.assertEqual(self.counts("see https://example.org/" + "x" * 121), [0, 0, 0])

    def test_a_sentence_has_45_words_and_35_in_a_tutorial(self):
        self.assertEqual(self.counts(words(45)), [1, 0, 0])
        self.assertEqual(self.counts("\n".join(words(46).split())), [0, 1, 0])
        self.assertEqual(self.counts("\n".join(words(36).split())), [0, 0, 0])
        self.assertEqual(self.counts("\n".join(words(36).split()), "docs/tutorials/page.md"), [0, 1, 0])
        self.assertEqual(self.counts("\n".join(f"Wait. {words(30)} {words(30)}".split())), [0, 1, 0])

    def test_a_sentence_ends_before_a_capital_and_not_at_an_item_of_a_list(self):
        text = f"First. {words(3).capitalize()}\n- {words(20)}\n- {words(20)}\n"
        self.assertEqual([number for number, _ in prose.blocks(text.splitlines())], [1, 2, 3])
        self.assertEqual(list(prose.sentences("One end. Two `x.y` ends! `Code` begins.")),
                         ["One end.", "Two Code ends!", "Code begins."])

    def test_marks_are_counted_in_tables_and_not_in_code(self):
        self.assertEqual(self.counts("who; `who`; Whoever; WHO; a site of its own; so many; but for it"), [0, 0, 5])
        self.assertEqual(self.counts("| that one is | that one more |"), [0, 0, 1])

    def test_what_a_program_writes_is_left_out(self):
        self.assertEqual(self.counts("<!-- table -->\n" + "x" * 121 + "\n<!-- end -->\n"), [0, 0, 0])
        self.assertEqual(self.counts("<!-- needs: gpu -->\n" + "x" * 121), [1, 0, 0])

    def test_a_limit_allows_as_much_and_no_more(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "page.md").write_text("who who\n")
            self.assertEqual(prose.breaches(root, {"page.md": [0, 0, 2]})[0], [])
            self.assertEqual(len(prose.breaches(root, {"page.md": [0, 0, 1]})[0]), 2)
            self.assertEqual(len(prose.breaches(root, {})[0]), 2)

    def test_the_readme_has_150_lines_and_short_sentences(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "README.md").write_text("Short words here.\n" * 150)
            self.assertEqual(prose.breaches(root, {})[0], [])
            (root / "README.md").write_text("Short words here.\n" * 151)
            self.assertEqual(len(prose.breaches(root, {})[0]), 1)
            (root / "README.md").write_text("\n".join(words(19).split()))
            self.assertIn("mean sentence", prose.breaches(root, {})[0][0])

    def test_tables_have_a_head_and_an_end(self):
        def told(text):
            return [number for number, _ in prose.broken_tables(text.splitlines())]

        self.assertEqual(told("| a | b |\n|---|---|\n| 1 | 2 |\n\nText."), [])
        self.assertEqual(told("| a |\n|---|\n| 1 |\n<!-- end -->"), [])
        self.assertEqual(told("```\n| a |\n```"), [])
        self.assertEqual(told("| a |\n|---|\n| 1 |\n\n| 2 |"), [5])  # an empty line has cut a row off
        self.assertEqual(told("| a |\n|---|\n| 1 |\nText."), [4])


class Links(unittest.TestCase):
    def breaches(self, **pages):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/page.md").write_text("# A Page\n## Behind `NAT`, twice\n")
            for name, text in pages.items():
                (root / name.replace("_", ".")).write_text(text)
            before = links.files
            links.files = lambda _: sorted(path.relative_to(root).as_posix() for path in root.rglob("*.*"))
            try:
                return list(links.breaches(root))
            finally:
                links.files = before

    def test_a_link_names_a_file_and_a_heading(self):
        self.assertEqual(self.breaches(a_md="[x](docs/page.md) [z](https://a.b)"), [])
        self.assertEqual(self.breaches(a_md="[y](docs/page.md#behind-nat-twice)"), [])
        self.assertEqual(len(self.breaches(a_md="[x](docs/none.txt)")), 1)
        self.assertEqual(len(self.breaches(a_md="[x](docs/page.md#none)")), 1)
        self.assertEqual(len(self.breaches(a_md="[x]: docs/none.txt")), 1)

    def test_a_mention_anywhere_names_a_page_and_a_heading(self):
        self.assertEqual(self.breaches(a_cpp='"as told (docs/page.md, Behind `NAT`, twice)"'), [])
        self.assertEqual(len(self.breaches(a_cpp="// see " + "docs/" + "none.md")), 1)
        self.assertEqual(len(self.breaches(a_cpp='"(' + "docs/" + 'page.md, Elsewhere)"')), 1)


class Commands(unittest.TestCase):
    def test_a_block_has_its_language_text_and_line_above(self):
        text = "a\n\n<!-- needs: gpu (one) -->\n```\nx\n```\n<!-- file: f.toml -->\n```toml\ny\n```\n```text\nz\n```\n"
        blocks = list(commands.blocks_of("page.md", text))
        self.assertEqual([(each.line, each.language, each.text, each.directive, each.value) for each in blocks],
                         [(4, "", "x\n", "needs", "gpu (one)"), (8, "toml", "y\n", "file", "f.toml"),
                          (11, "text", "z\n", "", "")])
        self.assertEqual([commands.is_command(each) for each in blocks], [True, False, False])

    def listed(self, page, tests="| `some_test` | script |\n"):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "tests").mkdir()
            (root / "tests/README.md").write_text(tests)
            (root / "README.md").write_text(page)
            with contextlib.redirect_stdout(io.StringIO()):
                return commands.listed(root)

    def test_a_reason_is_known_a_test_exists_and_a_fifth_may_be_left_out(self):
        run = "```\nx\n```\n"
        self.assertEqual(self.listed(run * 4 + "<!-- needs: gpu -->\n" + run), [])
        self.assertEqual(len(self.listed(run * 3 + "<!-- needs: gpu -->\n" + run)), 1)
        self.assertEqual(len(self.listed(run * 4 + "<!-- needs: patience -->\n" + run)), 1)
        self.assertEqual(self.listed("<!-- runs in: some_test -->\n" + run), [])
        self.assertEqual(len(self.listed("<!-- runs in: no_test -->\n" + run)), 1)


if __name__ == "__main__":
    unittest.main()
