"""Turns data sets of the Hub into text for training: python -m depthscope.convert FILE... -o text.jsonl

Reads parquet and arrow (with pyarrow), .jsonl and .json, .csv and .tsv, each also as .gz where it is text; writes one JSON object
a line: {"text": ...}, or with answers {"prompt": ..., "completion": ...} or {"messages": [...]}.  Files are streamed: memory holds one
row group at a time.
"""
from __future__ import annotations

import argparse
import csv
import gzip
import importlib
import io
import json
import os
import sys
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, TextIO, Tuple

TEXT_COLUMNS = ("text", "content", "story", "document", "raw_content", "body", "article", "sentence", "passage", "code")
_BATCH = 4096  # rows


class ConvertError(Exception):
    """One line: which file, what is wrong, what was expected."""


_Row = Dict[str, Any]
_Make = Callable[[_Row], Optional[_Row]]  # a row of these columns as depthscope train reads it; None: it is empty


def _lines_of(*parts: Any) -> str:
    """Texts, each with a newline after it; the empty ones are left out."""
    for x in parts:
        if x is not None and not isinstance(x, str):
            raise ConvertError("expected text, found %s" % type(x).__name__)
    return "".join(x + "\n" for x in parts if x)


def _answered(prompt: Any, completion: Any) -> Optional[_Row]:
    _lines_of(prompt, completion)
    return {"prompt": prompt, "completion": completion} if prompt and completion else None


def _messages(messages: Any, role: str, content: str) -> Optional[_Row]:
    if not messages:
        return None
    if not isinstance(messages, list) or not all(isinstance(m, dict) and isinstance(m.get(role), str) for m in messages):
        raise ConvertError("expected a list of messages with %s and %s" % (role, content))
    kept = [{"role": _ROLES.get(m[role], m[role]), "content": m.get(content) or ""} for m in messages]
    if not all(isinstance(m["content"], str) for m in kept):
        raise ConvertError("expected text as %s of a message" % content)
    return {"messages": kept}


_ROLES = {"human": "user", "gpt": "assistant"}
# Columns that a row with answers has, those that it may have, and what they become; names are in lower case.
_ANSWERS: Sequence[Tuple[Sequence[str], Sequence[str], _Make]] = (
    (("prompt", "completion"), (), lambda row: _answered(row["prompt"], row["completion"])),
    (("messages",), (), lambda row: _messages(row["messages"], "role", "content")),
    (("conversations",), (), lambda row: _messages(row["conversations"], "from", "value")),
    (("instruction", "output"), ("input",), lambda row: _answered(_lines_of(row["instruction"], row.get("input")), row["output"])),
    (("question", "answer"), (), lambda row: _answered(_lines_of(row["question"]), row["answer"])),
)


def _text_of(column: str) -> _Make:
    def make(row: _Row) -> Optional[_Row]:
        v = row.get(column)
        if v is None or v == "":
            return None
        if not isinstance(v, str):
            raise ConvertError("column %r holds %s, expected text" % (column, type(v).__name__))
        return {"text": v}
    return make


def _choose(path: str, columns: Sequence[str], wanted: Optional[str], strings: Sequence[str]) -> Tuple[List[str], _Make]:
    """The columns to read: the named one, else a usual name of texts, else those of answers, else the only one of strings."""
    if wanted is not None and wanted not in columns:
        raise ConvertError("%s: no column %r; it has %s" % (path, wanted, ", ".join(columns) or "none"))
    lower = {c.lower(): c for c in reversed(columns)}
    text = [wanted] if wanted is not None else [lower[name] for name in TEXT_COLUMNS if name in lower]
    for must, may, make in () if text else _ANSWERS:
        if all(c in lower for c in must):
            names = {lower[c]: c for c in (*must, *may) if c in lower}
            return list(names), lambda row: make({c: row.get(name) for name, c in names.items()})
    text = text or (list(strings) if len(strings) == 1 else [])
    if not text:
        raise ConvertError("%s: no column is named %s; choose one with --column: %s"
                           % (path, " or ".join(TEXT_COLUMNS[:2]), ", ".join(columns) or "none"))
    return text[:1], _text_of(text[0])


