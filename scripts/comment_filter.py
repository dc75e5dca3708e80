#!/usr/bin/env python3
"""doxygen_filter.py FILE: a header with its `//` comments as Doxygen reads them.

A comment above a declaration describes it, and the declarations of one line that follow without an
empty line. A comment behind a declaration describes that. Comments inside functions describe
nothing. Calls of a macro that makes functions are replaced by what they make.
"""
import re
import sys

COMMENT = re.compile(r"^(\s*)//(?!/)(.*)$")
SCOPE = re.compile(r'\b(namespace|class|struct|union|enum)\b|extern\s*"')


def code_of(line):
    """The line without strings and comments, and the column where its comment begins or None."""
    code, quote, at = "", None, 0
    while at < len(line):
        char = line[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = None
                code += char
        elif char == '"' or (char == "'" and not (at and line[at - 1].isalnum())):
            quote = char
            code += char
        elif line.startswith("//", at):
            return code, at
        else:
            code += char
        at += 1
    return code, None


def macros_of(lines):
    """Macros with arguments, defined on several lines: name -> (parameters, body lines)."""
    macros, at = {}, 0
    while at < len(lines):
        start = re.match(r"#define (\w+)\(([^)]*)\)(.*)", lines[at])
        if start and lines[at].endswith("\\"):
            body = [start[3]]
            while lines[at].endswith("\\"):
                at += 1
                body.append(lines[at])
            body = [line.rstrip("\\").rstrip() for line in body]
            macros[start[1]] = [p.strip() for p in start[2].split(",")], [b for b in body if b]
        at += 1
    return macros


def expanded(lines):
    """Replaces the calls of those macros, each on a line of its own; comments stay in front."""
    macros, out, in_define = macros_of(lines), [], False
    undefined = {line.split()[1] for line in lines if line.startswith("#undef ")}
    hidden_define = False
    for line in lines:
        if line.startswith("#define"):
            hidden_define = re.match(r"#define (\w+)", line)[1] in undefined
        define = in_define or line.startswith("#define")
        in_define = define and line.endswith("\\")
        if (define and hidden_define) or (line.startswith("#undef ") and not in_define):
            continue  # a macro for this file alone
        call = None if define else re.match(r"(\w+)\(([^()]*)\);?\s*(//.*)?$", line)
        if not call or call[1] not in macros:
            out.append(line)
            continue
        parameters, body = macros[call[1]]
        values = dict(zip(parameters, (a.strip() for a in call[2].split(","))))
        comment = [call[3]] if call[3] else []
        made, hidden = [], 0
        for text in body:
            text = re.sub(r"#(\w+)", lambda m: f'"{values[m[1]]}"' if m[1] in values else m[0],
                          text.replace("##", "\0"))
            text = re.sub(r"\w+", lambda m: values.get(m[0], m[0]), text).replace("\0", "")
            if re.match(r"\s*namespace op \{", text) or hidden:  # tables, not functions to call
                hidden += text.count("{") - text.count("}")
                continue
            made.append(text)
        for text in made:
            out += comment if comment and re.match(r"\s*(inline|template|constexpr)\b", text) else []
            out.append(text)
    return out


def filtered_c(lines):
    """The same for a header in C, whose comments are /* ... */; none is shared."""
    out = []
    for number, line in enumerate(lines):
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if number == 0:
            line = line.replace("/*", "/** \\file\n", 1)
        elif re.match(r"\s*/\* ", line) and (following or "*/" not in line) and "/* ---" not in line:
            line = line.replace("/*", "/**", 1)
        elif re.search(r"\S\s*/\* ", line) and not line.startswith("#"):
            line = line.replace("/* ", "/**< ", 1)
        out.append(line)
    return out


def filtered(lines):
    if lines[0].startswith("/*"):
        return filtered_c(lines)
    lines = expanded(lines)
    out = []
    scopes = []  # of each open brace: whether it holds declarations
    parens = 0
    statement = ""  # since the last ; { or }
    block = []  # comment lines not yet written
    shared = None  # the comment that the next declaration has, too
    continues = None  # the column of a trailing comment
    in_define = False
    for number, line in enumerate(lines):
        declares = all(scopes) and parens == 0
        if line.lstrip().startswith("#") or in_define:
            in_define = line.endswith("\\")
            defines = line.startswith("#define")
            text = block or shared if defines else None
            out += [re.sub("//", "///", b, count=1) for b in text] if text else block
            out.append(line)
            block, shared, continues = [], text, None
            continue
        comment = COMMENT.match(line)
        if comment and declares:
            if continues == len(comment[1]):
                out.append(f"{comment[1]}///<{comment[2]}")
                continue
            block.append(line)
            shared = None
            following = lines[number + 1].strip() if number + 1 < len(lines) else ""
            if following and not re.match("#(?!define)", following):
                continue
            if len(out) + 1 == len(block) or number + 1 == len(block):  # the file's own
                out += ["/// \\file"] + [re.sub(r"//", "///", b, count=1) for b in block]
            else:
                out += block
            block = []
            continue
        code, column = code_of(line)
        starts = declares and not statement.strip() and code.strip()
        text_above = bool(block or shared)
        if starts and code.strip()[0] != "}":
            text = block if block else shared
            if text:
                indent = re.match(r"\s*", line)[0]
                out += [re.sub(r"^\s*//", indent + "///", b) for b in text]
                shared = text
        elif block:
            out += block
        if not line.strip() or code.strip().startswith("}"):
            shared = None
        block, continues = [], None
        if starts and not text_above and column is not None and code.rstrip().endswith("{"):
            out.append(re.match(r"\s*", line)[0] + "///" + line[column + 2:])
        depth = len(scopes)
        for char in code:
            if char == "(":
                parens += 1
            elif char == ")":
                parens -= 1
            elif char == "{":
                head = re.sub(r"template\s*<[^{;]*?>(?=\s*(class|struct|union))", "", statement)
                head = re.sub(r"alignas\([^)]*\)", "", head)
                while "<" in head and head != (head := re.sub(r"<[^<>]*>", "", head)):
                    pass
                scopes.append(bool(SCOPE.search(head)) and "(" not in head and "=" not in head)
                statement = ""
                continue
            elif char == "}":
                if scopes:
                    scopes.pop()
                statement = ""
                continue
            elif char == ";":
                statement = ""
                continue
            statement += char
        if re.fullmatch(r"\s*(public|private|protected):\s*", statement):
            statement = ""
        enum = statement.rstrip().endswith(",") and parens == 0
        if enum:
            statement = ""
        else:
            statement += " "
        if len(scopes) > depth or (not starts and len(scopes) != depth):
            shared = None  # a body of several lines
        whole = starts and code.strip()[0] != "}" and code.rstrip().endswith("}")
        if column is not None and declares and parens == 0 and code.strip() and \
                (whole or not code.rstrip().endswith(("{", "}"))):
            line = line[:column] + "///<" + line[column + 2:]
            continues = column
        out.append(line)
    return out + block


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(filtered(file.read().split("\n"))))
