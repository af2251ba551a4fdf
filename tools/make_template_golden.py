#!/usr/bin/env python3
"""Writes tests/golden/model/templates.json: what Jinja, set up as Hugging Face's libraries set it up, makes of small templates
that use what chat templates use of the language. Run it again only when a case is added; the file is checked in.

usage: tools/make_template_golden.py        needs the Python package jinja2
"""
import itertools
import json

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from make_tokenizer_golden import ROOT

OUT = ROOT / "tests" / "golden" / "model" / "templates.json"
NAMES = {
    "messages": [{"role": "system", "content": " Be\nbrief. "}, {"role": "user", "content": "Hi \u00fc\u4f60\U0001f600"},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello"}, {"role": "user", "content": "it's \"so\""}],
    "add_generation_prompt": True, "tools": None, "bos_token": "<s>", "eos_token": "</s>", "n": 3, "f": 2.5, "empty": [],
    "d": {"b": 1, "a": [1, 2.0, None, True, "x'y"], "items": "own"}, "words": ["beta", "Alpha", "gamma", "alpha"],
}
VALUES = [
    "1 + 2 * 3 - 4", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "7 / 2", "2 ** 3", "2 ** 0.5", "-2 ** 2", "+n", "-f", "1e3", "1_000", "0.1 + 0.2",
    "n ~ 'x' ~ f ~ none", "'a' 'b' ~ \"c\"", "'a' * 3", "[1] + [2, 'x']", "(1, 2) | list", "() | list", "{'k': 1, 'z': [true, false, none]}", "'%}' ~ '}}'",
    "'tab\\tnl\\nquote\\'bs\\\\ \\x41\\u00e4\\U0001f600\\q\\0'", "\"it's\"", "1 == 1.0", "'a' < 'b'", "n >= 3 and n != 4", "not n or empty", "n if n > 5", "n if n > 5 else 'small'",
    "1 if n else 2 if f else 3", "undefined_name", "undefined_name is defined", "tools is none", "tools is not none", "'e' in 'hello'", "'b' in d", "3 in [1, 2]", "3 not in [1, 2]",
    "messages[0].role", "messages[-1]['content']", "messages[9] is defined", "messages[0].missing is defined", "messages[0]['missing'] | default('none')", "messages[1:] | length", "messages[::-1] | map(attribute='role') | list",
    "messages[:2][0].role", "'hello'[1:3]", "'h\u00e4ll\u00f6'[::-1]", "'\u4f60\u597d'[0]", "words[-2:]", "words[1:100]", "words[::2]", "d.items() | map('first') | list", "d['items']", "d.get('b')", "d.get('zz')", "d.get('zz', 5)", "d.keys() | list", "d.values() | list",
    "messages | length", "'\u4f60\u597d' | length", "d | length", "' x ' | trim", "'xxaxx' | trim('x')", "words | join(', ')", "messages | join('|', attribute='role')", "words | first", "words | last", "empty | first is defined",
    "'abc' | list", "n | string", "'12' | int", "'1.5' | float", "'x' | int", "'x' | int(default=7)", "3.7 | int", "words | map('upper') | join(' ')", "messages | selectattr('role', 'equalto', 'user') | list | length",
    "messages | rejectattr('role', '==', 'user') | map(attribute='role') | list", "[1, 2, 3, 4] | select('even') | list", "[1, 0, 2] | select | list", "[1, 2, 3] | reject('odd') | list", "tools | selectattr('x') | list",
    "d | items | map('last') | list", "d | dictsort | map('first') | list", "{'b': 1, 'A': 2} | dictsort | map('join') | list", "{'b': 1, 'A': 2} | dictsort(case_sensitive=true) | map('join') | list", "{'b': 1, 'A': 2} | dictsort(by='value', reverse=true) | map('join') | list", "words | sort", "words | sort(case_sensitive=true)", "words | sort(reverse=true)",
    "words | unique | list", "words | reverse | list", "'abc' | reverse", "'a\\nb\\n\\nc' | indent", "'a\\nb' | indent(2, true)", "'a\\n\\nb' | indent(width=1, blank=true)", "'<&>' | escape", "'<b>' | safe", "-3 | abs", "2.567 | round(1)", "2.5 | round", "2.1 | round(method='ceil')",
    "[3, 1, 2] | min", "[3, 1, 2] | max", "[1, 2, 3] | sum", "[1, 2.5] | sum", "messages | map(attribute='content') | map('length') | sum", "'aXbX' | replace('X', '-')", "'aXbX'.replace('X', '-', 1)", "'hello world' | title", "'hELLO' | capitalize", "'\u00c4b' | lower", "'\u00e4b' | upper",
    "d | tojson", "words | tojson(indent=2)", "d | tojson(indent=4)", "empty | tojson(indent=2)", "'\u00e4\"\\n\\t\\x01/' | tojson", "{'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true)", "none | tojson", "1.0 | tojson", "{1: 2} | tojson",
    "'a,b,,c'.split(',')", "' a  b '.split()", "'a b c'.split(none, 1)", "'a-b-c'.split('-', 1)", "'a-b-c'.rsplit('-', 1)", "'a\\nb\\r\\nc\\n'.splitlines()", "messages[2].content.split('</think>')[-1].lstrip('\\n')", "'xxhixx'.strip('x')", "' hi '.rstrip() ~ '|'",
    "'\u3000\u00a0 hi\u2028'.strip()", "'hello'.startswith('he')", "'hello'.endswith(('x', 'lo'))", "'hello'.find('l')", "'hello'.rfind('l')", "'hello'.find('z')", "'hello'.count('l')", "'12'.isdigit()", "' '.isspace()", "'it is'.title()", "'{} and {b} {1}'.format('a', 'x', b=2) if false else '{} {}'.format('a', 2)",
    "'{0}{1}{0}'.format('a', 'b')", "'{{{}}}'.format(1)", "', '.join(words)", "'prefix-x'.removeprefix('prefix-')", "'x.txt'.removesuffix('.txt')", "range(3) | list", "range(1, 10, 3) | list", "range(5, 0, -2) | list", "dict(a=1, b='x')", "namespace(x=1).x",
    "n is number", "n is integer", "f is float", "true is boolean", "n is string", "d is mapping", "words is sequence", "words is iterable", "n is iterable", "4 is divisibleby 2", "n is odd", "n is even", "'a' is lower", "'A' is upper", "n is eq 3", "n is in [1, 3]", "n is gt(2)", "none is none", "false is false", "1 is true",
    "range is callable", "not 'a' is string", "'x' is not string", "words is defined and words", "(n if n else 0) | string ~ '!'", "[1, [2, [3]]]", "{'a': {'b': 'c'}}.a.b", "1 < 2 and 2 < 3", "'a' ~ 2 * 3", "10 - 2 - 3", "2 * 3 % 4", "loop is defined", "'%s' is string", "1 in {1: 2}", "1.5e-7", "1e16", "123456789.123", "'a\\\nb'",
    "['a', 'b'].index('b')", "[1, 1, 2].count(1)", "words[0][0]", "messages[1].content[3]", "true ~ false", "none or 'x'", "'' and 'x'", "d.a[4]", "(1, 2)[1]", "[('a', 1)] | length", "undefined_name | length", "undefined_name | default('x')", "'' | default('x', true)", "undefined_name or 'x'", "undefined_name is none",
    "{1: 2, 'x': true, 2.5: none}", "{0: 'a', 8: 'b'}[8]", "{0: 'a'}['0'] is defined", "{1: 2}[1.0]", "{2: 'b', 1: 'a'} | dictsort | map('join') | list", "d[none] is defined", "none in d", "d.get(none, 'x')", "{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", "[1, [2.0]] == [true, [2]]",
    "9223372036854775807 // -1", "-7.5 // 2", "-7.5 % 2", "7 % -3", "range(9223372036854775800, 9223372036854775807, 5) | list", "'a.b.c'.rsplit('.')", "'aaa'.split('a')", "'aaa'.rsplit('aa')", "'abc'[-2]", "'abc'[5] is defined", "messages | map(attribute='x', default='-') | join", "['b', 'A'] | max", "['b', 'A'] | min",
    "'x' ~ loop", "d.items is callable", "'a'.strip is defined", "n.nothing is defined", "[d, d] | map(attribute='a.4') | list", "[[1, 2], [3]] | map(attribute=0) | list",
]
PROGRAMS = [
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }} {{ m.role }}\n{% endfor %}",
    "{% for m in messages if m.role != 'system' %}{{ loop.index0 }}{{ loop.revindex }}{{ m['role'] }}{% else %}none{% endfor %}",
    "{% for x in [] %}x{% else %}nothing{% endfor %}|{% for x in [1] %}x{% else %}nothing{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for (a, b) in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}",
    "{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1, 2, 3] %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.cycle('a', 'b') }} {% endfor %}",
    "{% for x in [1, 2] %}{% for y in [3, 4] %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }};{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}|{% endfor %}{{ x }}",
    "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% set ns.n = ns.n + loop.index %}{% endif %}{% endfor %}{{ ns.found }}{{ ns.n }}",
    "{% if n > 3 %}a{% elif n == 3 %}b{% else %}c{% endif %}{% if false %}x{% endif %}", "{% if n %}{% set y = 5 %}{% endif %}{{ y }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t | length }}", "{% set text %}one {{ n }}\n two{% endset %}[{{ text }}]", "{% set text | trim | upper %}  x y {% endset %}[{{ text }}]",
    "{% macro greet(name, mark='!') %}Hi {{ name }}{{ mark }}{% endmacro %}{{ greet('a') }}{{ greet('b', '?') }}{{ greet(mark='.', name='c') }}{{ greet() }}",
    "{% macro depth(x) %}{{ x }}{% if x > 0 %}{{ depth(x - 1) }}{% endif %}{% endmacro %}{{ depth(3) }}", "{% set outer = 'o' %}{% macro m() %}{{ outer }}{{ n }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}{{ m() | upper }}",
    "{% filter upper %}a {{ n }} b{% endfilter %}", "{% raw %}{{ not this }}{% if %}{% endraw %} x", "a{# comment {{ x }} {% if %} #}b", "line\n{# comment #}\nnext\n{%- raw -%}  {{ x }} {% endraw -%}  y",
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] | trim + eos_token + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}[{{ system | trim }}]{%- for m in rest %}\n  {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('alternate') }}{%- endif %}{{ m['role'] }}{%- endfor %}",
    "{%- set ns = namespace(last=messages|length - 1) %}{%- for m in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if m.role == 'user' and ns.last == 3 and index < 3 %}{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }}",
    "{% for k in {0: 'a', 5: 'b'} %}{{ k + 1 }}{% endfor %}", "{% for k, v in {0: 'a', 5: 'b'}.items() %}{{ k + 1 }}{{ v }}{% endfor %}", "{% set f = ' x '.strip %}[{{ f() }}]", "{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.x = 1 %}{{ ns.self.self.x }}",
    "{% if n == 1 %}a{% elif n == 2 %}b{% elif n == 3 %}c{% elif n == 3 %}d{% else %}e{% endif %}{% if n == 1 %}a{% elif n == 2 %}b{% else %}c{% endif %}",
    "{% set ns = namespace(i=0) %}{% macro next() %}{% set ns.i = ns.i + 1 %}{{ ns.i }}{% endmacro %}{{ next() ~ next() }}{{ (next(), next()) | join(next()) }}", "{% set ns = namespace(m=[1, 2]) %}{% for x in ns.m %}{% set ns.m = [] %}{{ x }}{% endfor %}{{ ns.m }}",
    "{% set d2 = dict(d, c=3) %}{{ d2.c }}{{ d2 | length }}", "a\n", "a\n\n", "\n a", "  {% if n %}\n  x\n  {% endif %}\n  y\n", "a\r\nb {{ n }}\r\n", "{% generation %}g{{ n }}{% endgeneration %}", "{{ '{{' }}{{ '}}' }}{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}['a'] }}", "{{- n -}} x {{- n }}", "{%for x in words%}{{x}}{%endfor%}", "{% if not undefined_name %}ok{% endif %}", "{{ messages[0]\n  .content\n | trim }}",
]
WRONG = [  # what Jinja refuses too, when it reads or when it runs
    "{{ [none] | sum }}", "{{ {[1]: 2} }}", "{{ namespace(x=1) | tojson }}", "{{ range | tojson }}", "{{ -'a' }}", "{{ 9223372036854775807 + '' }}", "{{ ', '.join([1]) }}",
    "{{ raise_exception('roles must alternate') }}", "{{ undefined_name.x }}", "{{ undefined_name['x'] }}", "{{ undefined_name + 'x' }}", "{{ 'a' + 1 }}", "{{ 1 < 'a' }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ nothing() }}", "{{ 'x' | unknown_filter }}",
    "{{ x is unknown_test }}", "{% for x in 3 %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{{ words.append('x') }}", "{% if n %}", "{% endif %}", "{{ n", "{{ (1 + }}", "{{ 'open }}", "{# open", "{% unknown %}", "{{ range(1000000) }}", "{{ 1 2 }}", "{% break %}",
    "{% set n.x = 1 %}", "{% for %}", "{{ | trim }}", "{{ a b }}", "{{ }}", "{% macro %}", "{{ 'x'.nosuch() }}", "{{ [1, 2 }}", "{{ 3 is divisibleby 0 }}", "{{ 3 | list }}", "{{ range(1, 2, 0) }}",
]


