// From a cluster, and a plan where there is one, to what the map draws.
import type { ClusterView, CutView, LinkTraffic, LinkView, MachineView } from "../contract.ts";
import { partsOf } from "../parts.ts";
import { bandwidth, bytes, plural, seconds, share } from "../ui/format.ts";
import type { LinkKind, MapLink, MapMachine, MapRegion, Scene, Spent } from "./scene.ts";

export interface SceneInput {
  readonly cluster: ClusterView;
  readonly jobs: readonly string[];
  readonly owner: readonly number[];
  readonly cut: Readonly<Record<string, CutView>>;
  readonly traffic: readonly LinkTraffic[];
  readonly lost: ReadonlySet<string>;
  /** How each machine spends its time, while a run is watched. */
  readonly spent: ReadonlyMap<string, Spent>;
}

export function linkId(a: string, b: string): string {
  return a < b ? `${a}\n${b}` : `${b}\n${a}`;
}

/** Which jobs have a stage on each machine. */
export function jobsOnMachines(cut: Readonly<Record<string, CutView>>): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const [job, { pipelines }] of Object.entries(cut)) {
    for (const machine of new Set(pipelines.flatMap((pipeline) => pipeline.stages.flatMap((stage) => partsOf(stage).map((part) => part.machine))))) {
      found.set(machine, [...(found.get(machine) ?? []), job]);
    }
  }
  return found;
}

export function spentWords({ busy, waiting }: Spent): string {
  return `measured: at work ${share(busy)}, waiting ${share(waiting)} of the time`;
}

export function machineAbout(machine: MachineView, job: string | null, lost: boolean, spent?: Spent): string {
  const state = lost ? "lost" : job ?? "idle";
  return `${machine.name}\n${machine.gpus}×${machine.gpu}, ${bytes(machine.memory)} each\n${state}${spent ? `\n${spentWords(spent)}` : ""}`;
}

function machinesOf(input: SceneInput): Map<string, MapMachine[]> {
  const shared = jobsOnMachines(input.cut);
  const found = new Map<string, MapMachine[]>();
  input.cluster.machines.forEach((machine, index) => {
    const job = input.jobs[input.owner[index] ?? -1] ?? null;
    const also = (shared.get(machine.name) ?? []).filter((name) => name !== job);
    const lost = input.lost.has(machine.name);
    const spends = input.spent.get(machine.name);
    const list = found.get(machine.region) ?? [];
    list.push({
      name: machine.name, region: machine.region, memory: machine.memory * machine.gpus, job: lost ? null : job,
      jobs: job === null || lost ? [] : [job, ...also], lost, about: machineAbout(machine, job, lost, spends), spends,
    });
    found.set(machine.region, list);
  });
  return found;
}

function regionAbout(label: string, machines: readonly MapMachine[]): string {
  const counts = new Map<string, number>();
  for (const { job, lost } of machines) {
    const state = lost ? "lost" : job ?? "idle";
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return `${label}\n${plural(machines.length, "machine")}\n${[...counts].map(([job, n]) => `${n} ${job}`).join(", ")}`;
}

/** Regions of which nobody said where they are stand in a row to the south of the others. */
function placesOf(cluster: ClusterView): Map<string, readonly [number, number]> {
  const known = cluster.regions.filter((region) => region.latitude !== null && region.longitude !== null);
  const unknown = cluster.regions.filter((region) => !known.includes(region));
  const middle = known.reduce((sum, region) => sum + (region.longitude ?? 0) / known.length, 0);
  const south = Math.max(-55, Math.min(40, ...known.map((region) => region.latitude ?? 0)) - 12);
  return new Map(cluster.regions.map((region) => {
    if (region.latitude !== null && region.longitude !== null) return [region.name, [region.longitude, region.latitude]];
    return [region.name, [middle + 14 * (unknown.indexOf(region) - (unknown.length - 1) / 2), south]];
  }));
}

function regionsOf(input: SceneInput): MapRegion[] {
  const machines = machinesOf(input);
  const places = placesOf(input.cluster);
  // What stands in brackets is for the panel; on the map room is dear.
  const short = (label: string): string => {
    const text = label.replace(/\s*\(.*\)$/, "") || label;
    return text.length > 30 ? `${text.slice(0, 29)}…` : text;
  };
  const labels = input.cluster.regions.map((region) => short(region.label));
  return input.cluster.regions.filter((region) => machines.has(region.name)).map((region) => {
    const own = machines.get(region.name) ?? [];
    const [longitude, latitude] = places.get(region.name)!;
    // Two providers in one city: their own names tell them apart.
    const label = region.label && labels.filter((other) => other === short(region.label)).length === 1 ? short(region.label) : region.name;
    return { name: region.name, label, longitude, latitude, machines: own, about: regionAbout(region.label || region.name, own) + (region.latitude === null ? "\nnobody said where it is" : "") };
  });
}

export function linkWords(link: LinkView | undefined): string {
  if (!link) return "not in the file";
  if (link.origin === "blocked") return "blocked: nothing passes";
  return `${link.latency === null ? "latency unknown" : `${seconds(link.latency)} one way`} (${link.origin}), `
    + `${bandwidth(link.bandwidth)} a flow (${link.bandwidth_origin})`;
}

/** A link is as well known as the worse known of its latency and its bandwidth. */
export function linkKind(link: LinkView | undefined): LinkKind {
  if (!link) return "estimated";
  return link.origin === "measured" ? link.bandwidth_origin : link.origin;
}

function linksOf(input: SceneInput): MapLink[] {
  const known = new Map(input.cluster.links.map((link) => [linkId(link.a, link.b), link]));
  const used = new Map<string, LinkTraffic[]>();
  for (const traffic of input.traffic) {
    if (traffic.a === traffic.b) continue;
    const id = linkId(traffic.a, traffic.b);
    used.set(id, [...(used.get(id) ?? []), traffic]);
  }
  for (const link of input.cluster.links) {
    if (link.origin === "blocked" && link.a !== link.b && !used.has(linkId(link.a, link.b))) used.set(linkId(link.a, link.b), []);
  }
  return [...used].map(([id, rows]) => {
    const link = known.get(id);
    const [from = "", to = ""] = link ? [link.a, link.b] : id.split("\n");
    const sum = rows.reduce((all, row) => all + row.messages + row.sums, 0);
    const costs = rows.map((row) => `${row.job}: ${bytes(row.messages + row.sums)} a step${row.cost === null ? "" : `, ${share(row.cost)} of it`}`);
    return {
      id, from, to, bytes: sum, share: Math.max(0, ...rows.map((row) => row.cost ?? 0)), kind: linkKind(link),
      jobs: rows.map((row) => row.job), about: [`${from} – ${to}`, linkWords(link), ...costs].join("\n"),
    };
  });
}

export function sceneOf(input: SceneInput): Scene {
  return { regions: regionsOf(input), links: linksOf(input) };
}
