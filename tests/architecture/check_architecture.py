#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds a source tree to tests/architecture/rules.py.

check_architecture.py [ROOT]: prints one `file:line: rule: what, remedy` per breach; exit 1 on any.
"""
import pathlib
import re
import sys
from collections import defaultdict
from fnmatch import fnmatch

import classes
import rules

CODE = {".h", ".cpp", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake"}
SCANNED = ["include", "src", "kernels", "tests", "bench", "examples", "fuzz", "cmake", "scripts",
           ".ci", "experiments"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b")
# A function, by name, that returns Expected by value; and what may stand before the type.
RETURNS_EXPECTED = re.compile(r"\bExpected<(?:[^<>;{}()]|<[^<>;{}()]*>)*>\s+(?P<name>[A-Za-z_][\w:]*)\s*\(")
SPECIFIERS = re.compile(r"(?:\[\[\w+\]\]|virtual|static|inline|constexpr|friend|\s)*$")
LONGEST_SPECIFIERS = 200  # characters


def is_cpp_standard(header):
    return re.fullmatch(r"[a-z_]+", header) is not None


def blank_out(text):
    """Comments, strings and characters become spaces; lines stay where they are."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def module_of(path):
    for module, folder in rules.MODULES.items():
        if path.startswith(folder + "/"):
            return module
    return None


def room_of(path):
    """Returns the folder of a module's file, relative to the repository: "src/transport/wire"."""
    return str(pathlib.PurePosixPath(path).parent)


def matches(path, patterns):
    return any(fnmatch(path, pattern) for pattern in patterns)


