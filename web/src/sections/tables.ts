// Machines and links as tables.
import type { ClusterView, HulkDocument, LinkView, MachineView } from "../contract.ts";
import { linkId } from "../map/from_document.ts";
import type { Pick } from "../map/scene.ts";
import { badge } from "../ui/badge.ts";
import { h, refill } from "../ui/dom.ts";
import { bandwidth, bytes, money, seconds, share } from "../ui/format.ts";
import { markOf, type Marks } from "../ui/palette.ts";
import { table } from "../ui/table.ts";

export class Tables {
  readonly element = h("div", { class: "tables" });

  show(cluster: ClusterView, document: HulkDocument | null, owner: readonly number[], lost: ReadonlySet<string>, marks: Marks, onPick: (pick: Pick) => void): void {
    refill(this.element, machines(cluster, document, owner, lost, marks, onPick), links(cluster, document, onPick));
  }
}

function machines(
  cluster: ClusterView, document: HulkDocument | null, owner: readonly number[], lost: ReadonlySet<string>, marks: Marks, onPick: (pick: Pick) => void,
): HTMLElement {
  type Line = MachineView & { job: string | null; state: string };
  const rows: Line[] = cluster.machines.map((machine, index) => {
    const gone = lost.has(machine.name);
    const job = gone ? null : document?.jobs[owner[index] ?? -1]?.name ?? null;
    return { ...machine, job, state: gone ? "lost" : job ?? "idle" };
  });
  return table<Line>({
    title: "Machines", testid: "machines-table", rows, first: 60, onRow: (row) => onPick({ kind: "machine", name: row.name }), columns: [
      { name: "machine", text: (row) => row.name },
      { name: "job", text: (row) => row.state, show: (row) => (row.job === null ? row.state : h("span", { class: "with-badge" }, badge(markOf(marks, row.job)), row.job)) },
      { name: "region", text: (row) => row.region },
      { name: "GPUs", text: (row) => `${row.gpus}×${row.gpu}`, by: (row) => `${row.gpu} ${row.gpus}` },
      { name: "memory a GPU", text: (row) => bytes(row.memory), by: (row) => row.memory, numeric: true },
      { name: "network", text: (row) => bandwidth(row.network), by: (row) => row.network, numeric: true },
      { name: "an hour", text: (row) => money(row.price * 3600), by: (row) => row.price, numeric: true },
    ],
  });
}

function links(cluster: ClusterView, document: HulkDocument | null, onPick: (pick: Pick) => void): HTMLElement {
  type Line = LinkView & { bytes: number; cost: number | null };
  const used = new Map<string, { bytes: number; cost: number | null }>();
  for (const row of document?.traffic.links ?? []) {
    const sum = used.get(linkId(row.a, row.b)) ?? { bytes: 0, cost: null };
    used.set(linkId(row.a, row.b), {
      bytes: sum.bytes + row.messages + row.sums, cost: row.cost === null ? sum.cost : Math.max(sum.cost ?? 0, row.cost),
    });
  }
  const rows: Line[] = cluster.links.map((link) => ({ ...link, ...(used.get(linkId(link.a, link.b)) ?? { bytes: 0, cost: null }) }))
    .sort((a, b) => b.bytes - a.bytes);
  const left = cluster.links_left_out;
  return table<Line>({
    title: left > 0 ? `Links (${left.toLocaleString("en-US")} more pairs left out)` : "Links", testid: "links-table", rows, first: 40,
    onRow: (row) => onPick({ kind: "link", id: linkId(row.a, row.b) }), columns: [
      { name: "between", text: (row) => (row.a === row.b ? `inside ${row.a}` : `${row.a} – ${row.b}`) },
      { name: "bytes a step", text: (row) => (row.bytes > 0 ? bytes(row.bytes) : "–"), by: (row) => row.bytes, numeric: true },
      { name: "of the step", text: (row) => (row.cost === null ? "–" : share(row.cost)), by: (row) => row.cost ?? -1, numeric: true },
      { name: "latency", text: (row) => (row.latency === null ? "blocked" : seconds(row.latency)), by: (row) => row.latency ?? Infinity, numeric: true },
      { name: "a flow", text: (row) => (row.origin === "blocked" ? "–" : bandwidth(row.bandwidth)), by: (row) => row.bandwidth, numeric: true },
      { name: "trunk", text: (row) => (row.trunk === null ? "–" : bandwidth(row.trunk)), by: (row) => row.trunk ?? -1, numeric: true },
      { name: "known by", text: (row) => (row.origin === row.bandwidth_origin ? row.origin : `${row.origin}, bandwidth ${row.bandwidth_origin}`) },
    ],
  });
}
