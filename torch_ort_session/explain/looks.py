"""What the page of a plan looks like and how it answers to the pointer."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1c2330; --soft: #5c6779; --line: #d9dee6; --paper: #ffffff; --card: #f5f7fa;
  --segment: #2f7d6b; --on-segment: #ffffff; --seam: #d9822b;
  --out: #4a78c2; --cross: #8a5fb5; --land: #d9822b; --live: #1c2330;
  --feed: #3f9c8f; --inner: #97a3b4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6eaf0; --soft: #9aa5b5; --line: #333c49; --paper: #14181f; --card: #1d232c;
    --segment: #2f7d6b; --on-segment: #ffffff; --seam: #e0984a;
    --out: #6b96dc; --cross: #a883d0; --land: #e0984a; --live: #e6eaf0;
    --feed: #4db3a5; --inner: #66728a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 24px 32px 48px; max-width: 1280px;
  background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 20px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 28px 0 8px; }
p { margin: 4px 0 0; color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(6, 1fr); gap: 10px; margin-top: 16px; }
.tile { background: var(--card); border-radius: 6px; padding: 10px 12px; }
.tile b { display: block; font-size: 19px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 12px; }
.strip { display: flex; height: 46px; gap: 1px; }
.strip div { overflow: hidden; white-space: nowrap; border-radius: 3px; cursor: default; }
.segment {
  background: var(--segment); color: var(--on-segment);
  font-size: 12px; line-height: 46px; text-align: center;
}
.seam { background: var(--seam); }
.marks { display: flex; gap: 1px; margin-top: 2px; font-size: 12px; color: var(--soft); }
.marks div { position: relative; }
.marks i { position: absolute; left: 50%; top: 0; border-left: 1px solid var(--seam); }
.marks span { position: absolute; white-space: nowrap; background: var(--paper); padding: 0 4px; z-index: 1; }
.marks span { margin: 0 calc(50% - 4px); }
.marks b { color: var(--ink); font-weight: 500; }
.strip .on { outline: 2px solid var(--ink); }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { border-bottom: 1px solid var(--line); padding: 4px 10px 4px 0; text-align: left; }
th { color: var(--soft); font-weight: 500; }
td { vertical-align: top; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.op { white-space: nowrap; }
tr.on td { background: var(--card); }
svg { display: block; width: 100%; height: auto; background: var(--card); border-radius: 6px; }
svg text { fill: var(--soft); font-size: 11px; font-family: inherit; }
.out { fill: var(--out); }
.cross { fill: var(--cross); }
.land { fill: var(--land); }
.feed { fill: var(--feed); }
.inner { fill: var(--inner); }
.few rect { stroke: var(--card); stroke-width: .6; }
.slots rect:hover { stroke: var(--ink); stroke-width: 1.5; }
.cut { stroke: var(--seam); stroke-width: 1; stroke-dasharray: 2 3; }
.cut.on { stroke-width: 3; stroke-dasharray: none; }
.grid { stroke: var(--line); }
.live { fill: none; stroke: var(--live); stroke-width: 1; opacity: .6; pointer-events: none; }
.key { display: flex; gap: 18px; flex-wrap: wrap; color: var(--soft); font-size: 12px; margin: 6px 0 8px; }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 5px; }
.key i { vertical-align: -1px; }
.columns { display: grid; grid-template-columns: 1fr 1fr; gap: 32px; }
#tip {
  position: fixed; display: none; pointer-events: none; z-index: 1; max-width: 460px;
  background: var(--ink); color: var(--paper); padding: 7px 10px; border-radius: 5px;
  font-size: 12px; white-space: pre-line; overflow-wrap: anywhere;
}
"""

SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");

function size(count) {
  for (const unit of ["B", "KB", "MB"]) {
    if (count < 1000) return (unit === "B" ? count : count.toFixed(1)) + " " + unit;
    count /= 1000;
  }
  return count.toFixed(1) + " GB";
}

function words(element) {
  if (element.dataset.s === undefined) return data.regions[element.dataset.r];
  const [name, op, bytes, offset, first, last] = data.slots[element.dataset.s];
  const made = op ? `\\nmade by ${op}` : "";
  const what = name || "a kernel's own";
  return `${what}\\n${size(bytes)} at offset ${offset}${made}\\ncalls ${first} to ${last}`;
}

let lit = [];

function light(region) {
  lit.forEach(element => element.classList.remove("on"));
  lit = region === undefined ? [] : [...document.querySelectorAll(`[data-r="${region}"]`)];
  lit.forEach(element => element.classList.add("on"));
}

document.addEventListener("mousemove", event => {
  const element = event.target.closest("[data-s],[data-r]");
  light(element ? element.dataset.r : undefined);
  tip.style.display = element ? "block" : "none";
  if (!element) return;
  tip.textContent = words(element);
  const box = tip.getBoundingClientRect();
  const below = event.clientY + 18;
  const above = event.clientY - box.height - 10;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (below + box.height > innerHeight ? above : below) + "px";
});
"""