def raise_exception(message):
    raise ValueError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(line)

        def _inside(self, caller):
            return caller()

    out = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    out.filters["tojson"] = tojson
    out.globals["raise_exception"] = raise_exception
    return out


def white_space():
    """Every combination of the marks that take white space away, around lines that are blank or not."""
    for first, last, line in itertools.product(["", "-", "+"], ["", "-", "+"], ["a", " ", ""]):
        yield f"x \n{line} \t{{%{first} if n {last}%}}{line}\n\n  y {{%{first} endif {last}%}} \nz"
        yield f"x\n {line}{{#{first} comment {last}#}}\n {line} y"
    for first, last in itertools.product(["", "-"], ["", "-"]):
        yield f" x \n {{{{{first} n {last}}}}}\n y \n"


def main():
    jinja = environment()
    rows, problems = [], []
    for source in [f"{{{{ {value} }}}}" for value in VALUES] + PROGRAMS + list(white_space()):
        try:
            rows.append({"source": source, "text": jinja.from_string(source).render(**NAMES)})
        except Exception as error:  # the case is wrong, not Jinja
            problems.append(f"{source}: {error}")
    for source in WRONG:
        try:
            text = jinja.from_string(source).render(**NAMES)
        except Exception:  # Jinja has many
            continue
        problems.append(f"Jinja takes {source!r}: {text!r}")
    if problems:
        raise SystemExit("\n".join(problems))
    out = {"about": "made by tools/make_template_golden.py with Jinja", "names": NAMES, "rendered": rows, "wrong": WRONG}
    OUT.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{OUT}: {OUT.stat().st_size} bytes, {len(rows)} templates, {len(WRONG)} refused")


if __name__ == "__main__":
    main()
