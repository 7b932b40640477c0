# SPDX-License-Identifier: BSD-2-Clause
"""Daemons for tests, a client that validates every response against openapi.yaml, and claims in TAP."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings

import yaml

warnings.simplefilter("ignore", DeprecationWarning)
import jsonschema  # noqa: E402

ADMIN = "a" * 32


class Failed(Exception):
    pass


def check(claim, words="not so", *more):
    if not claim:
        raise Failed(" ".join([str(words), *map(str, more)]))


# ---- TAP -------------------------------------------------------------------------------------

class Story:
    def __init__(self):
        self.n = self.bad = 0

    def claim(self, fn):
        """Runs a test; its name is the claim."""
        self.n += 1
        try:
            fn()
            print(f"ok {self.n} - {fn.__name__}", flush=True)
        except Exception as e:  # noqa: BLE001: every error is reported
            self.bad += 1
            where = e.__traceback__
            while where.tb_next and "test_api" in where.tb_next.tb_frame.f_code.co_filename:
                where = where.tb_next
            print(f"not ok {self.n} - {fn.__name__}\n# line {where.tb_lineno}: {type(e).__name__}: "
                  + str(e).replace("\n", "\n# ")[:3000], flush=True)
        return fn

    def end(self):
        print(f"1..{self.n}")
        sys.exit(1 if self.bad else 0)


# ---- daemons ---------------------------------------------------------------------------------

def until(fn, what="a condition", patience=60):
    """Waits until fn is true; a failure shows its last result."""
    end = time.monotonic() + patience
    last = None
    while time.monotonic() < end:
        try:
            last = fn()
            if last:
                return last
        except (OSError, Failed, http.client.HTTPException) as e:
            last = e
        time.sleep(0.02)
    raise Failed(f"timed out waiting: {what}: {last}")


class Place:
    """A directory with daemons, which is removed at the end."""

    def __init__(self, stagd):
        self.stagd = os.path.realpath(stagd)
        self.dir = tempfile.mkdtemp(dir="/dev/shm")
        self.running = []
        os.makedirs(f"{self.dir}/run", mode=0o700)
        for name in ("STAG_LOG", "NOTIFY_SOCKET", "WATCHDOG_USEC"):
            os.environ.pop(name, None)
        os.environ["XDG_RUNTIME_DIR"] = f"{self.dir}/run"
        os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")

    def start(self, name, text):
        path = f"{self.dir}/{name}.ini"
        with open(path, "w") as f:
            f.write(text)
        log = open(f"{self.dir}/{name}.err", "ab")
        p = subprocess.Popen([self.stagd, "--config", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                             cwd=self.dir)
        log.close()
        self.running.append(p)
        return p

    def stop(self, p, sig=15, patience=60):
        p.send_signal(sig)
        p.wait(patience)
        self.running.remove(p)
        return p.returncode

    def said(self, name):
        with open(f"{self.dir}/{name}.err", errors="replace") as f:
            return f.read()

    def end(self):
        for p in self.running:
            p.send_signal(signal.SIGINT)  # stops a node with the only copy, too
        for p in self.running:
            try:
                p.wait(15)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        if os.environ.get("STAG_KEEP"):
            print("# kept:", self.dir)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def secrets(self, state):
        os.makedirs(f"{self.dir}/{state}", mode=0o700, exist_ok=True)
        path = f"{self.dir}/{state}/secrets"
        with open(path, "w") as f:
            f.write(f"nodes node {'n' * 32}\nadmin read,write,admin {ADMIN}\n")
        os.chmod(path, 0o600)

    def pool(self, node, *more):
        """[pool shop] of a node, with times for a loaded machine."""
        self.secrets(node)
        return "\n".join(["[pool shop]", f"node = {node}", f"state = {self.dir}/{node}", f"roll = file:{self.dir}/roll",
                          "address = 127.0.0.1", "port = 0", "beat = 20ms", "lease = 1s", "promote = 1200ms", *more, ""])


# ---- a client ----------------------------------------------------------------------------------

class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, status, headers, data):
        self.status, self.headers, self.data = status, headers, data

    @property
    def json(self):
        return json.loads(self.data)

    @property
    def code(self):
        return self.json["error"]["code"] if self.status >= 400 else None

    def __repr__(self):
        return f"{self.status} {self.data[:600]!r}"


class Description:
    """openapi.yaml, and which of its operations have been tested."""

    def __init__(self, path):
        self.doc = yaml.safe_load(open(path))
        self.resolver = jsonschema.RefResolver.from_schema(self.doc)
        self.answered = set()
        self.paths = [(re.compile("^" + re.sub(r"\\{[a-z]+\\}|{[a-z]+}", "[^/]+", re.escape(p).replace(r"\{", "{").replace(r"\}", "}")) + "$"), p)
                      for p in self.doc["paths"]]

    def operations(self):
        for path, item in self.doc["paths"].items():
            for method, op in item.items():
                if method in ("get", "post", "put", "patch", "delete"):
                    yield method.upper(), path, op, item

    def resolve(self, o):
        return self.resolver.resolve(o["$ref"])[1] if "$ref" in o else o

    def validate(self, schema, value):
        jsonschema.Draft202012Validator(schema, resolver=self.resolver).validate(value)

    def find(self, method, path):
        path = path.split("?")[0]
        exact = [p for _, p in self.paths if p == path]
        for p in exact or [p for r, p in self.paths if r.match(path)]:
            op = self.doc["paths"][p].get(method.lower())
            if op:
                return op
        return None

    def judge(self, method, path, a):
        """Validates a response against the description."""
        for name, value in (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY")):
            check(a.headers.get(name) == value, f"{path}: {name}: {a.headers.get(name)}")
        check("frame-ancestors 'none'" in a.headers.get("Content-Security-Policy", ""), path, "has no policy")
        check(not [h for h in a.headers if h.lower().startswith("access-control")], path, "lets others in")
        if a.status >= 400:
            check(a.headers["Content-Type"] == "application/json")
            self.validate({"$ref": "#/components/schemas/Error"}, a.json)
            check(a.json["error"]["status"] == a.status)
            return
        op = self.find(method, path)
        check(op, "no such operation:", method, path)
        check(str(a.status) in op["responses"], f"{method} {path}: {a.status} is not described")
        self.answered.add(op["operationId"])
        response = self.resolve(op["responses"][str(a.status)])
        content = response.get("content")
        check(bool(a.data) == bool(content) or method == "HEAD" or "octet" in str(content), f"{path}: a body, or none")
        kind = (a.headers.get("Content-Type") or "").split(";")[0]
        if content:
            check(kind in content or "*/*" in content, f"{path}: {kind} is not described")
        if content and kind == "application/json":
            self.validate(content[kind]["schema"], a.json)
        for name in response.get("headers", {}):
            check(a.headers.get(name), f"{path}: no {name}")


class Api:
    """A client over TCP with a token, or over a Unix socket."""

    def __init__(self, description, port=None, token=None, path=None):
        self.description, self.port, self.token, self.path = description, port, token, path

    def connection(self, timeout=30):
        if self.path:
            return UnixConnection(self.path, timeout)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None, want=None, judged=True):
        all_headers = {}
        if self.token:
            all_headers["Authorization"] = f"Bearer {self.token}"
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            all_headers["Content-Type"] = "application/json"
        elif body is not None:
            all_headers["Content-Type"] = "application/octet-stream"
        elif method in ("POST", "PATCH"):
            all_headers["Content-Type"] = "application/json"
        all_headers.update(headers or {})
        c = self.connection()
        try:
            c.request(method, path, body, {k: v for k, v in all_headers.items() if v is not None})
            r = c.getresponse()
            a = Answer(r.status, r.headers, r.read())
        finally:
            c.close()
        if judged:
            self.description.judge(method, path, a)
        if want:
            check(a.status == want, f"{method} {path}: wanted {want}, got {a}")
        return a

    def get(self, path, want=200, **more):
        return self.ask("GET", path, want=want, **more).json

    def post(self, path, body=None, want=200):
        a = self.ask("POST", path, {} if body is None else body, want=want)
        return a.json if a.data else None

    def patch(self, path, body, want=200):
        return self.ask("PATCH", path, body, want=want).json

    def delete(self, path, want=204):
        return self.ask("DELETE", path, want=want)


def await_api(description, path):
    """Waits until the daemon that listens there responds."""
    api = Api(description, path=path)
    until(lambda: api.get("/api/v1/status"), f"an answer at {path}")
    return api