class Checker:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.breaches = []
        self.files = sorted(self._files())

    def _files(self):
        found = [p for p in self.root.glob("CMakeLists.txt")]
        for folder in SCANNED:
            for path in (self.root / folder).rglob("*"):
                named = path.suffix in CODE | SCRIPTS or path.name in ("CMakeLists.txt", "run")
                if path.is_file() and (named or folder == "scripts"):
                    found.append(path)
        return found

    def breach(self, path, line, rule, text):
        self.breaches.append(f"{path}:{line}: {rule}: {text}")

    def check_tree(self):
        """What is known of the whole tree alone."""
        self.check_rooms()
        self.check_folders()

    def run(self):
        texts = {str(p.relative_to(self.root)): p.read_text(errors="replace") for p in self.files}
        sources = {}  # of modules, blanked out
        for path, text in texts.items():
            self.check_spdx(path, text)
            suffix = pathlib.Path(path).suffix
            if suffix in CODE:
                code = blank_out(text)
                if module_of(path):
                    sources[path] = code
                self.check_includes(path, text)
                self.check_banned(path, code)
                self.check_conditions(path, code)
                self.check_expected(path, code)
                self.check_length(path, text)
            elif path.endswith("CMakeLists.txt"):
                self.check_depends(path, text)
        self.check_classes(sources)
        return self.breaches

    def check_spdx(self, path, text):
        if rules.SPDX not in "\n".join(text.split("\n")[:2]):
            self.breach(path, 1, "spdx", f"the first lines lack '{rules.SPDX}'")

    def check_includes(self, path, text):
        module = module_of(path)
        for number, line in enumerate(text.split("\n"), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match.group(2)
            if match.group(1) == "<" and not header.startswith("isthmus/"):
                self._check_system_header(path, number, header)
            elif header.startswith("isthmus/"):
                allowed = rules.PUBLIC_HEADERS.get(header)
                if module and allowed is not None and module not in allowed:
                    self.breach(path, number, "layers", f"{module} may not include {header}")
            else:
                self._check_layer(path, number, module, header)

    def _check_system_header(self, path, number, header):
        if is_cpp_standard(header):
            return
        for pattern, owners in rules.OWNERS.items():
            if fnmatch(header, pattern):
                if not matches(path, owners):
                    self.breach(path, number, "owners",
                                f"<{header}> belongs to {', '.join(owners)}")
                return
        self.breach(path, number, "owners", f"<{header}> has no owner in rules.py")

    def _check_layer(self, path, number, module, header):
        if module is None:
            return
        if header in rules.TEST_SEAMS.get(path, []):
            return
        target = header.split("/")[0]
        if target == module:
            self._check_room(path, number, module, header)
            return
        if target not in rules.MODULES:
            self.breach(path, number, "layers", f'"{header}" names no module')
        elif target not in rules.MAY_INCLUDE[module]:
            self.breach(path, number, "layers", f"{module} may not include {target} ({header})")

    def _check_room(self, path, number, module, header):
        """Rooms of a module see those that rules.ROOMS names, and none that see them."""
        room = room_of(path)
        other = room_of(rules.MODULES[module] + header[len(module):])
        if room != other and other not in rules.ROOMS.get(room, []):
            self.breach(path, number, "rooms", f"{room} may not include {other} ({header})")

    def check_rooms(self):
        """rules.ROOMS names folders that are there, and has no circle."""
        def reaches(room, end, seen):
            return any(other == end or (other not in seen and reaches(other, end, seen | {other}))
                       for other in rules.ROOMS.get(room, []))
        for room, others in rules.ROOMS.items():
            for folder in [room, *others]:
                if not (self.root / folder).is_dir():
                    self.breach("tests/architecture/rules.py", 1, "rooms", f"{folder} is no folder")
            if reaches(room, room, frozenset()):
                self.breach("tests/architecture/rules.py", 1, "rooms", f"{room} sees itself")

    def check_folders(self):
        """A folder of product code holds one idea: not too many files (its README: check_readmes.py)."""
        folders = defaultdict(int)
        for module_folder in rules.MODULES.values():
            for path in (self.root / module_folder).rglob("*"):
                if path.is_file():
                    folders[str(path.parent.relative_to(self.root))] += 1
        for folder, files in sorted(folders.items()):
            if files > rules.MAX_FILES:
                self.breach(folder, 1, "folders", f"{files} files; a folder with more than {rules.MAX_FILES} "
                                                  "holds more than one idea")

    def check_depends(self, path, text):
        for call in re.finditer(r"isthmus_module\(\s*(\w+)([^)]*)\)", text):
            module, body = call.group(1), call.group(2)
            line = text.count("\n", 0, call.start()) + 1
            depends = re.search(r"\bDEPENDS\b([^)]*?)(?=\bSOURCES\b|\bLINKS\b|\bPRIVATE_LINKS\b|$)",
                                body)
            for target in depends.group(1).split() if depends else []:
                if target not in rules.MAY_INCLUDE.get(module, []):
                    self.breach(path, line, "layers", f"{module} may not depend on {target}")

    def check_banned(self, path, code):
        for number, line in enumerate(code.split("\n"), 1):
            for pattern, allowed, remedy in rules.BANNED:
                match = re.search(pattern, line)
                if match and not matches(path, allowed):
                    self.breach(path, number, "seam",
                                f"{match.group().strip()} is not for this file; {remedy}")
            if "unordered_" in line and matches(path, rules.UNORDERED_IN):
                self.breach(path, number, "order",
                            "unordered containers iterate differently from machine to machine")

    def check_conditions(self, path, code):
        for number, line in enumerate(code.split("\n"), 1):
            if CONDITION.match(line) and not matches(path, rules.MAY_HAVE_IF):
                self.breach(path, number, "conditions",
                            "preprocessor condition; let CMake choose between files")

    def check_expected(self, path, code):
        if not path.endswith(".h"):
            return
        for match in RETURNS_EXPECTED.finditer(code):
            before = code[max(0, match.start() - LONGEST_SPECIFIERS):match.start()]
            if "[[nodiscard]]" not in SPECIFIERS.search(before).group():
                name = match.group("name")
                line = code.count("\n", 0, match.start("name")) + 1
                self.breach(path, line, "nodiscard",
                            f"{name} returns Expected and is not [[nodiscard]]")

    def check_length(self, path, text):
        lines = text.count("\n")
        if lines > rules.MAX_LINES and not matches(path, rules.LONG_FILES):
            self.breach(path, lines, "length", f"{lines} lines; a file with more than {rules.MAX_LINES} "
                                               "holds more than one idea")

    def check_classes(self, sources):
        """Sizes of classes, and that the methods of a class are defined in one .cpp file."""
        declared, defined = defaultdict(list), defaultdict(list)
        for path, code in sources.items():
            for name, kind, line, methods, members in classes.declared(code):
                declared[name].append((path, line))
                if name in rules.BIG_CLASSES:
                    continue
                if methods > rules.MAX_METHODS:
                    self.breach(path, line, "classes", f"{name} has {methods} methods; a class with more "
                                                       f"than {rules.MAX_METHODS} holds more than one idea")
                if kind == "class" and members > rules.MAX_MEMBERS:
                    self.breach(path, line, "classes", f"{name} has {members} members; a class with more "
                                                       f"than {rules.MAX_MEMBERS} holds more than one idea")
            if path.endswith(".cpp") and not path.endswith("_stub.cpp"):
                for name in classes.defined_in(code):
                    defined[name].append(path)
        for name, paths in sorted(defined.items()):
            if len(declared[name]) == 1 and len(paths) > 1 and name not in rules.BIG_CLASSES:
                self.breach(paths[1], 1, "classes", f"{name} is defined here and in {paths[0]}; "
                                                    "the methods of a class belong in one file")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    checker = Checker(root)
    checker.run()
    checker.check_tree()
    breaches = checker.breaches
    print("\n".join(breaches) if breaches else f"{len(checker.files)} files keep the architecture")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
