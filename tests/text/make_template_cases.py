#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What jinja2 makes of templates, set up as transformers' apply_chat_template sets it up.

  make_template_cases.py                       writes cases/template_cases.json
  make_template_cases.py --templates DIR ...   the same for other templates, to --out, which is not committed

A case is a template, variables, and the text that jinja2 makes of them, or null where it refuses. The version of
jinja2 is in the file; transformers asks for 3.1.6. With transformers installed, its own environment is compared.
"""
import argparse
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent / "cases"
NOW = datetime.datetime(2026, 11, 28, 17, 5, 9)
TOKENS = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>", "unk_token": "<|unk|>"}


class Generation(jinja2.ext.Extension):
    """{% generation %}: what it holds, and where in the text."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


def rendered(source, variables):
    """The text, or None and why not."""
    try:
        return ENV.from_string(source).render(**variables), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city, \"now\" & <here>.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Its name, as in Łódź"},
        "days": {"type": "integer", "enum": ["1", "3"], "default": 3},
        "units": {"type": ["string", "null"]}}, "required": ["city"]},
    "return": {"type": "string", "description": "A sentence"}}}
CLOCK = {"type": "function", "function": {
    "name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "id": "abcdefghi", "function": {"name": "get_weather", "arguments": {"city": "Łódź", "days": 3}}}]}
TWO_CALLS = {"role": "assistant", "content": None, "tool_calls": CALL["tool_calls"] + [
    {"type": "function", "id": "123456789", "function": {"name": "now", "arguments": {}}}]}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def result(text):
    return {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": text}


CONVERSATIONS = {
    "question": dict(messages=[user("Why is the sky blue?")], add_generation_prompt=True),
    "system": dict(messages=[system("  Be brief.\n"), user(" 1 + 1? ")], add_generation_prompt=True),
    "turns": dict(messages=[system("Be kind."), user("Hi"), assistant(" Hello! "), user("Dźień dobry 👋\n\nthere"),
                            assistant("Cześć.\n")]),
    "turns-without-system": dict(messages=[user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
                                 add_generation_prompt=True),
    "thoughts": dict(messages=[user("2 * 3?"), assistant("<think>\ntwice three\n</think>\n\n6"), user("and 4?"),
                               assistant("<think>\n8\n</think>\n\nEight")], add_generation_prompt=False),
    "no-thoughts": dict(messages=[system("/no_think Be brief."), user("2 * 3?")], add_generation_prompt=True,
                        enable_thinking=False),
    "reasoning": dict(messages=[user("2?"), assistant("Two", reasoning_content="one and one"), user("3?")],
                      add_generation_prompt=True),
    "tools": dict(messages=[user("Weather in Łódź?")], tools=[WEATHER, CLOCK], add_generation_prompt=True),
    "tool-call": dict(messages=[system("Use tools."), user("Weather in Łódź?"), CALL, result('{"sky": "grey"}'),
                                assistant("It is grey.")], tools=[WEATHER]),
    "two-tool-calls": dict(messages=[user("Weather and time?"), TWO_CALLS, result("grey"),
                                     {"role": "tool", "name": "now", "content": "17:05"}], tools=[WEATHER, CLOCK],
                           add_generation_prompt=True),
    "parts": dict(messages=[{"role": "user", "content": [{"type": "text", "text": " Look: "}, {"type": "image"}]},
                            assistant("A cat.")]),
    "out-of-turn": dict(messages=[assistant("I begin."), user("No.")]),
    "unknown-role": dict(messages=[{"role": "narrator", "content": "Once"}], add_generation_prompt=True),
    "empty": dict(messages=[], add_generation_prompt=True),
    "odd-text": dict(messages=[user("{{ 1 }} {% x %} <b>&amp;</b> 'q' \"d\" \\n \u00a0\u2028"), assistant("")]),
}

V = {"n": 7, "x": 2.5, "text": " Grüße, \"Welt\"\n", "names": ["Ann", "bob", "Cy"], "none_value": None, "yes": True,
     "d": {"b": 2, "a": [1, {"k": "v"}], "items": "own"}, "people": [{"name": "Ann", "age": 3}, {"name": "Bo"}],
     "numbers": [3, 1, 2, 3], "empty": []}
# Expressions and statements on V: each a template of its own.
SNIPPETS = """
{{ n }} {{ x }} {{ text }}|{{ none_value }}|{{ yes }}|{{ missing }}|{{ names }}|{{ d }}
{{ n + 1 }} {{ n - 9 }} {{ n * 2 }} {{ n / 2 }} {{ n // 2 }} {{ -n // 2 }} {{ n % 3 }} {{ -n % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}
{{ 1 / 3 }} {{ 1e16 }} {{ 1.0 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 123456789012345680.0 }} {{ -0.0 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1e999 }} {{ -1e999 }} {{ 1e-999 }} {{ 4e-320 }} {{ 1e308 * 10 }} {{ 2e-310 | round(15) }} {{ 1e308 | round(15) }} {{ 1e999 == 1e1000 }}
{{ -n|abs }} {{ (-n)|abs }} {{ - 2 ** 2 }} {{ 2 + 3 * 4 - 1 }} {{ 1 ~ 2 ~ none }} {{ not n == 7 }} {{ 2 ** 3 ** 2 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ none == false }}
{{ 'ß' in text }} {{ 'x' not in text }} {{ 3 in numbers }} {{ 'a' in d }} {{ 'name' in people[0] }} {{ 1 in (1, 2) }} {{ 'a' in missing }}
{{ names[0] }} {{ names[-1] }} {{ names[9] }} {{ names[1:] }} {{ names[::-1] }} {{ names[:-1] }} {{ text[1:6] }} {{ text[::-1] }} {{ text[-3] }}
{{ d.a }} {{ d['a'][1].k }} {{ d.items() | list }} {{ d['items'] }} {{ d.zzz }} {{ d.a.1.k }} {{ d.get('zzz', 4) }} {{ d.get('b') }}
{{ n if yes else 'no' }} {{ 'shown' if not yes }} {{ 'a' if false else 'b' if false else 'c' }} {{ (1, 2)[0] }} {{ () }} {{ (1,) }} {{ 1, 2 }}
{{ yes and n }} {{ none_value or 'other' }} {{ empty or names and 'both' }} {{ not empty }} {{ false or none }} {{ [] and 1 }}
{{ text | trim }}|{{ text.strip() }}|{{ text.lstrip() }}|{{ 'abc' | upper }}
{{ 'xxaxx'.strip('x') }} {{ 'xxaxx'.rstrip('x') }} {{ '  a b  c '.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }}
{{ 'Hello World'.lower() }} {{ 'hELLO wORLD'.title() }} {{ 'hELLO'.capitalize() }} {{ "it's a (test)-case" | title }} {{ 'ÄÖ' | lower }}
{{ 'banana'.replace('an', 'AN', 1) }} {{ 'banana' | replace('a', '') }} {{ 'ab'.replace('', '-') }} {{ 'banana'.count('an') }} {{ 'banana'.find('n') }} {{ 'banana'.rfind('n') }}
{{ 'a.b'.startswith('a') }} {{ 'a.b'.endswith(('x', 'b')) }} {{ 'a-b-c'.partition('-') }} {{ 'abc'.removeprefix('a') }} {{ '-'.join(names) }} {{ 'l1\\nl2'.splitlines() }}
{{ names | join(', ') }} {{ people | map(attribute='name') | join('/') }} {{ numbers | join }} {{ people | join(';', attribute='name') }}
{{ names | length }} {{ d | length }} {{ text | length }} {{ names | first }} {{ names | last }} {{ empty | first }} {{ 'abc' | last }} {{ missing | length }}
{{ missing | default('dflt') }} {{ none_value | default('x') }} {{ none_value | default('x', true) }} {{ '' | d('e', boolean=true) }}
{{ people | selectattr('age', 'defined') | list }} {{ people | rejectattr('age') | list }} {{ numbers | select('odd') | list }} {{ numbers | reject('equalto', 3) | list }}
{{ people | selectattr('name', 'equalto', 'Bo') | map(attribute='name') | first }} {{ people | map(attribute='age', default=0) | list }} {{ names | map('upper') | list }}
{{ numbers | sort }} {{ names | sort }} {{ names | sort(reverse=true, case_sensitive=true) }} {{ numbers | unique | list }} {{ numbers | reverse | list }} {{ numbers | sum }} {{ numbers | max }} {{ names | min }}
{{ d | dictsort }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ people | sort(attribute='name') | map(attribute='name') | list }}
{{ '42' | int }} {{ 'x' | int }} {{ '4.7' | int }} {{ 3.9 | int }} {{ '0x1f' | int(base=16) }} {{ '2.5' | float }} {{ 'q' | int(-1) }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 2.1 | round(0, 'ceil') }}
{{ d | tojson }} {{ text | tojson }} {{ '<&>é' | tojson }} {{ '<é😀' | tojson(ensure_ascii=true) }} {{ x | tojson }} {{ yes | tojson }} {{ none | tojson }}
{{ d | tojson(indent=2) }}|{{ [] | tojson(indent=4) }}|{{ {} | tojson }}|{{ d | tojson(separators=(',', ':')) }}|{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}
{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}|{{ 'a\\nb' | indent('> ') }}
{{ 'a-b c_d  é2e, x.' | wordcount }} {{ '' | wordcount }}
{{ names | string }} {{ d | string | length }} {{ 5 | string ~ 6 }} {{ d | items | list }} {{ [1, 'a\\'b', none, true, 1.5] }} {{ "q'd\\"" | list }}
{{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ none_value is none }} {{ n is number }} {{ n is string }} {{ d is mapping }} {{ names is sequence }} {{ names is iterable }} {{ yes is boolean }} {{ yes is true }} {{ n is not none }}
{{ n is odd }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is in [7] }} {{ 'a' is lower }} {{ none is sameas none }} {{ d is callable }} {{ range is callable }} {{ x is float }} {{ yes is integer }}
{% for x in names %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }},{% endfor %}{{ x }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'añb' %}[{{ c }}]{% endfor %}
{% for x in names if x != 'bob' %}{{ loop.index }}{{ x }}{% else %}none{% endfor %}{% for x in empty %}x{% else %}nothing{% endfor %}
{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}{{ range(3) | list }}{{ range(4, 0, -2) | list }}
{% for a in [1, 2] %}{% for b in [3, 4] %}{{ a }}{{ b }}{{ loop.index }}{{ loop.cycle('x', 'y') }} {% endfor %}{{ loop.index }}{% endfor %}
{% set v = 1 %}{% for i in [1, 2] %}{% set v = v + i %}{{ v }}{% endfor %}{{ v }}{% if true %}{% set v = 9 %}{% endif %}{{ v }}
{% set ns = namespace(total=0, seen=[]) %}{% for i in numbers %}{% set ns.total = ns.total + i %}{% set ns.seen = ns.seen + [i] %}{% endfor %}{{ ns.total }}{{ ns.seen }}{{ ns.nothing }}
{% set a, b = 1, 'two' %}{{ a }}{{ b }}{% set (c, e) = [3, 4] %}{{ c + e }}{% set block %}x{{ n }}y{% endset %}[{{ block }}]{% set loud | upper %}abc{% endset %}{{ loud }}
{% macro f(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }}{{ n }};{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f('z', c=3) }}{{ f() }}{{ f(b=1, a=2) | upper }}
{% macro down(k) %}{% if k > 0 %}{{ k }},{{ down(k - 1) }}{% endif %}{% endmacro %}{{ down(4) }}{% set late = 'L' %}{% macro g() %}{{ late }}{% endmacro %}{{ g() }}{% set late = 'M' %}{{ g() }}
{%- set q = dict(a=1, b=2) %}{{ q }}{{ {'x': 1, 'x': 2} }}{{ {1: 'one', none: 0}[1] }}{{ dict({'k': 1}, l=2).items() | list }}
{% set s = '<b>' | safe %}{{ s }}{{ s ~ '<' }}{{ s + '&' }}{{ '<' | e }}{{ 'a' ~ '<' }}{{ (d | tojson | safe) ~ '' }}
{% generation %}made {{ n }}{% set inner = 1 %}{% endgeneration %}{{ inner }}{% raw %}{{ raw }} {% x %}{% endraw %}{# note #}end
{{ 'a' 'b' }}{{ "\\u00e9\\x41\\t|\\q" }}{{ '''' }}{{ 0x1F }}{{ 1_000 }}{{ [1, 2,] }}{{ {'a': 1,} }}{{ {}.get('x') }}{{ "}}" }}{{ {"a": {"b": 1}} }}
{{ none_value.x }}|{{ n.x }}|{{ names.x }}|{{ 'abc'.x }}|{{ n['x'] }}|{{ names['x'] }}|{{ none_value['x'] }}|{{ names[none] }}
{{ missing.x }}
{{ missing + 1 }}
{{ missing() }}
{{ n + 'a' }}
{{ names < 3 }}
{{ 'a' in 5 }}
{% for i in 5 %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{{ 1 / 0 }}
{{ n() }}
{{ names | tojson(indent=2) | length }} {{ missing | tojson }}
{{ d.update({'z': 1}) }}
{{ names.append(4) }}
{{ raise_exception('told so') }}
{{ names | nosuchfilter }}
{{ n is nosuchtest }}
{{ f(1, 2 }}
{% if n %}
{% endfor %}
{% nosuch %}
{{ 1 +
{{ 'abc }}
{# open
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{{ ns.x }}{% set ns.x = 1 %}
{{ strftime_now('%d %b %Y %H:%M:%S %j') }}
{{ people | selectattr('name', 'in', ['Ann']) | list | length }}{{ people | map(attribute='name') | map('length') | list }}
{{ names | map(attribute='zzz') | list | length }}{{ people | sum(attribute='n') }}
{{ none_value | selectattr('a') | list }}{{ none_value | map('upper') | list }}{{ none_value | map(attribute='x') | list }}
{{ 'x' * 3 }}{{ 3 * [1] }}{{ [1] + [2] }}{{ 'é' * 2 }}{{ 'a' * -1 }}
{{ (numbers | select('gt', 1)) is sequence }}{% set gen = numbers | map('abs') %}{{ gen | list }}{{ gen | list }}
""".strip("\n").split("\n")
# Whitespace: what tags take away.
SPACES = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a {%- if true -%} b {%- endif -%} c", "  {{ 1 }}  \n  {{- 2 -}}  \n 3\n\n",
    "x\n  {%+ if true %}y\n{% endif +%}\nz", "{# c #}\n  {#- d -#}  e\n  {# f #}\ng", "\n\n{% set a = 1 %}\n\n{{ a }}\n",
    "a\r\n{% if true %}\r\nb{% endif %}\r\n", "  {% raw %}  {{ x }}\n  {%- endraw %}\n y", "{% for i in [1, 2] %}\n    {{ i }}\n{% endfor %}\n",
    "\u00a0{%- set a = 1 %}\u2003\n{{- a }}", "a\n\t {% set b = 2 %}{{ b }}\n   {% set c = 3 %}   {{ c }}", "{{ 1 }}\n{% if true %}{{ 2 }}\n{% endif %}\n{{ 3 }}",
    "{%- if true %} a {% else %} b {%- endif %}", "{#- x -#}\n\n y {#+ z +#}\nw", "a{% set x = 1 -%}\n\n  b {%- set y = 2 %}  \n c",
]


def cases_of(templates):
    cases = []
    for path in templates:
        source = path.read_text()
        for name, variables in CONVERSATIONS.items():
            text, why = rendered(source, {**TOKENS, "tools": None, "documents": None, "add_generation_prompt": False,
                                          **variables})
            cases.append({"template": path.stem, "conversation": name, "text": text, **({"why": why} if why else {})})
    return cases


def snippet_cases():
    cases = []
    for source in SNIPPETS + SPACES:
        text, why = rendered(source, V)
        cases.append({"source": source, "text": text, **({"why": why} if why else {})})
    return cases


def compare_with_transformers(templates):
    try:
        from transformers.utils import chat_template_utils
    except ImportError:
        return
    for path in templates:
        for name, variables in CONVERSATIONS.items():
            if "strftime_now" in path.read_text():
                continue
            given = {**TOKENS, "tools": None, "documents": None, "add_generation_prompt": False, **variables}
            try:
                theirs = chat_template_utils._compile_jinja_template(path.read_text()).render(**given)
            except Exception:
                theirs = None
            if theirs != rendered(path.read_text(), given)[0]:
                sys.exit(f"{path.name}, {name}: transformers' own environment gives another text")
    print("the environment is that of transformers", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--templates", type=pathlib.Path, nargs="+")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "template_cases.json")
    arguments = parser.parse_args()
    templates = arguments.templates or sorted((HERE / "templates").glob("*.jinja"))
    compare_with_transformers(templates)
    made = {"jinja2": jinja2.__version__, "now": NOW.strftime("%Y-%m-%d %H:%M:%S"), "tokens": TOKENS,
            "conversations": CONVERSATIONS, "variables": V, "templates": cases_of(templates),
            "snippets": snippet_cases()}
    if arguments.templates:
        made["sources"] = {path.stem: path.read_text() for path in templates}
    arguments.out.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n")
    refused = sum(case["text"] is None for case in made["templates"])
    print(f"{len(made['templates'])} cases of {len(templates)} templates ({refused} refused), "
          f"{len(made['snippets'])} snippets; jinja2 {jinja2.__version__}")


if __name__ == "__main__":
    main()
