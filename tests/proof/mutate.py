"""One change of one operator in a line of C: where it can be made, and the text with it.  Lines are never added or removed."""
import re

# Their arguments are text for people or checks of our own mistakes; leaving one out is not a fault that a test could see.
TEXT = re.compile(r"BUG_IF|err_set|err_add|err_errno|fatal|bug_at|log_\w+|static_assert|_Static_assert|assert|DS_\w*POISON|"
                  r"__attribute__|__asm__")
# A removed call of these leaks memory or a descriptor, which the tests under sanitizers find, not these builds.
RELEASE = re.compile(r"\w*(free|release|close|unmap|munmap|unlock_and_free)$")
KEYWORD = {"if", "while", "for", "switch", "return", "sizeof", "do", "else", "case", "goto", "break", "continue", "default", "_Alignof"}
TOKEN = re.compile(r"(?P<id>[A-Za-z_]\w*)|(?P<num>(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)[uUlLfF]*)"
                   r"|(?P<op>->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.(){}\[\]#])|(?P<text>[\"'])")
COMPARE = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&",
              "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "++": "--", "--": "++"}
OPERATORS = ["comparison", "arithmetic", "constant", "boolean", "return", "removed call"]


def blank(text):
    """The text of the same length without comments, directives and what is inside quotes."""
    def gone(m):
        s = m.group()
        keep = s[0] if s[0] in "\"'" else " "
        return keep + re.sub(r"[^\n]", " ", s[1:-1]) + keep if len(s) > 1 and s[0] in "\"'" else re.sub(r"[^\n]", " ", s)
    text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", gone, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", gone, text, flags=re.M)


def tokens(text):
    """(kind, token, offset) of what stands inside function bodies, and `inside`: whether it may be changed."""
    out, braces, callee = [], [], []
    found = [(m.lastgroup, m.group(), m.start()) for m in TOKEN.finditer(text)]
    quote = None
    previous = "", ""
    head = True  # the next token begins a statement
    static = False
    for kind, token, at in found:
        if kind == "text":  # both quotes of a literal count as one
            quote = None if quote else at
            previous = "text", token
            head = False
            continue
        if token == "{":
            body = "body" if not braces and previous[1] == ")" else "data" if not braces else braces[-1]
            if braces and static and previous[1] in ("=", "]"):
                body = "data"
            braces.append(body)
        elif token == "}":
            if braces:
                braces.pop()
        elif token == "(":
            callee.append(previous[1] if previous[0] == "id" else "")
        elif token == ")" and callee:
            callee.pop()
        inside = bool(braces) and braces[-1] == "body" and not any(TEXT.fullmatch(c) for c in callee)
        if head and kind == "id":
            static = token in ("static", "enum", "struct")
        out.append((kind, token, at, inside, head))
        head = token in ("{", "}", "else", "do", ":") or not callee and (token == ";" or token == ")" and control(out))
        previous = kind, token
    return out


def control(out):
    """Whether the parenthesis that ends here is that of an if, for, while or switch."""
    depth = 0
    for i in range(len(out) - 1, -1, -1):
        depth += (out[i][1] == ")") - (out[i][1] == "(")
        if depth == 0:
            return i > 0 and out[i - 1][1] in ("if", "for", "while", "switch")
    return False


def closing(ts, i):
    """The index of the parenthesis that closes the one at i."""
    depth = 0
    for k in range(i, len(ts)):
        depth += (ts[k][1] == "(") - (ts[k][1] == ")")
        if depth == 0:
            return k
    return None


def constants(token):
    if re.match(r"0[xX]", token):
        digits = re.match(r"0[xX][0-9a-fA-F]+", token).group()
        return ["0x%x%s" % (int(digits, 16) + 1, token[len(digits):])]
    digits = re.match(r"[\d.]*(?:[eE][-+]?\d+)?", token).group()
    suffix = token[len(digits):]
    if re.fullmatch(r"\d+", digits) and (len(digits) == 1 or digits[0] != "0"):
        n = int(digits)
        return ["%d%s" % (v, suffix) for v in ([1] if n == 0 else [0] if n == 1 else [n + 1, n - 1])]  # 2 is as true as 1
    if re.search(r"[.eE]", digits):
        return ["1.0" + suffix] if float(digits) == 0 else ["(2 * %s)" % token]
    return []


