# SPDX-License-Identifier: BSD-2-Clause
"""Prometheus' text format 0.0.4, read strictly: whatever promtool would complain of is an error here."""
import math
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?([eE][+-]?\d+)?|Inf|NaN)$")


class Bad(Exception):
    pass


def labels_of(text, line):
    """{a="b",c="d"} -> a dict, and what is behind it."""
    labels, i = {}, 1
    while text[i] != "}":
        m = LABEL.match(text, i)
        if not m or text[m.end():m.end() + 2] != '="' or m[0] in labels or m[0].startswith("__"):
            raise Bad(f"{line}: labels")
        i, value = m.end() + 2, ""
        while text[i] != '"':
            if text[i] == "\\":
                i += 1
                if text[i] not in '\\"n':
                    raise Bad(f"{line}: an escape that there is not")
                value += {"n": "\n"}.get(text[i], text[i])
            else:
                value += text[i]
            i += 1
        labels[m[0]] = value
        i += 1
        if text[i] == ",":
            i += 1
        elif text[i] != "}":
            raise Bad(f"{line}: labels")
    return labels, text[i + 1:]


def family_of(name, types):
    for suffix in ("_bucket", "_sum", "_count"):
        if name.endswith(suffix) and types.get(name[:-len(suffix)]) == "histogram":
            return name[:-len(suffix)], suffix
    return name, ""


def check_histograms(samples):
    series = {}
    for (family, suffix, labels), value in samples.items():
        key = (family, tuple(sorted((k, v) for k, v in labels if k != "le")))
        series.setdefault(key, {"bucket": []})
        if suffix == "_bucket":
            series[key]["bucket"].append((float(dict(labels)["le"].replace("+Inf", "inf")), value))
        else:
            series[key][suffix] = value
    for key, s in series.items():
        bounds = [b for b, _ in s["bucket"]]
        counts = [c for _, c in s["bucket"]]
        if bounds != sorted(set(bounds)) or not bounds or bounds[-1] != math.inf:
            raise Bad(f"{key}: bounds are not in order, or without +Inf")
        if counts != sorted(counts):
            raise Bad(f"{key}: not cumulative")
        if counts[-1] != s.get("_count") or "_sum" not in s or s["_sum"] < 0:
            raise Bad(f"{key}: count or sum")


def parse(text):
    """-> {(family, suffix, labels): value}, types"""
    if not text.endswith("\n"):
        raise Bad("the last line has no end")
    types, helps, samples, done, now = {}, {}, {}, set(), None
    for line in text[:-1].split("\n"):
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            known = {"HELP": helps, "TYPE": types}[word]
            if name in known or name in done or not NAME.fullmatch(name):
                raise Bad(f"{line}: twice, or too late")
            if word == "TYPE" and rest not in ("counter", "gauge", "histogram"):
                raise Bad(f"{line}: no type")
            known[name] = rest
            continue
        m = NAME.match(line)
        if not m:
            raise Bad(f"{line}: no name")
        labels, rest = labels_of(line[m.end():], line) if line[m.end():m.end() + 1] == "{" else ({}, line[m.end():])
        if not rest.startswith(" ") or not NUMBER.match(rest[1:]):
            raise Bad(f"{line}: no number")
        family, suffix = family_of(m[0], types)
        if family not in types or family not in helps:
            raise Bad(f"{line}: without HELP and TYPE")
        if family != now:
            if family in done:
                raise Bad(f"{line}: its family is in two places")
            done.add(family)
            now = family
        if types[family] == "histogram" and not suffix or (types[family] == "counter" and not family.endswith("_total")):
            raise Bad(f"{line}: not a name for a {types[family]}")
        key = (family, suffix, frozenset(labels.items()))
        if key in samples:
            raise Bad(f"{line}: twice")
        samples[key] = float(rest[1:].replace("Inf", "inf"))
    check_histograms({k: v for k, v in samples.items() if types[k[0]] == "histogram"})
    return samples, types
