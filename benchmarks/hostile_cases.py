"""Broken files and options, drawn by seed: what `hostile.py` throws at the command line.

A case is a folder of files and a command. All of them begin as the same small valid case, which is then mutilated.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from hostile_parts import CLUSTER, CONFIG, EVIL, JOBS, JOINED, JUNK, NUMBERS, PLAN, QUANTITIES


@dataclass
class Case:
    """One command in one folder. `folder` maps names to bytes; `special` makes links, pipes and folders there."""

    kind: str
    argv: list[str]
    files: dict[str, bytes]
    special: list[tuple[str, str, str]] = field(default_factory=list)  # what, name, target
    output: str | None = None  # the file the command may write
    stream: str = ""  # how standard output is: "", full, closed
    encoding: str = "utf-8"
    own_process: bool = False


def draw(seed: int, index: int) -> Case:
    """The case of that number; the same seed always gives the same one."""
    rng = random.Random(f"{seed}:{index}")
    files = {
        "cluster.yaml": CLUSTER.encode(), "jobs.yaml": JOBS.encode(), "config.json": json.dumps(CONFIG).encode(),
        "plan.json": json.dumps(PLAN, indent=1).encode(), "joined.yaml": JOINED.encode(), "old.json": b"{}",
    }  # fmt: skip
    kind = rng.choices(list(KINDS), WEIGHTS)[0]
    drawn = Case(kind, _verb(rng, kind), files)
    drawn.output = REPORT if drawn.argv[0] == "report" else None  # it always writes one
    case = KINDS[kind](rng, drawn)
    if rng.random() < 0.04:
        case.encoding = rng.choice(["ascii", "latin-1"])
    case.own_process = rng.random() < 0.03
    return case


# ---- Commands -------------------------------------------------------------------------------------------------------

REPORT = "report.html"  # where it is written unless a case says otherwise
BUSY = "BUSY_PORT"
"""Stands in a command for a port on which somebody listens already."""
SEARCH = ("--evaluations", "20", "--time-limit", "1")
PLAN_FILES = ("plan.json", "-c", "cluster.yaml", "-j", "jobs.yaml")


def _verb(rng: random.Random, kind: str) -> list[str]:
    """A command that reads all the files that the kind may break."""
    verbs: list[tuple[float, list[str]]] = [
        (3, ["show", "cluster.yaml"]),
        (4, ["price", *PLAN_FILES]),
        (2, ["explain", *PLAN_FILES]),
        (2, ["simulate", *PLAN_FILES]),
        (1, ["report", *PLAN_FILES]),
        (1, ["replan", *PLAN_FILES, "--joined", "joined.yaml", "--lost", "r-3", *SEARCH]),
        (1, ["plan", "cluster.yaml", "jobs.yaml", "--workers", "1", *SEARCH]),
        (0.05, ["compare", "cluster.yaml", "jobs.yaml", "--time-limit", "0.1"]),
        (0.2, ["schema", "plan"]),
        (0.2, ["list", "models"]),
    ]
    if kind in ("numbers", "options"):  # those that can do most with a number
        verbs += [(5, list(verb)) for _, verb in verbs if verb[0] in ("plan", "replan")]
    if kind in ("outputs", "joined"):
        writing = ("replan", "plan", "simulate", "report") if kind == "outputs" else ("replan", "plan", "simulate")
        verbs = [verb for verb in verbs if verb[1][0] in writing]
    chosen = list(rng.choices([verb for _, verb in verbs], [weight for weight, _ in verbs])[0])
    if chosen[0] in ("price", "explain", "simulate", "replan", "plan") and rng.random() < 0.3:
        chosen.append("--json")
    return chosen


def _options(rng: random.Random, case: Case) -> Case:
    """Extremes, repetitions and contradictions."""
    names = {
        "show": [], "schema": [], "list": [], "compare": ["--seed", "--time-limit"],
        "price": ["--json"], "explain": ["--json"],
        "simulate": ["--seed", "--jitter", "--contention", "--no-contention"],
        "report": ["--no-timeline", "--timeline", "--engine", "--profile", "--set", "--plan"],
        "plan": ["--seed", "--time-limit", "--evaluations", "--min-throughput", "--max-cost", "--pin", "--avoid",
                 "--workers", "--policy", "--exact", "--no-gnn"],
        "replan": ["--seed", "--time-limit", "--evaluations", "--horizon", "--lost", "--joined", "--no-gnn"],
    }  # fmt: skip
    flags = ("--json", "--exact", "--no-gnn", "--contention", "--no-contention", "--no-timeline", "--timeline")
    for _ in range(rng.randint(1, 3)):
        option = rng.choice([*names[case.argv[0]] * 5, "--nonsense", "-x", "--cluster"])
        small = option in ("--time-limit", "--evaluations", "--workers")  # large ones are right, and take their time
        numbers = [n for n in NUMBERS if not small or n <= 3] + ["inf", "nan", "1e400", "-inf", "٣", "1,5"]
        value = rng.choice(
            [*map(str, numbers), *rng.sample(QUANTITIES, 5), *rng.sample(EVIL, 5), "bert=r-1", "own=r-1"]
        )
        case.argv += [option] if option in flags else [f"{option}={_argument(value)}"]
    if rng.random() < 0.2:
        case.argv.insert(rng.randint(0, len(case.argv)), _argument(rng.choice(EVIL)))
    if rng.random() < 0.1:
        case.argv.pop(rng.randrange(len(case.argv)))
    return case


def _outputs(rng: random.Random, case: Case) -> Case:
    """Outputs on inputs, by every name, on devices and folders, and some that are right."""
    option = "--trace" if case.argv[0] == "simulate" else rng.choice(["-o", "--out"])
    case.special += [
        ("hard", "hard.yaml", "cluster.yaml"), ("soft", "soft.json", "config.json"), ("soft", "far.json", "soft.json"),
        ("soft", "loop.json", "loop.json"), ("soft", "dangling.json", "nowhere/x.json"), ("folder", "folder", ""),
        ("pipe", "pipe.json", ""), ("readonly", "readonly.json", ""), ("soft", "null.json", "/dev/null"),
    ]  # fmt: skip
    wrong = [
        "cluster.yaml", "./jobs.yaml", "folder/../config.json", "hard.yaml", "soft.json", "far.json", "loop.json", "",
        ".",
        "/dev/null", "/dev/full", "null.json", "pipe.json", "folder", "folder/", "new/", "no/such/x.json", "x" * 300,
        "dangling.json", "/proc/self/mem", "/dev/stdout", "a\udcff\udc9b.json",
    ]  # fmt: skip
    of_plan = ["plan.json"]
    read = {"simulate": of_plan, "report": of_plan, "replan": ["plan.json", "joined.yaml"], "plan": []}[case.argv[0]]
    case.output = None
    out = rng.choice([*wrong, *read, *read, "old.json", "fine.json", "folder/fine.json", "[/]\u202e.json"])
    if out in ("old.json", "fine.json", "folder/fine.json", "[/]\u202e.json", "a\udcff\udc9b.json"):
        case.output = out
    case.argv += [option, out]
    return case


def _inputs(rng: random.Random, case: Case) -> Case:
    """Files that are no files."""
    case.special += [
        ("pipe", "pipe.yaml", ""), ("soft", "loop.yaml", "loop.yaml"), ("folder", "folder.yaml", ""),
        ("secret", "secret.yaml", ""), ("large", "large.yaml", ""), ("soft", "null.json", "/dev/null"),
    ]  # fmt: skip
    wrong = [
        "pipe.yaml", "loop.yaml", "folder.yaml", "secret.yaml", "large.yaml", "null.json", "/dev/zero", "/dev/stdin",
        "-", "", ".", "/", "missing.yaml", "x" * 300, "/proc/self/mem", "./\x1b[31m.yaml", "hulk47\n",
    ]  # fmt: skip
    where = [i for i, word in enumerate(case.argv) if word.endswith((".yaml", ".json"))]
    bad = rng.choice(wrong)
    if where and rng.random() < 0.7:
        case.argv[rng.choice(where)] = bad
    elif rng.random() < 0.5:
        case.files["cluster.yaml"] = f"extends: {json.dumps(bad)}\n".encode()
    else:
        case.files["jobs.yaml"] = JOBS.replace("./config.json", json.dumps("./" + bad)).encode()
    return case


def _serve(rng: random.Random, case: Case) -> Case:
    """A server that cannot begin: nothing of it may last. Its port is wrong or taken, or its address is not here."""
    case.special += [
        ("folder", "folder", ""), ("pipe", "pipe.sqlite", ""), ("readonly", "readonly.sqlite", ""),
        ("soft", "loop.sqlite", "loop.sqlite"), ("soft", "dangling.sqlite", "nowhere/x.sqlite"),
    ]  # fmt: skip
    strange = [evil for evil in EVIL if not evil.replace("_", "").isalnum()]  # no number, and no name to look up
    ports = ["-1", "65536", "1e3", "x", "", "0.5", str(2**63), "nan", "٣٣٣٣٣٣", *rng.sample(strange, 3), *[BUSY] * 12]
    hosts = [
        "192.0.2.1", "2001:db8::1", "fe80::1%nowhere", "x" * 300, ".", "..", "", "[::1]", "a\nb", "127.0.0.1:80",
        *rng.sample(strange, 3),
    ]  # fmt: skip
    no_history = [
        "plan.json", "cluster.yaml", "folder", "folder/", "pipe.sqlite", "readonly.sqlite", "loop.sqlite", "",
        "dangling.sqlite", "no/such/x.sqlite", "/dev/null", "/dev/full", "/proc/self/mem", "x" * 300,
    ]  # fmt: skip
    case.argv, case.output = ["serve"], None
    match rng.randrange(3):
        case 0:
            case.argv += ["--history", rng.choice(no_history), "--port", "0"]
        case 1:
            case.argv += ["--host", _argument(rng.choice(hosts)), "--port", BUSY]
        case _:
            case.argv += ["--history", _argument(rng.choice([*EVIL, "fine.sqlite"]))] if rng.random() < 0.3 else []
            case.argv += [f"--port={_argument(rng.choice(ports))}"]
    if rng.random() < 0.2:
        case.argv.insert(rng.randint(1, len(case.argv)), _argument(rng.choice([*EVIL, "--nonsense", "--open=x"])))
    return case


def _streams(rng: random.Random, case: Case) -> Case:
    """Nowhere to write to."""
    case.stream = rng.choice(["full", "closed"])
    return case


# ---- Files ----------------------------------------------------------------------------------------------------------


def _garbled(rng: random.Random, case: Case) -> Case:
    """Bytes flipped, lost, doubled, or in another encoding."""
    name = _broken_file(rng)
    raw = bytearray(case.files[name])
    for _ in range(rng.choice([1, 1, 2, 5, 50])):
        at, size = rng.randrange(len(raw) or 1), rng.choice([1, 1, 2, 10, 200])
        match rng.randrange(7):
            case 0:
                raw[at : at + size] = bytes(byte ^ (1 << rng.randrange(8)) for byte in raw[at : at + size])
            case 1:
                del raw[at:]
            case 2:
                del raw[at : at + size]
            case 3:
                raw[at:at] = raw[at : at + size] * rng.choice([1, 2, 100])
            case 4:
                raw[at:at] = rng.randbytes(size)
            case 5:
                raw[at:at] = rng.choice(EVIL).encode("utf-8", "surrogatepass")
            case _:
                raw[at:at] = bytes([rng.choice(b"[]{}:,-?&*!|>'\"%@`#\n\t \x00\xff")]) * rng.choice([1, 2, 50])
    if rng.random() < 0.05:
        raw = bytearray(
            bytes(raw).decode("utf-8", "replace").encode(rng.choice(["utf-16", "utf-32", "latin-1"]), "replace")
        )
    case.files[name] = bytes(raw)
    return case


def _values(rng: random.Random, case: Case) -> Case:
    """Values replaced, dropped, doubled, renamed and moved."""
    name = _broken_file(rng)
    value = yaml.safe_load(case.files[name])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        place = rng.choice(_places(value) or [()])
        if not place:
            value = rng.choice(JUNK)
            break
        parent = value
        for key in place[:-1]:
            parent = parent[key]
        _mutilate(rng, parent, place[-1])
    case.files[name] = _written(rng, name, value)
    return case


def _mutilate(rng: random.Random, parent: Any, key: Any) -> None:
    old = parent[key]
    match rng.randrange(8):
        case 0:
            del parent[key]
        case 1:
            parent[key] = rng.choice(JUNK)
        case 2 | 3:
            parent[key] = rng.choice(NUMBERS if isinstance(old, int | float) and rng.random() < 0.8 else QUANTITIES)
        case 4:
            parent[key] = rng.choice(EVIL)
        case 5 if isinstance(parent, list):
            parent.extend([old] * rng.choice([1, 2, 1500]))
        case 6 if isinstance(parent, dict):
            parent[rng.choice(EVIL)] = parent.pop(key)
        case _:
            other = rng.choice(list(range(len(parent))) if isinstance(parent, list) else list(parent))
            parent[key], parent[other] = parent[other], parent[key]


def _numbers(rng: random.Random, case: Case) -> Case:
    """One number at its extreme, everything else as it was: what gets past the reader and into the formulas."""
    name = _broken_file(rng)
    value = yaml.safe_load(case.files[name])
    found = [(place, old) for place in _places(value) if isinstance(old := _at(value, place), int | float | str)]
    for _ in range(rng.choice([1, 1, 2])):
        place, old = rng.choice(found)
        parent = _at(value, place[:-1])
        if isinstance(old, str) and old[:1].isdigit():
            unit = old.lstrip("0123456789.e-+~")
            parent[place[-1]] = rng.choice(["0", "1", "1e-6", "1e3", "59", "1e4", "1e9", "99999"]) + unit
        elif not isinstance(old, str | bool):
            parent[place[-1]] = rng.choice([*NUMBERS[:17], old * 10, old * 1000, old + 1])
    case.files[name] = _written(rng, name, value)
    return case


def _bombs(rng: random.Random, case: Case) -> Case:
    """Small files that could grow, and large ones."""
    name = rng.choice(["cluster.yaml", "jobs.yaml", "joined.yaml", "plan.json", "config.json"])
    size = rng.choice([10, 100, 3000])
    aliases = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    head = case.files[name].decode()
    text = rng.choice([
        aliases, "[" * size * 100, "{a: " * size, "- " * size * 10, "? " * size, "a: &x {b: *x}", '{"a":' * size * 30,
        "%TAG ! tag:x,2000:\n---\n" + head, "".join(f"%TAG !{i}! x\n" for i in range(size * 10)) + "---\n" + head,
        "--- " + head + "\n--- " + head, head + "\n" + head, head + "\n<<: {name: x}", "!!python/object:os.system [id]",
        "x: !!binary aGk=", "# " + "x" * size * 1000, head.replace(" ", "\t"), head.replace("\n", "\r\n"),
        "\ufeff" + head,
        "machines: [" + "{}," * size * 30 + "]", "regions: {" + ", ".join(f"r{i}: {{}}" for i in range(size)) + "}",
        '{"hulk": "plan/1", "idle": [' + '"a",' * size * 10 + '"a"]}', "about: |\n" + "  x\n" * size * 10,
        "\x00" * size,
        json.dumps(rng.choice(EVIL)), json.dumps({evil: evil for evil in EVIL}), "1" * 5000,
        '{"a": ' + "9" * 5000 + "}",
        '{"a": "\\ud800"}', '{"a": NaN, "b": Infinity}',
        "jobs: [" + "{name: a, model: t5-11b, global_batch: 1}," * size + "]",
    ])  # fmt: skip
    case.files[name] = text.encode("utf-8", "surrogatepass")
    return case


def _texts(rng: random.Random, case: Case) -> Case:
    """Valid files whose words are meant for the terminal."""
    evil = rng.choice(EVIL)
    cluster, jobs, plan = yaml.safe_load(CLUSTER), yaml.safe_load(JOBS), json.loads(json.dumps(PLAN))
    cluster["about"], cluster["sources"], cluster["regions"]["rome"]["label"] = evil, [evil], evil
    jobs["about"], plan["waiting"]["own"], plan["cluster"] = evil, evil, evil
    plan["made_for"]["machines"][0]["gpu"] = evil[:100]
    case.files |= {
        "cluster.yaml": json.dumps(cluster, ensure_ascii=False).encode(),
        "jobs.yaml": json.dumps(jobs, ensure_ascii=False).encode(), "plan.json": json.dumps(plan).encode(),
    }  # fmt: skip
    if rng.random() < 0.5:  # YAML knows neither raw controls nor pairs of surrogates: as JSON, they come through
        for name in ("cluster", "jobs"):
            case.files[f"{name}.json"] = json.dumps(cluster if name == "cluster" else jobs).encode()
            case.argv = [word.replace(f"{name}.yaml", f"{name}.json") for word in case.argv]
    return case


def _broken_file(rng: random.Random) -> str:
    return rng.choice(
        ["cluster.yaml", "cluster.yaml", "jobs.yaml", "plan.json", "plan.json", "config.json", "joined.yaml"]
    )


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] * bool(at) + [place for key, item in items for place in _places(item, (*at, key))]


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def _written(rng: random.Random, name: str, value: Any) -> bytes:
    if name.endswith(".json") or rng.random() < 0.3:
        return json.dumps(value, default=str).encode()
    return bytes(yaml.dump(value, Dumper=_NoAliases, allow_unicode=rng.random() < 0.5).encode("utf-8", "surrogatepass"))


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _argument(text: str) -> str:
    return text.replace("\x00", "\x01")  # no argument can hold a NUL


KINDS: dict[str, Callable[[random.Random, Case], Case]] = {
    "garbled": _garbled, "values": _values, "numbers": _numbers, "bombs": _bombs, "texts": _texts, "options": _options,
    "outputs": _outputs, "inputs": _inputs, "streams": _streams, "joined": _values, "serve": _serve,
}  # fmt: skip
WEIGHTS = (3, 4, 6, 2, 1, 4, 2, 1.5, 0.7, 1, 0.7)
