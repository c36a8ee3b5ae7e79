# SPDX-License-Identifier: Apache-2.0
"""Classes of C++ sources as far as their limits need them: methods, members, and the files that define methods.

The reading is by text, not by a compiler: it counts declarations in class bodies after comments and strings
have been blanked out. Nested classes count for themselves.
"""
import re

HEAD = re.compile(
    r"\b(?P<kind>class|struct)\s+(?:\[\[\w+\]\]\s*)?(?P<name>[A-Z]\w*)\b(?:\s+final)?\s*(?::[^{;]*)?\{")
DEFINITION = re.compile(
    r"^(?!\s)[^\n;{}=]*?\b(?P<name>[A-Z]\w*)::(~?[A-Za-z_]\w*|operator[^\s(]+)\s*\(", re.M)
NOT_COUNTED = ("using", "friend", "static constexpr", "enum", "struct", "class", "typedef")


def body_at(text, brace):
    """The text between the brace at position `brace` and the one that closes it."""
    depth = 0
    for position in range(brace, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return text[brace + 1:position]
    return text[brace + 1:]


def statements(body):
    """The declarations of a class body; what stands in braces inside is left out."""
    flat, depth = [], 0
    for character in body:
        if character == "{":
            depth += 1
            if depth == 1:
                flat.append("{")
        elif character == "}":
            depth -= 1
            if depth == 0:
                flat.append("};")
        elif depth == 0:
            flat.append(character)
    without_labels = re.sub(r"\b(public|private|protected)\s*:", "", "".join(flat))
    return [statement.strip() for statement in without_labels.split(";") if statement.strip()]


def without_arguments(text):
    """`text` without template arguments."""
    previous = None
    while previous != text:
        previous, text = text, re.sub(r"<[^<>]*>", "", text)
    return text


def count(body):
    """(methods, members) that a class body declares; defaulted and deleted functions do not count."""
    methods = members = 0
    for statement in statements(body):
        if statement.startswith(NOT_COUNTED) or not re.search(r"\w", statement):
            continue
        plain = without_arguments(statement)
        if re.search(r"=\s*(default|delete)\s*$", plain):
            continue
        is_call = re.search(r"(\b~?\w+|operator\S+)\s*\(", plain)
        names_member = re.search(r"\w_\s*(\{\}?\s*|=.*|\s+GUARDED_BY.*)?$", plain.split("(")[0])
        if is_call and not names_member and not re.search(r"\w_\s*$", plain):
            methods += 1
        else:
            members += 1
    return methods, members


def declared(text):
    """(name, kind, line, methods, members) of each class that `text`, blanked out, defines."""
    for match in HEAD.finditer(text):
        methods, members = count(body_at(text, match.end() - 1))
        yield (match.group("name"), match.group("kind"), text.count("\n", 0, match.start()) + 1,
               methods, members)


def defined_in(text):
    """Names of the classes whose methods `text`, blanked out, defines outside of a class body."""
    return {match.group("name") for match in DEFINITION.finditer(text)}
