// A step as a trace that Perfetto and chrome://tracing open, made from the timeline in the document.
import type { JobTimelineView } from "./contract.ts";
import { KIND_NAMES, kindOf, readTimeline } from "./timeline/model.ts";

interface TraceEvent {
  name: string; ph: "X" | "M"; pid: number; tid: number; ts?: number; dur?: number; cat?: string; args?: Record<string, unknown>;
}

export function traceOf(timelines: Readonly<Record<string, JobTimelineView>>): { traceEvents: TraceEvent[]; displayTimeUnit: "ms" } {
  const events: TraceEvent[] = [];
  Object.entries(timelines).forEach(([job, view], at) => {
    const pid = at + 1;
    events.push({ name: "process_name", ph: "M", pid, tid: 0, args: { name: job } });
    readTimeline(job, view).rows.forEach((row, index) => {
      const tid = index + 1;
      events.push({ name: "thread_name", ph: "M", pid, tid, args: { name: row.name } });
      for (let i = 0; i < row.start.length; i += 1) {
        const micro = row.source.micro[i] ?? -1;
        events.push({
          name: KIND_NAMES[kindOf(row, i)], cat: row.source.lane, ph: "X", pid, tid, ts: row.start[i]! * 1e6, dur: (row.end[i]! - row.start[i]!) * 1e6,
          ...(micro >= 0 ? { args: { microbatch: micro + 1 } } : {}),
        });
      }
    });
  });
  return { traceEvents: events, displayTimeUnit: "ms" };
}