def _pyarrow(path: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConvertError("%s: reading this format needs the package pyarrow (pip install pyarrow)" % path)


def _strings(schema: Any) -> List[str]:
    return [f.name for f in schema if str(f.type) in ("string", "large_string", "string_view")]


def _parquet(path: str, wanted: Optional[str]) -> Iterator[Optional[_Row]]:
    parquet = _pyarrow(path, "pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as f:
            columns, make = _choose(path, f.schema_arrow.names, wanted, _strings(f.schema_arrow))
            for batch in f.iter_batches(batch_size=_BATCH, columns=columns):
                yield from map(make, batch.to_pylist())
    except (OSError, ValueError, RuntimeError) as x:  # pyarrow's errors are ValueErrors
        raise ConvertError("%s: %s" % (path, _one_line(x)))


def _arrow(path: str, wanted: Optional[str]) -> Iterator[Optional[_Row]]:
    pa = _pyarrow(path, "pyarrow")
    ipc = _pyarrow(path, "pyarrow.ipc")
    try:
        with pa.memory_map(path) as source:
            try:
                reader = ipc.open_stream(source)  # what the datasets library caches
                batches: Iterator[Any] = iter(reader)
            except pa.ArrowInvalid:
                reader = ipc.open_file(source)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            columns, make = _choose(path, reader.schema.names, wanted, _strings(reader.schema))
            for batch in batches:
                yield from map(make, batch.select(columns).to_pylist())
    except (OSError, ValueError, RuntimeError) as x:
        raise ConvertError("%s: %s" % (path, _one_line(x)))


def _one_line(x: BaseException) -> str:
    return " ".join(str(x).split())[:300]


def _open_text(path: str) -> TextIO:
    if path.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _objects(path: str, rows: Iterable[Tuple[str, Any]], wanted: Optional[str]) -> Iterator[Optional[_Row]]:
    """Objects and where they are; the first one decides on the columns."""
    make: Optional[_Make] = None
    for where, row in rows:
        if not isinstance(row, dict):
            raise ConvertError("%s: %s: expected an object, found %s" % (path, where, type(row).__name__))
        make = make or _choose(path, list(row), wanted, [k for k, v in row.items() if isinstance(v, str)])[1]
        try:
            yield make(row)
        except ConvertError as x:
            raise ConvertError("%s: %s" % (where, x))


def _lines(path: str, f: TextIO) -> Iterator[Tuple[str, Any]]:
    for n, line in enumerate(f, 1):
        if line.strip():
            try:
                yield "line %d" % n, json.loads(line)
            except ValueError as x:
                raise ConvertError("%s:%d: not JSON: %s" % (path, n, _one_line(x)))


def _jsonl(path: str, wanted: Optional[str]) -> Iterator[Optional[_Row]]:
    with _open_text(path) as f:
        yield from _objects(path, _lines(path, f), wanted)


def _json(path: str, wanted: Optional[str]) -> Iterator[Optional[_Row]]:
    """One array of objects or texts; a file of lines is accepted under this name, too."""
    with _open_text(path) as f:
        head = f.read(4096).lstrip()
    if not head.startswith("["):
        yield from _jsonl(path, wanted)
        return
    with _open_text(path) as f:
        try:
            rows = json.load(f)
        except ValueError as x:
            raise ConvertError("%s: not JSON: %s" % (path, _one_line(x)))
    if all(isinstance(r, str) for r in rows):
        yield from map(_text_of("text"), ({"text": r} for r in rows))
        return
    yield from _objects(path, (("item %d" % n, row) for n, row in enumerate(rows, 1)), wanted)


def _table(path: str, wanted: Optional[str]) -> Iterator[Optional[_Row]]:
    csv.field_size_limit(1 << 30)
    delimiter = "\t" if path.lower().replace(".gz", "").endswith(".tsv") else ","
    with _open_text(path) as f:
        try:
            reader = csv.DictReader(f, delimiter=delimiter)
            names = list(reader.fieldnames or [])
            make = _choose(path, names, wanted, names)[1]
            yield from map(make, reader)
        except csv.Error as x:
            raise ConvertError("%s:%d: %s" % (path, reader.line_num, _one_line(x)))


_READERS: Dict[str, Callable[[str, Optional[str]], Iterator[Optional[_Row]]]] = {
    ".parquet": _parquet, ".arrow": _arrow, ".feather": _arrow, ".jsonl": _jsonl, ".ndjson": _jsonl, ".json": _json, ".csv": _table, ".tsv": _table,
}


def rows(path: str, column: Optional[str] = None) -> Iterator[_Row]:
    """What depthscope train reads of a file, one object after another: text, prompt and completion, or messages.  Empty rows are left
    out.  ConvertError, one line, when it cannot be read."""
    name = path[:-3] if path.endswith(".gz") else path
    end = os.path.splitext(name)[1].lower()
    read = _READERS.get(end)
    if read is None or name != path and read in (_parquet, _arrow):
        raise ConvertError("%s: unsupported file type; expected %s" % (path, ", ".join(sorted(_READERS))))
    try:
        yield from (row for row in read(path, column) if row is not None)
    except ConvertError as x:
        raise x if str(x).startswith(path) else ConvertError("%s: %s" % (path, x))
    except UnicodeDecodeError as x:
        raise ConvertError("%s: not UTF-8: %s" % (path, _one_line(x)))
    except (EOFError, zlib.error) as x:
        raise ConvertError("%s: the gzip stream is damaged or cut: %s" % (path, _one_line(x)))
    except RecursionError:
        raise ConvertError("%s: not usable JSON: nested too deeply" % path)
    except OSError as x:
        raise ConvertError("%s: %s" % (path, x.strerror or _one_line(x)))


def convert(paths: Sequence[str], output: str, column: Optional[str] = None) -> int:
    """Writes the rows of all files to OUTPUT, which appears whole or not at all; gives their number."""
    n = 0
    if output == "-":
        out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="replace", newline="\n", write_through=False)
        try:
            for path in paths:
                for row in rows(path, column):
                    out.write(json.dumps(row, ensure_ascii=False) + "\n")
                    n += 1
        finally:
            out.detach()
        return n
    temporary = os.path.join(os.path.dirname(output), ".%s.%d.tmp" % (os.path.basename(output), os.getpid()))
    try:
        # lone surrogates that JSON can hold and UTF-8 cannot become "?"
        with open(temporary, "w", encoding="utf-8", errors="replace", newline="\n") as f:
            for path in paths:
                for row in rows(path, column):
                    f.write(json.dumps(row, ensure_ascii=False) + "\n")
                    n += 1
            f.flush()
            os.fsync(f.fileno())
        if n == 0:
            raise ConvertError("%s: no texts" % ", ".join(paths))
        os.replace(temporary, output)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return n


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m depthscope.convert", description="Converts data sets to text.jsonl for depthscope train.")
    parser.add_argument("files", nargs="+", metavar="FILE", help=", ".join(sorted(_READERS)))
    parser.add_argument("-o", "--output", required=True, help="the file to write, - for standard output")
    parser.add_argument("--column", help="the column that holds the text (default: %s, ... or the only one of strings)" % ", ".join(TEXT_COLUMNS[:3]))
    given = parser.parse_args(arguments)
    try:
        n = convert(given.files, given.output, given.column)
    except (ConvertError, OSError) as x:
        sys.stderr.write("depthscope.convert: %s\n" % _one_line(x))
        return 1
    if given.output != "-":
        print("%s: %d texts" % (given.output, n))
    return 0


if __name__ == "__main__":
    sys.exit(main())
