"""The reference of the Python package, from its sources and the stubs of its compiled modules."""
import ast
import html
import os

# Names of the compiled module _core that the package has as its own; what else is there is internal.
CORE = {"Array", "DeviceError", "InternalError", "InvalidPointerError", "OutOfMemoryError", "ParseError"}
OTHER_FILES = {"_arguments.py", "_compiled.py", "_dtypes.py", "_typing.py"}  # nothing public
STYLE = ("<style>:root{color-scheme:light dark}body{font:15px/1.5 sans-serif;max-width:60em;margin:auto}"
         "pre{white-space:pre-wrap;margin:1.5em 0 0}p{margin:0 0 0 2em;white-space:pre-wrap}</style>")


def decorators(node):
    return {ast.unparse(decorator) for decorator in node.decorator_list}


def signature(node):
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    if "property" in decorators(node):
        return f"{node.name}: {ast.unparse(node.returns) if node.returns else 'object'}"
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){result}"


def names(body, prefix=""):
    """Public classes, functions and methods: (name, signature, comment), overloads as one."""
    found = {}
    for node in body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
            continue
        if any(one.endswith((".setter", ".deleter")) for one in decorators(node)):
            continue
        lines, comment = found.get(node.name, ("", ""))
        found[node.name] = (f"{lines}\n{signature(node)}".strip(), comment or ast.get_docstring(node))
        if isinstance(node, ast.ClassDef):
            for name, line, about in names(node.body, f"{node.name}."):
                found[name] = (line, about)
    return [(prefix + name, line, comment) for name, (line, comment) in found.items()]


def write(root, out):
    """Writes OUT/python.html; returns a line for each public name without a comment."""
    folder = f"{root}/bindings/python/tenon"
    page = [f"<!doctype html><meta charset=utf-8><title>Tenon: Python</title>{STYLE}<h1>Tenon: Python</h1>"]
    gaps = []
    for file in sorted(os.listdir(folder), key=lambda name: (name != "__init__.py", name.strip("_"))):
        if not file.endswith((".py", ".pyi")) or file in OTHER_FILES:
            continue
        with open(f"{folder}/{file}", encoding="utf-8") as source:
            module = ast.parse(source.read())
        page.append(f"<h2>{file}</h2><p>{html.escape(ast.get_docstring(module) or '')}</p>")
        for name, line, comment in names(module.body):
            if file == "_core.pyi" and name.partition(".")[0] not in CORE:
                continue
            if not comment:
                gaps.append(f"bindings/python/tenon/{file}: {name} has no comment")
            page.append(f"<pre id=\"{file}.{name}\"><b>{name}</b>\n{html.escape(line)}</pre>"
                        f"<p>{html.escape(comment or '')}</p>")
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/python.html", "w", encoding="utf-8") as target:
        target.write("\n".join(page) + "\n")
    return gaps
