#!/usr/bin/env python3
"""Makes C++ of a preprocessed CUDA source, for the emulator of GPUs in this folder.

    translate.py INPUT.ii OUTPUT.cc

A CUDA source, preprocessed by the host's compiler with device_code.h in front of it, is C++ but for four things:

    asm volatile("text" : outputs : inputs : "memory");    becomes emulator::ptx::code("text") that is run with operands
    kernel<<<blocks, threads, bytes, stream>>>(arguments)  becomes emulator::launch(kernel, ...)(arguments)
    extern __shared__ unsigned char x[];                   becomes a pointer to the block's shared memory
    threadIdx, blockIdx, blockDim, gridDim                 become calls

What comes from system headers is left as it is.
"""
import re
import sys

ASM = re.compile(r"\basm\b(\s+volatile\b)?\s*\(")
LAUNCH = re.compile(r"([A-Za-z_]\w*(?:<[^;{}<>]*>)?)\s*<<<")
SHARED = re.compile(r"\bextern\s+EMULATOR_SHARED\b[^;]*\bunsigned char (\w+)\[\];")
INDICES = {"threadIdx": "thread_index", "blockIdx": "block_index", "blockDim": "block_size", "gridDim": "grid_size"}
INDEX = re.compile(r"(?<![.>\w])(" + "|".join(INDICES) + r")\b")
LINE_MARKER = re.compile(r'^# \d+ "([^"]*)"([ \d]*)$', re.MULTILINE)
ENTERED_SYSTEM_HEADER = {"1", "3"}  # flags of a line marker; 3 alone is a system's macro in a file that need not be one
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def end_of_group(text, start):
    """Behind the parenthesis that closes the one before `start`; strings count for nothing."""
    depth, at = 1, start
    while depth:
        if text[at] == '"':
            at = STRING.match(text, at).end()
            continue
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[at], 0)
        at += 1
    return at


def split(text, separator):
    """The parts of a text between separators that are in no string and no parentheses."""
    parts, first, at = [], 0, 0
    while at < len(text):
        if text[at] == '"':
            at = STRING.match(text, at).end()
        elif text[at] in "([{":
            at = end_of_group(text, at + 1)
        elif text[at] == separator:
            parts.append(text[first:at])
            at += 1
            first = at
        else:
            at += 1
    return parts + [text[first:]]


def operand(text):
    """An operand of an asm statement, "constraint"(expression)."""
    constraint, expression = re.fullmatch(r'\s*"([^"]+)"\s*\((.*)\)\s*', text, re.DOTALL).groups()
    if constraint[0] in "=+":
        return f"emulator::ptx::register_of({expression})"
    kind = "constant" if constraint == "n" else "value_of_" + constraint
    return f"emulator::ptx::{kind}({expression})"


def ptx_call(inside):
    """What an asm statement becomes, of which this is between the parentheses."""
    text, *operands = split(inside, ":")
    if not "".join(STRING.findall(text)).strip('"'):
        return "((void)0)"
    found = [operand(part) for group in operands[:2] if group.strip() for part in split(group, ",")]
    operands = ", ".join(found or ["{}"])
    return ("({ static const emulator::ptx::code ptx_code(" + text + "); "
            "const emulator::ptx::operand ptx_operands[] = {" + operands + "}; ptx_code.run(ptx_operands); })")


def translate_asm(text):
    """The text with its asm statements translated."""
    done, at = [], 0
    while found := ASM.search(text, at):
        end = end_of_group(text, found.end())
        done += [text[at:found.start()], ptx_call(text[found.end():end - 1])]
        at = end
    return "".join(done) + text[at:]


def translate_launches(text):
    """The text with its kernel launches translated."""
    done, at = [], 0
    while found := LAUNCH.search(text, at):
        end = text.index(">>>", found.end())
        kernel = f"[&](const auto &...given) {{ {found.group(1)}(given...); }}"
        done += [text[at:found.start()], f"emulator::launch({kernel}, {text[found.end():end]})"]
        at = end + 3
    return "".join(done) + text[at:]


def translate(text):
    """A piece of CUDA as C++."""
    text = SHARED.sub(r"unsigned char *\1 = emulator::shared_memory();", text)
    return translate_launches(translate_asm(INDEX.sub(lambda found: f"emulator::{INDICES[found.group()]}()", text)))


def sections(text):
    """Pieces of the text, and whether each is of a system's header."""
    marks = list(LINE_MARKER.finditer(text))
    system = {mark.group(1) for mark in marks if ENTERED_SYSTEM_HEADER <= set(mark.group(2).split())}
    yield text[:marks[0].start()], True
    for mark, following in zip(marks, marks[1:] + [None]):
        is_system = mark.group(1).startswith("<") or mark.group(1) in system
        yield text[mark.start():following.start() if following else len(text)], is_system


def joined_sections(text):
    """The same, neighbours of one kind as one piece: a statement may have line markers inside."""
    pieces, kind = [], None
    for piece, is_system in sections(text):
        if is_system != kind and pieces:
            yield "".join(pieces), kind
            pieces = []
        kind = is_system
        pieces.append(piece)
    yield "".join(pieces), kind


def main():
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    with open(target, "w", encoding="utf-8") as file:
        for piece, is_system in joined_sections(text):
            file.write(piece if is_system else translate(piece))


if __name__ == "__main__":
    main()
