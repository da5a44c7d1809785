// Numbers as people read them: the same texts as src/hulk/units.py makes. Only for numbers that come without words.

/** Three significant digits without an exponent: 0.123, 1.23, 12.3, 123, 1,230. */
function threeDigits(value: number): string {
  if (value === 0) return "0";
  const digits = Math.min(4, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) * 1.0005))));
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

type Steps = readonly (readonly [number, string])[];

function scaled(value: number, steps: Steps): string {
  const [factor, unit] = steps.find(([size]) => Math.abs(value) >= size * 0.9995) ?? steps[steps.length - 1] ?? [1, ""];
  return `${threeDigits(value / factor)} ${unit}`;
}

const TIME: Steps = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]];
const SIZE: Steps = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const BITS: Steps = [[1e12, "Tbit/s"], [1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]];
const COUNT: Steps = [[1e15, "P"], [1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"], [1, ""]];

export function seconds(value: number): string {
  return value === 0 ? "0 s" : scaled(value, TIME);
}

export function bytes(value: number): string {
  return scaled(value, SIZE);
}

export function bandwidth(bytesPerSecond: number): string {
  return scaled(8 * bytesPerSecond, BITS);
}

export function count(value: number): string {
  return scaled(value, COUNT).replace(" ", "");
}

export function share(value: number): string {
  const percent = 100 * value;
  // Small shares keep a digit or two: links that cost less than a hundredth differ, too.
  const digits = percent === 0 || percent >= 9.95 ? 0 : percent >= 0.995 ? 1 : 2;
  return `${percent.toFixed(digits).replace(/\.0+$/, "")}%`;
}

export function money(dollars: number): string {
  if (dollars !== 0 && Math.abs(dollars) < 0.1) {
    return Math.abs(dollars) >= 1e-4 ? `$${Number(dollars.toPrecision(2))}` : `$${dollars.toExponential(1)}`;
  }
  return `$${dollars.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en-US")} ${n === 1 ? one : many}`;
}

/** "1–4", or "7" where first and last are one. */
export function range(first: number, last: number): string {
  return first === last ? String(first) : `${first}–${last}`;
}

export function when(unix: number): string {
  return new Date(unix * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}
