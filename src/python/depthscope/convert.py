"""Turns data sets of the Hub into text for training: python -m depthscope.convert FILE... -o text.jsonl

Reads parquet and arrow (with pyarrow), .jsonl and .json, .csv and .tsv, each also as .gz where it is text; writes one JSON object
{"text": ...} a line.  Files are streamed: memory holds one row group at a time.
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
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, TextIO

TEXT_COLUMNS = ("text", "content", "story", "document", "raw_content", "body", "article", "sentence", "passage", "code")
_BATCH = 4096  # rows


class ConvertError(Exception):
    """One line: which file, what is wrong, what was expected."""


def choose_column(path: str, columns: Sequence[str], wanted: Optional[str], strings: Sequence[str]) -> str:
    """The column that holds the text: the named one, else a usual name, else the only one of strings."""
    if wanted is not None:
        if wanted not in columns:
            raise ConvertError("%s: no column %r; it has %s" % (path, wanted, ", ".join(columns) or "none"))
        return wanted
    lower = {c.lower(): c for c in reversed(columns)}
    for name in TEXT_COLUMNS:
        if name in lower:
            return lower[name]
    if len(strings) == 1:
        return strings[0]
    raise ConvertError("%s: no column is named %s; choose one with --column: %s"
                       % (path, " or ".join(TEXT_COLUMNS[:2]), ", ".join(columns) or "none"))


def _pyarrow(path: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConvertError("%s: reading this format needs the package pyarrow (pip install pyarrow)" % path)


def _strings(schema: Any) -> List[str]:
    return [f.name for f in schema if str(f.type) in ("string", "large_string", "string_view")]


def _parquet(path: str, wanted: Optional[str]) -> Iterator[Any]:
    parquet = _pyarrow(path, "pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as f:
            column = choose_column(path, f.schema_arrow.names, wanted, _strings(f.schema_arrow))
            for batch in f.iter_batches(batch_size=_BATCH, columns=[column]):
                yield from batch.column(0).to_pylist()
    except (OSError, ValueError, RuntimeError) as x:  # pyarrow's errors are ValueErrors
        raise ConvertError("%s: %s" % (path, _one_line(x)))


def _arrow(path: str, wanted: Optional[str]) -> Iterator[Any]:
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
            column = choose_column(path, reader.schema.names, wanted, _strings(reader.schema))
            at = reader.schema.names.index(column)
            for batch in batches:
                yield from batch.column(at).to_pylist()
    except (OSError, ValueError, RuntimeError) as x:
        raise ConvertError("%s: %s" % (path, _one_line(x)))


def _one_line(x: BaseException) -> str:
    return " ".join(str(x).split())[:300]


def _open_text(path: str) -> TextIO:
    if path.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _field(path: str, where: str, row: Any, column: Optional[str]) -> Any:
    if not isinstance(row, dict):
        raise ConvertError("%s: %s: expected an object" % (path, where))
    return row.get(column)


def _json_column(path: str, row: Any, wanted: Optional[str]) -> str:
    if not isinstance(row, dict):
        raise ConvertError("%s: expected objects, found %s" % (path, type(row).__name__))
    return choose_column(path, list(row), wanted, [k for k, v in row.items() if isinstance(v, str)])


def _jsonl(path: str, wanted: Optional[str]) -> Iterator[Any]:
    column: Optional[str] = None
    with _open_text(path) as f:
        for n, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as x:
                raise ConvertError("%s:%d: not JSON: %s" % (path, n, _one_line(x)))
            column = column or _json_column(path, row, wanted)
            yield _field(path, "line %d" % n, row, column)


def _json(path: str, wanted: Optional[str]) -> Iterator[Any]:
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
        yield from rows
        return
    column = _json_column(path, rows[0], wanted)
    for n, row in enumerate(rows, 1):
        yield _field(path, "item %d" % n, row, column)


def _table(path: str, wanted: Optional[str]) -> Iterator[Any]:
    csv.field_size_limit(1 << 30)
    delimiter = "\t" if path.lower().replace(".gz", "").endswith(".tsv") else ","
    with _open_text(path) as f:
        try:
            reader = csv.DictReader(f, delimiter=delimiter)
            names = list(reader.fieldnames or [])
            column = choose_column(path, names, wanted, names)
            for row in reader:
                yield row.get(column)
        except csv.Error as x:
            raise ConvertError("%s:%d: %s" % (path, reader.line_num, _one_line(x)))


_READERS: Dict[str, Callable[[str, Optional[str]], Iterator[Any]]] = {
    ".parquet": _parquet, ".arrow": _arrow, ".feather": _arrow, ".jsonl": _jsonl, ".ndjson": _jsonl, ".json": _json, ".csv": _table, ".tsv": _table,
}


def texts(path: str, column: Optional[str] = None) -> Iterator[str]:
    """The texts of a file, one after another; empty ones are left out.  ConvertError, one line, when it cannot be read."""
    name = path[:-3] if path.endswith(".gz") else path
    end = os.path.splitext(name)[1].lower()
    read = _READERS.get(end)
    if read is None or name != path and read in (_parquet, _arrow):
        raise ConvertError("%s: unsupported file type; expected %s" % (path, ", ".join(sorted(_READERS))))
    try:
        for v in read(path, column):
            if v is None or v == "":
                continue
            if not isinstance(v, str):
                raise ConvertError("%s: column %r holds %s, expected text" % (path, column or "text", type(v).__name__))
            yield v
    except UnicodeDecodeError as x:
        raise ConvertError("%s: not UTF-8: %s" % (path, _one_line(x)))
    except (EOFError, zlib.error) as x:
        raise ConvertError("%s: the gzip stream is damaged or cut: %s" % (path, _one_line(x)))
    except RecursionError:
        raise ConvertError("%s: not usable JSON: nested too deeply" % path)
    except OSError as x:
        raise ConvertError("%s: %s" % (path, x.strerror or _one_line(x)))


def convert(paths: Sequence[str], output: str, column: Optional[str] = None) -> int:
    """Writes the texts of all files to OUTPUT, which appears whole or not at all; gives their number."""
    n = 0
    if output == "-":
        out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="replace", newline="\n", write_through=False)
        try:
            for path in paths:
                for text in texts(path, column):
                    out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                    n += 1
        finally:
            out.detach()
        return n
    temporary = os.path.join(os.path.dirname(output), ".%s.%d.tmp" % (os.path.basename(output), os.getpid()))
    try:
        # lone surrogates that JSON can hold and UTF-8 cannot become "?"
        with open(temporary, "w", encoding="utf-8", errors="replace", newline="\n") as f:
            for path in paths:
                for text in texts(path, column):
                    f.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
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