def sites(source):
    """[(line number, operator, [(begin, end, new text)])], in the order of the text."""
    text = blank(source)
    ts = tokens(text)
    out = []

    def site(at, operator, *edits):
        out.append((text.count("\n", 0, at) + 1, operator, list(edits)))
    declared = False  # in a statement that begins with two names: a type and a variable
    for i, (kind, token, at, inside, head) in enumerate(ts):
        before = ts[i - 1] if i else ("", "", 0, False, False)
        if head:
            declared = kind == "id" and token not in KEYWORD and ts[i + 1:i + 2] and ts[i + 1][0] == "id"
        end = at + len(token)
        if not inside:
            continue
        between = source[at - 1:at].isspace() and source[end:end + 1].isspace()  # a pointer's star and a sign stand at their operand
        if token in COMPARE:
            for new in COMPARE[token]:
                site(at, "comparison", (at, end, new))
        elif token in ("&&", "||"):
            site(at, "boolean", (at, end, "||" if token == "&&" else "&&"))
        elif token == "!":
            site(at, "boolean", (at, end, ""))
        elif token in ("++", "--") or token in ARITHMETIC and between:
            site(at, "arithmetic", (at, end, ARITHMETIC[token]))
        elif kind == "num" and before[1] not in ("case", "return") and not (declared and before[1] == "["):  # a buffer's size
            for new in constants(token):
                site(at, "constant", (at, end, new))
        elif token in ("true", "false"):
            site(at, "boolean", (at, end, "false" if token == "true" else "true"))
        elif token in ("if", "while") and ts[i + 1:i + 2] and ts[i + 1][1] == "(":
            k = closing(ts, i + 1)
            if k:
                site(at, "boolean", (ts[i + 1][2], ts[i + 1][2] + 1, "(!("), (ts[k][2], ts[k][2] + 1, "))"))
        elif token == "return" and ts[i + 1:i + 2] and ts[i + 1][1] != ";":
            stop = next((k for k in range(i, len(ts)) if ts[k][1] == ";"), None)
            if stop:
                old = source[end:ts[stop][2]].strip()
                new = {"0": "1", "1": "0", "true": "false", "false": "true", "NULL": None}.get(old, "0")
                if new:
                    site(at, "return", (end, ts[stop][2], " " + new + "\n" * source.count("\n", end, ts[stop][2])))
        elif head and kind == "id" and token not in KEYWORD:
            k = i
            while k < len(ts) and (ts[k][1] in ("->", ".") if (k - i) % 2 else ts[k][0] == "id"):
                k += 1
            if k < len(ts) and ts[k][1] == "(" and ts[k - 1][0] == "id":
                stop = closing(ts, k)
                name = ts[k - 1][1]
                if stop and ts[stop + 1:stop + 2] and ts[stop + 1][1] == ";" and not TEXT.fullmatch(name) and not RELEASE.fullmatch(name):
                    site(at, "removed call", (at, ts[stop][2] + 1, "(void)0" + "\n" * source.count("\n", at, ts[stop][2])))
    return out


def apply(source, edits):
    for begin, end, new in sorted(edits, reverse=True):
        source = source[:begin] + new + source[end:]
    return source


def draw(rng, files, read):
    """A line among those of all files (path -> number of lines) that can be changed, and a change of it:
    (path, line number, operator, line before, line after, text after)."""
    total = sum(files.values())
    known = {}
    while True:
        n = rng.randrange(total)
        for path in sorted(files):
            if n < files[path]:
                break
            n -= files[path]
        if path not in known:
            source = read(path)
            known[path] = source, sites(source)
        source, all_sites = known[path]
        here = [s for s in all_sites if s[0] == n + 1]
        if not here:
            continue
        kinds = sorted({s[1] for s in here})
        kind = kinds[rng.randrange(len(kinds))]
        here = [s for s in here if s[1] == kind]
        _, operator, edits = here[rng.randrange(len(here))]
        text = apply(source, edits)
        return path, n + 1, operator, source.split("\n")[n].strip(), text.split("\n")[n].strip(), text
