#!/usr/bin/env python3
"""Makes man pages and the bash completion of the program's own --help.

Usage: make_man.py PROGRAM FOLDER      writes FOLDER/man1/*.1 and FOLDER/draftscope.bash
"""
import re
import subprocess
import sys
from pathlib import Path


def help_text(program, *words):
    return subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout


def commands(text):
    """The commands that --help lists, with their descriptions."""
    return re.findall(r"^  ([a-z][\w-]+) {2,}(\S.*)$", text, flags=re.M)


def options(text):
    return sorted(set(re.findall(r"^ *(?:-\w, ?)?(--[\w-]+)", text, flags=re.M)))


def roff(text):
    """Text as it is, without fill: a line that begins with a dot or a quote is none of roff's."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)


def page(name, version, summary, text, others):
    see = ", ".join(f"\\fB{other}\\fR(1)" for other in others)
    return (f'.TH {name.upper()} 1 "" "{version}" "Draftscope"\n.SH NAME\n{name} \\- {roff(summary)}\n'
            f".SH SYNOPSIS\n.nf\n{roff(text)}\n.fi\n.SH SEE ALSO\n{see}\n")


def completion(found):
    cases = "\n".join(f"        {name}) words='{' '.join(names)}' ;;" for name, names in found.items())
    return f"""# bash completion for draftscope
_draftscope() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words
    case "${{COMP_WORDS[1]}}" in
{cases}
        *) words='' ;;
    esac
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{' '.join(found)}'
    elif [[ "$word" != -* ]]; then
        compopt -o default
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}}
complete -F _draftscope draftscope
"""


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    text = help_text(program)
    listed = commands(text)
    if not listed:
        sys.exit(f"{program} --help lists no command")
    pages = folder / "man1"
    pages.mkdir(parents=True, exist_ok=True)
    names = [f"draftscope-{name}" for name, _ in listed]
    (pages / "draftscope.1").write_text(
        page("draftscope", version, "profiler and debugger for speculative decoding", text, names), encoding="utf-8")
    found = {}
    for name, summary in listed:
        text = help_text(program, name)
        found[name] = options(text)
        (pages / f"draftscope-{name}.1").write_text(page(f"draftscope-{name}", version, summary, text, ["draftscope"]),
                                                    encoding="utf-8")
    (folder / "draftscope.bash").write_text(completion(found), encoding="utf-8")


if __name__ == "__main__":
    main()
