"""A run's directory: its name, config.yaml, meta.json.  What the files hold is include/io/FORMATS.md, section 2."""
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import socket
import sys
import time
import types
from typing import Any, Dict, List, Mapping, Optional

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}\Z")
_CONFIG_KEYS = 4096
_CONFIG_VALUE = 510  # bytes
_CONFIG_BYTES = 512 << 10


def check_name(name: str) -> str:
    """The name, or ValueError when no run can have it."""
    if not _NAME.match(name):
        raise ValueError("name %r: expected 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . or -" % name)
    return name


def new_name(root: str, stem: str) -> str:
    """Makes the directory STEM-N with the first free N; mkdir reserves it, so two starts get two names."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-")[:48] or "run"
    for i in range(1, 100000):
        try:
            os.mkdir(os.path.join(root, "%s-%d" % (stem, i)))
            return "%s-%d" % (stem, i)
        except FileExistsError:
            continue
    raise FileExistsError("%s: no free run name for %s" % (root, stem))


def replace_file(path: str, text: str) -> None:
    """Writes a whole file: readers see the former one or this one."""
    temporary = "%s.%d.tmp" % (os.path.join(os.path.dirname(path), "." + os.path.basename(path)), os.getpid())
    try:
        with open(temporary, "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _as_dict(config: Any) -> Dict[str, Any]:
    """A dict from what configurations are kept in: dict, dataclass, argparse.Namespace, transformers' and omegaconf's objects."""
    if config is None:
        return {}
    if isinstance(config, dict):
        return config
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return dataclasses.asdict(config)
    if hasattr(config, "to_dict"):
        return dict(config.to_dict())
    if hasattr(config, "items"):
        return dict(config.items())
    if hasattr(config, "__dict__"):
        return {k: v for k, v in vars(config).items() if not k.startswith("_")}
    raise TypeError("config: expected a dict, dataclass or namespace, found %s" % type(config).__name__)


def _text(v: Any) -> str:
    if v is True or v is False:
        return "true" if v else "false"
    if v is None:
        return "null"
    if isinstance(v, (list, tuple)):
        return "[%s]" % ",".join(_text(x) for x in v)
    return str(v)


def flat_config(config: Any) -> Dict[str, str]:
    """Flat keys of the form a.b and their values as text, within the limits of the readers."""
    flat: Dict[str, str] = {}
    used = 0

    def add(prefix: str, v: Any) -> None:
        nonlocal used
        if isinstance(v, (Mapping, argparse.Namespace, types.SimpleNamespace)) and _as_dict(v) \
                or dataclasses.is_dataclass(v) and not isinstance(v, type):
            for key, item in _as_dict(v).items():
                add("%s.%s" % (prefix, key) if prefix else str(key), item)
            return
        key = ".".join(p for p in re.sub(r"[^A-Za-z0-9_.-]", "_", prefix).split(".") if p)[:200].rstrip(".")
        value = _text(v).replace("\0", "").encode("utf-8", "replace")[:_CONFIG_VALUE].decode("utf-8", "ignore")
        used += len(key) + len(value)
        if key and len(flat) < _CONFIG_KEYS and used < _CONFIG_BYTES:
            flat[key] = value

    add("", _as_dict(config))
    return flat


def _quoted(text: str) -> str:
    """A double-quoted YAML scalar; everything that YAML does not allow as it is becomes an escape."""
    plain = json.dumps(text, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda m: "\\u%04x" % ord(m.group()), plain)


def config_yaml(flat: Dict[str, str]) -> str:
    return "".join("%s: %s\n" % (k, _quoted(v)) for k, v in sorted(flat.items()))


def meta_json(version: str, project: str, seed: Any, parent: str) -> str:
    meta: Dict[str, Any] = {
        "command": [sys.executable or "python", *sys.argv],
        "version": version,
        "host": socket.gethostname(),
        "cpus": os.cpu_count() or 1,
        "started": round(time.time(), 3),
        "parent": parent,
    }
    if project:
        meta["project"] = project
    if isinstance(seed, int):
        meta["seed"] = seed
    return json.dumps(meta, indent=2) + "\n"


def stage_path(directory: str, stage: int) -> str:
    return os.path.join(directory, "log.%d.mp" % stage if stage else "log.mp")


def stage_paths(directory: str) -> List[str]:
    """The logs of all stages of a run, in order."""
    found: Dict[int, str] = {}
    for name in os.listdir(directory):
        m: Optional["re.Match[str]"] = re.match(r"log\.(\d{1,5})\.mp\Z", name)
        if m and int(m.group(1)) > 0:
            found[int(m.group(1))] = os.path.join(directory, name)
    return [found[i] for i in sorted(found)]
