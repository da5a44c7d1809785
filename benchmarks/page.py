"""The page under load: 50 plans asked for at once, prices meanwhile, what-ifs, plans again, and the map in a browser.

    python benchmarks/page.py                  figures against their bounds
    python benchmarks/page.py --requests 10    fewer plans at once

Without Chromium or playwright the figures of the browser are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

import common

REQUESTS = 50
SEARCH = {"seconds": 1.5, "evaluations": 5000}
HULK47 = {"cluster": {"name": "hulk47"}, "jobs": {"name": "paper4"}}
EXAMPLE = json.loads((common.ROOT / "examples" / "hulk47.plan.json").read_text(encoding="utf-8"))
LOST = "california-2"  # of a job that can go on without it by a small change
LOST_OF_MOST = "rome-2"  # of the job with most machines, which cannot
THOUSAND = 1000
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def served(folder: str) -> tuple[subprocess.Popen[str], httpx.Client]:
    """A server of its own, and a client that asks it as the page does."""
    command = [sys.executable, "-c", "from hulk.cli import main; main()", "serve", "--port", "0"]
    command += ["--history", str(Path(folder) / "history.sqlite")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert server.stdout
    address = server.stdout.readline().split()[-1]
    return server, httpx.Client(base_url=address, headers={"X-Hulk": "1"}, timeout=600)


def seconds_of(work: Callable[[], Any]) -> float:
    """How long it takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def finished(client: httpx.Client, task: str) -> dict[str, Any]:
    """Wait for a task; where it then stands."""
    with client.stream("GET", f"/api/tasks/{task}/events") as answer:
        for _ in answer.iter_lines():
            pass
    found: dict[str, Any] = client.get(f"/api/tasks/{task}").json()
    return found


def p95(times: list[float]) -> float:
    """The time that 95 of 100 stay below."""
    return statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]


def memory(group: int) -> float:
    """Bytes that a server and all it has started take, memory that they share counted once for each."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*/statm"):
        try:
            if _belongs(int(path.parent.name), group):
                pages += int(path.read_text().split()[1])
        except (OSError, ValueError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def _belongs(process: int, ancestor: int) -> bool:
    while process > 1:
        if process == ancestor:
            return True
        process = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return False


def crowd(report: common.Report, client: httpx.Client, plan: str, server: int, requests: int) -> None:
    """Many plans at once; prices meanwhile, of a kept plan and of one that is sent along."""
    body = {**HULK47, "plan": EXAMPLE}
    kept: list[float] = []
    sent: list[float] = []
    largest = [0.0]
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            kept.append(seconds_of(lambda: client.get(f"/api/plans/{plan}/price").raise_for_status()))
            largest[0] = max(largest[0], memory(server))
            if len(kept) % 10 == 0:
                sent.append(seconds_of(lambda: client.post("/api/price", json=body).raise_for_status()))
            over.wait(0.1)

    asker = threading.Thread(target=ask)
    asker.start()
    begin = time.perf_counter()
    with ThreadPoolExecutor(requests) as pool:
        bodies = [{**HULK47, "options": {**SEARCH, "seed": seed}} for seed in range(requests)]
        started = list(pool.map(lambda body: client.post("/api/plans", json=body), bodies))
        tasks = [answer.json()["task"] for answer in started if answer.status_code == 202]
        states = list(pool.map(lambda task: finished(client, task)["state"], tasks))
    over.set()
    asker.join()
    report.figure("plans_answered", float(states.count("done")), least=float(requests))
    report.figure("plans_minutes", (time.perf_counter() - begin) / 60)
    report.figure("price_p95_ms", 1e3 * p95(kept), most=100)
    report.figure("price_of_a_sent_plan_p95_ms", 1e3 * p95(sent))
    report.figure("memory_gib", largest[0] / 2**30, most=8)


def alone(report: common.Report, client: httpx.Client, plan: str) -> None:
    """What one person waits for."""
    body = {"changes": [{"kind": "lose", "machine": LOST}]}

    def what_if() -> float:
        return seconds_of(lambda: client.post(f"/api/plans/{plan}/whatif", json=body).raise_for_status())

    def again(lost: str) -> float:
        body = {"changes": [{"kind": "lose", "machine": lost}]}
        return seconds_of(lambda: finished(client, client.post(f"/api/plans/{plan}/replan", json=body).json()["task"]))

    for _ in range(4):  # each worker has then seen the plan
        what_if()
    report.figure("what_if_ms", 1e3 * statistics.median(what_if() for _ in range(9)), most=200)
    again(LOST)
    report.figure("plan_again_s", statistics.median(again(LOST) for _ in range(5)), most=2)
    report.figure("plan_again_largest_s", statistics.median(again(LOST_OF_MOST) for _ in range(5)), most=2)


def thousand() -> str:
    """A cluster of a thousand machines in 20 regions around the world."""
    regions = [f"r{i}: {{at: [{60 - 5 * i}, {-170 + 17 * i}]}}" for i in range(20)]
    machines = [f"{{name: m{i}, count: {THOUSAND // 20}, region: r{i}, gpu: a100-40, gpus: 8}}" for i in range(20)]
    return f"name: thousand\nregions: {{{', '.join(regions)}}}\nmachines: [{', '.join(machines)}]\n"


def in_browser(report: common.Report, client: httpx.Client, plan: str) -> None:
    """The first picture, and how smoothly the map of a thousand machines moves."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser = None
    if browser is None:
        return
    job = "jobs: [{name: bert, model: bert-large, sequence: 128, global_batch: 512}]"
    body = {"cluster": {"text": thousand()}, "jobs": {"text": job}, "options": {"seconds": 20, "evaluations": 300}}
    large = finished(client, client.post("/api/plans", json=body).json()["task"])["result"]["plan"]
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_page(viewport={"width": 1400, "height": 900})

        def show(key: str) -> float:
            page.goto("about:blank")
            begin = time.perf_counter()
            page.goto(f"{client.base_url}#plan={key}")
            page.wait_for_selector(f'html[data-ready="{key}"]', state="attached", timeout=60_000)
            return time.perf_counter() - begin

        show(plan)
        report.figure("first_picture_s", statistics.median(show(plan) for _ in range(5)), most=1)
        show(large)
        report.figure("map_frames_a_second", float(page.evaluate("window.hulkMapFrames(3000)")), least=30)
        chromium.close()


def main() -> int:
    """Command line."""
    arguments = common.parser(__doc__)
    arguments.add_argument("--requests", type=int, default=REQUESTS, help="plans that are asked for at once")
    options = arguments.parse_args()
    report = common.Report("page")
    with tempfile.TemporaryDirectory() as folder:
        server, client = served(folder)
        try:
            loaded = client.post("/api/plans/load", json={**HULK47, "plan": EXAMPLE})
            plan = loaded.raise_for_status().json()["plan"]
            alone(report, client, plan)
            in_browser(report, client, plan)
            crowd(report, client, plan, server.pid, options.requests)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
            client.close()
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
