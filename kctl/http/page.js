"use strict";
// Reads /state once, then follows /events. Whatever comes from the cluster is set as text, never as markup.

const COLOURS = ["#77aadd", "#44bb99", "#eedd88", "#ffaabb", "#bbcc33", "#99ddff", "#ee8866", "#aaaa00"];
const OFFLINE = 1, UNDER = 2, AWAY = 4, MOVING = 8, LEAVING = 16, ODD = 32, NEW = 64; // as in cells.py
const WORDS = [
  [OFFLINE, "no leader"], [NEW, "not started"], [ODD, "in quarantine"], [UNDER, "under-replicated"],
  [AWAY, "not led by its preferred replica"], [MOVING, "being reassigned"], [LEAVING, "being deleted"],
];
const DENSE_FROM = 1200, CROWDED_FROM = 300, STREAM_MAX = 150, SPARK_MAX = 60;

const state = {
  mode: "none", shape: "", cells: new Map(), order: [], focus: null, only: null, // the map
  colours: new Map(), brokers: [], census: 0, open: null, since: null, clock: 0,
  slowest: 0, queue: [], lag: [], busy: [],
};

const $ = id => document.getElementById(id);
function el(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
const number = n => n.toLocaleString("en");
const arrows = text => text.replace("leader -1 ", "leader none ").replace("-> -1", "-> none").replaceAll("->", "\u2192");
const clock = at => new Date(at).toLocaleTimeString("en-GB");
function ms(n) {
  if (n === 0) return "0 ms";
  if (n >= 1000) return `${(n / 1000).toFixed(2)} s`;
  return n >= 10 ? `${n.toFixed(0)} ms` : `${n.toFixed(n >= 1 ? 1 : 2)} ms`;
}
function ago(at) {
  const s = Math.max(0, Math.round((Date.now() + state.clock - at) / 1000));
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (s >= size) return `${Math.floor(s / size)} ${unit}`;
  return `${s} s`;
}
/** A broker keeps the colour that it got first. The ninth has the first one's, darker; then lighter. */
function colour(broker) {
  if (!state.colours.has(broker)) {
    const n = state.colours.size, base = COLOURS[n % COLOURS.length];
    const other = ["", "#000 24%", "#fff 45%"][Math.floor(n / COLOURS.length) % 3];
    state.colours.set(broker, other ? `color-mix(in srgb, ${base}, ${other})` : base);
  }
  return state.colours.get(broker);
}
function chip(broker, gone = false, tag = "span") {
  const node = el(tag, { className: gone ? "chip gone" : "chip", textContent: broker });
  if (!gone) node.style.setProperty("--leader", colour(broker));
  return node;
}

// -- the head ------------------------------------------------------------------------------------

function showController(c) {
  state.clock = c.now_ms - Date.now();
  state.since = c.since_ms;
  const strong = text => el("strong", { textContent: text }), since = el("span", { id: "since", className: "muted" });
  if (c.active)
    $("who").replaceChildren("Controller ", strong(c.id), " is active in epoch ", strong(c.epoch), " ", since);
  else if (c.active_id !== null && c.session === "connected")
    $("who").replaceChildren("Node ", strong(c.id), " stands by; the controller is ", strong(c.active_id), " ", since);
  else
    $("who").replaceChildren("Node ", strong(c.id), " knows of no controller");
  document.title = `kctl ${c.id}: ${c.active ? "active" : "not active"}`;
  showSince();
  const trouble = troubleOf(c);
  $("notice").hidden = !trouble;
  if ($("notice").textContent !== trouble) $("notice").textContent = trouble; // said once by screen readers
}
function troubleOf(c) {
  if (c.stood_down) return `Stood down, not campaigning any more: ${c.stood_down}`;
  if (c.session === null) return `No ZooKeeper session${c.error ? `: ${c.error}` : ""}`;
  if (c.session !== "connected") return `The ZooKeeper session is ${c.session}`;
  return c.resting ? "Resting after a fault; it stands for election again soon" : "";
}
function showSince() {
  const since = $("since");
  if (since) since.textContent = state.since ? `since ${clock(state.since)} (${ago(state.since)})` : "";
}

// -- figures -------------------------------------------------------------------------------------

const FIGURES = [ // name, label, mark in the map, sign on it
  ["topics", "Topics"], ["partitions", "Partitions"], ["offline", "Offline", "offline", "\u00d7"],
  ["under_replicated", "Under-replicated", "under"], ["not_preferred", "Not preferred", "away"],
  ["reassigning", "Reassigning", "moving"], ["deleting", "Deleting", "leaving", "1"],
  ["quarantined", "Quarantine", "odd", "?"],
];
const VITALS = { queue: ["Queue", number], lag: ["Loop lag", ms], busy: ["Slowest event", ms] };

function tile(id, label, mark, sign = "") {
  const legend = mark && el("span", { className: `cell ${mark}`, textContent: sign, ariaHidden: "true" });
  return el("div", { id: `f-${id}` }, el("dt", { textContent: label }), el("dd", {}, legend, el("span", { textContent: "\u2013" })));
}
$("figures").append(...FIGURES.map(figure => tile(...figure)));
$("vitals").append(...Object.entries(VITALS).map(([id, [label]]) => tile(id, label)));

function showCounts(counts) {
  for (const [id, , mark] of FIGURES) {
    const box = $(`f-${id}`), bad = mark === "offline" || mark === "odd";
    box.lastChild.lastChild.textContent = number(counts[id]);
    box.className = mark && !counts[id] ? "none" : bad ? "bad" : "";
  }
}
function showVital(id, value) {
  const values = state[id], print = VITALS[id][1];
  values.push(value);
  if (values.length > SPARK_MAX) values.shift();
  const top = Math.max(...values, 1e-9), left = SPARK_MAX - values.length;
  const points = values.map((v, i) => `${left + i},${(19 - 17 * v / top).toFixed(1)}`).join(" ");
  const most = el("small", { textContent: `most ${print(Math.max(...values))}` }), line = el("div", { ariaHidden: "true" });
  line.innerHTML = // numbers only
    `<svg viewBox="0 0 ${SPARK_MAX - 1} 20" preserveAspectRatio="none"><polyline points="${points}"/></svg>`;
  $(`f-${id}`).lastChild.replaceChildren(print(value), most, line);
}

// -- brokers -------------------------------------------------------------------------------------

function showBrokers(brokers) {
  const most = Math.max(1, ...brokers.map(b => b.leaders));
  brokers.forEach(b => colour(b.id));
  state.brokers = brokers;
  $("broker-count").textContent = `${brokers.filter(b => b.alive).length} of ${brokers.length} alive`;
  const rows = new Map([...$("brokers").children].map(row => [+row.dataset.broker, row]));
  brokers.forEach((b, place) => {
    const row = rows.get(b.id) ?? brokerRow(b.id), [id, bar, leads, replicas, rack, say] = row.children;
    rows.delete(b.id);
    if ($("brokers").children[place] !== row) $("brokers").insertBefore(row, $("brokers").children[place] ?? null);
    row.className = !b.alive ? "gone" : b.failed_dirs ? "ill" : "";
    row.title = b.endpoints.join(", ");
    id.firstChild.className = b.alive ? "chip" : "chip gone";
    id.firstChild.ariaPressed = String(state.only === b.id);
    bar.firstChild.style.width = `${100 * b.leaders / most}%`;
    bar.firstChild.hidden = !b.leaders;
    leads.textContent = number(b.leaders);
    replicas.textContent = number(b.replicas);
    rack.textContent = b.rack ?? "\u2013";
    say.textContent = !b.alive ? "gone" : b.shutting_down ? "leaving" : b.failed_dirs ? `${b.failed_dirs} failed` : "alive";
  });
  rows.forEach(row => row.remove());
}
function brokerRow(id) {
  const pick = chip(id, false, "button"), bar = el("i"), cell = name => el("td", { className: name });
  pick.ariaLabel = `Broker ${id}: show only what it leads`;
  pick.onclick = () => { state.only = state.only === id ? null : id; showBrokers(state.brokers); dim(); };
  bar.style.setProperty("--leader", colour(id));
  const row = el("tr", {}, el("td", {}, pick), el("td", { className: "bar" }, bar),
    cell("number"), cell("number"), cell("muted"), cell("say"));
  row.dataset.broker = id;
  return row;
}

// -- the map -------------------------------------------------------------------------------------

function classes(marks) {
  const led = !(marks & (OFFLINE | NEW | ODD));
  return ["cell", marks & ODD ? "odd" : marks & OFFLINE ? "offline" : marks & NEW ? "new" : "",
    led && marks & UNDER ? "under" : "", led && marks & AWAY ? "away" : "",
    marks & MOVING ? "moving" : "", marks & LEAVING ? "leaving" : ""].filter(Boolean).join(" ");
}
function describe(cell) {
  const words = WORDS.filter(([mark]) => cell.marks & mark).map(([, word]) => word);
  const parts = cell.count === undefined
    ? [cell.leader >= 0 ? `leader ${cell.leader}` : "", ...words]
    : [`${number(cell.count)} partitions`, cell.leader >= 0 ? `most led by ${cell.leader}` : "", ...cell.notes];
  return `${cell.key}: ${parts.filter(Boolean).join(", ")}`;
}
function paint(cell, leader, marks) {
  const moved = cell.leader !== undefined && cell.leader !== leader, node = cell.node;
  if (!moved && cell.marks === marks) return;
  Object.assign(cell, { leader, marks });
  node.className = classes(marks);
  node.classList.toggle("dim", state.only !== null && leader !== state.only);
  node.textContent = marks & ODD ? "?" : marks & OFFLINE ? "\u00d7" : leader >= 0 ? leader : "";
  if (leader >= 0) node.style.setProperty("--leader", colour(leader));
  node.ariaLabel = describe(cell);
  if (moved) { void node.offsetWidth; node.classList.add("moved"); } // starts the animation anew
}
/** A topic is striped in the colours of its main leaders; the part that has none is left out at the end. */
function paintTopic(cell, [, count, leaders, offline, under, away, leaving]) {
  const notes = [[offline, "without a leader"], [under, "under-replicated"], [away, "not preferred"]];
  cell.count = count;
  cell.notes = notes.filter(([n]) => n).map(([n, word]) => `${number(n)} ${word}`);
  cell.marks = undefined; // the notes may differ where the marks do not
  const main = leaders.reduce((most, each) => each[1] > most[1] ? each : most, [-1, 0])[0];
  paint(cell, main, (under && UNDER) | (leaving && LEAVING));
  cell.node.classList.toggle("hurt", offline > 0);
  const shown = leaders.reduce((sum, [, n]) => sum + n, 0), led = 1 - offline / count;
  let at = 0;
  const stripes = leaders.map(([broker, n]) => `${colour(broker)} ${at}% ${at += 100 * led * n / shown}%`);
  cell.node.style.backgroundImage = stripes.length > 1 ? `linear-gradient(90deg, ${stripes}, var(--line) 0)` : "";
}
function dim() {
  for (const cell of state.cells.values())
    cell.node.classList.toggle("dim", state.only !== null && cell.leader !== state.only);
}
function showMap(map) {
  const single = map.mode === "partitions";
  const shape = JSON.stringify([map.mode, map.topics.map(t => single ? [t[0], t[1].map(c => c[0])] : t[0])]);
  state.mode = map.mode;
  if (shape !== state.shape) { state.shape = shape; build(map); }
  for (const topic of map.topics)
    if (!single) paintTopic(state.cells.get(topic[0]), topic);
    else for (const [p, leader, marks] of topic[1]) paint(state.cells.get(`${topic[0]}-${p}`), leader, marks);
  const shown = map.topics.length, all = map.topic_count ?? shown;
  $("map-title").textContent = map.mode !== "topics" ? "Partitions"
    : shown < all ? `${number(shown)} of ${number(all)} topics, those in trouble among them`
    : "Topics, striped by their leaders";
}
function build(map) {
  const held = document.activeElement?.dataset?.key, single = map.mode === "partitions";
  const count = single ? map.topics.reduce((sum, t) => sum + t[1].length, 0) : map.topics.length;
  state.cells.clear();
  state.order = [];
  $("map").classList.toggle("dense", count > DENSE_FROM);
  $("map").classList.toggle("crowded", map.topics.length > CROWDED_FROM); // no room for names
  if (!count) $("map").replaceChildren(el("p", { className: "empty", textContent: map.mode === "none"
    ? "Only the active controller knows the partitions."
    : "No topics yet. Create one with kafka-topics.sh or any client, at a broker or at this controller." }));
  else if (single) $("map").replaceChildren(...map.topics.map(([name, cells]) => topicBox(name, cells.map(c => c[0]))));
  else {
    const box = el("div", { className: "cells" }, ...map.topics.map(([name]) => addCell(name, name).node));
    box.style.setProperty("--across", "auto-fill");
    box.style.width = "100%";
    $("map").replaceChildren(box);
  }
  if (!state.cells.has(state.focus)) state.focus = state.order[0] ?? null;
  if (state.focus) state.cells.get(state.focus).node.tabIndex = 0;
  if (held) state.cells.get(held)?.node.focus();
}
function topicBox(name, partitions) {
  const size = parseInt(getComputedStyle($("map")).getPropertyValue("--cell")) + 3;
  const across = Math.min(partitions.length, Math.floor(($("map").clientWidth - 10) / size));
  const box = el("div", { className: "cells" }, ...partitions.map(p => addCell(`${name}-${p}`, name, p).node));
  const title = el("h3", { textContent: name, title: name });
  box.style.setProperty("--across", across);
  title.style.maxWidth = `${Math.max(across * size, 96)}px`;
  return el("section", { ariaLabel: `Topic ${name}` }, title, box);
}
function addCell(key, topic, partition) {
  const node = el("button", { className: "cell", tabIndex: -1 }), cell = { key, topic, partition, node };
  node.dataset.key = key;
  state.cells.set(key, cell);
  state.order.push(key);
  return cell;
}

// -- with keys, mouse or finger ------------------------------------------------------------------

/** One cell can be reached by Tab; arrow keys move on from there. */
function focusOn(key) {
  if (!state.cells.has(key)) return;
  const old = state.cells.get(state.focus), node = state.cells.get(key).node;
  if (old) old.node.tabIndex = -1;
  state.focus = key;
  node.tabIndex = 0;
  node.focus();
}
/** The nearest cell of the next row on that side. */
function vertical(key, down) {
  const from = state.cells.get(key).node.getBoundingClientRect();
  let best = null, bestY = Infinity, bestX = Infinity;
  for (const other of state.order) {
    const box = state.cells.get(other).node.getBoundingClientRect();
    const x = Math.abs(box.left - from.left), y = down ? box.top - from.top : from.top - box.top;
    if (y < from.height / 2 || y > bestY + 4 || (y > bestY - 4 && x >= bestX)) continue;
    [best, bestY, bestX] = [other, y, x];
  }
  return best;
}
$("map").addEventListener("keydown", event => {
  const at = state.order.indexOf(state.focus);
  const to = {
    ArrowRight: () => state.order[at + 1], ArrowLeft: () => state.order[at - 1],
    ArrowDown: () => vertical(state.focus, true), ArrowUp: () => vertical(state.focus, false),
    Home: () => state.order[0], End: () => state.order.at(-1),
  }[event.key];
  if (!to || at < 0) return;
  event.preventDefault();
  focusOn(to());
});
const cellOf = event => state.cells.get(event.target.dataset?.key);
for (const kind of ["mouseover", "focusin"]) $("map").addEventListener(kind, event => {
  if (cellOf(event)) $("readout").textContent = describe(cellOf(event));
});
$("map").addEventListener("click", event => {
  const cell = cellOf(event);
  if (cell) { focusOn(cell.key); open(cell.topic, cell.partition); }
});
$("find").addEventListener("keydown", event => {
  const wanted = event.target.value.trim(), found = /^(.+)-(\d+)$/.exec(wanted);
  if (event.key === "Enter" && wanted) open(found ? found[1] : wanted, found ? +found[2] : undefined, wanted);
});

// -- the story of one ----------------------------------------------------------------------------

/** `name` is what was typed: orders-2 may be a topic, too. */
async function open(topic, partition, name) {
  const whole = partition === undefined;
  const query = new URLSearchParams(whole ? { topic, limit: 1000 } : { topic, partition });
  const answer = await fetch(`state?${query}`), found = await answer.json();
  if (!answer.ok && !whole && name) return open(name);
  state.open = { topic, partition };
  $("story-title").textContent = whole ? topic : `${topic}-${partition}`;
  $("story-body").replaceChildren(...!answer.ok ? [el("p", { textContent: found.error })]
    : whole ? topicBody(found) : partitionBody(found));
  if (!$("story").open) $("story").showModal();
}
function facts(pairs) {
  const told = pairs.filter(([, value]) => value !== null && value !== "");
  return el("dl", {}, ...told.flatMap(([term, value]) => [el("dt", { textContent: term }), el("dd", {}, value)]));
}
function replicaLine(p, broker) {
  const r = p.replica_states[broker];
  const words = [!r.alive ? "gone" : r.shutting_down ? "leaving" : r.in_sync ? "in sync" : "not in sync",
    broker === p.leader ? "leads" : "", broker === p.preferred ? "preferred" : "", r.rack ? `rack ${r.rack}` : ""];
  return el("div", {}, chip(broker, !r.alive), ` ${words.filter(Boolean).join(", ")}`);
}
function storyLine(line) {
  return el("li", {}, el("time", { textContent: `${clock(line.at_ms)}, epoch ${line.epoch ?? "\u2013"}` }),
    el("b", { textContent: line.what }), `: ${line.why}`,
    line.change && el("div", { className: "mono muted", textContent: arrows(line.change) }));
}
function partitionBody(p) {
  const marks = WORDS.filter(([mark]) => p.marks & mark).map(([, word]) => word);
  const nothing = `Nothing has happened to it ${p.stories_since_ms ? `since ${clock(p.stories_since_ms)}` : "yet"}.`;
  return [
    facts([
      ["Leader", p.leader === null ? "none" : chip(p.leader)], ["State", [p.state, ...marks].join(", ")],
      ["Replicas", el("div", {}, ...p.replicas.map(broker => replicaLine(p, broker)))],
      ["Adding", p.adding.join(", ")], ["Removing", p.removing.join(", ")],
      ["Leader epoch", p.leader_epoch], ["Znode version", p.zk_version],
      ["Quarantine", p.quarantine ? p.quarantine.join(": ") : ""],
      ["Deletion", p.deleting ? p.deletion_waits ?? "under way" : ""],
    ]),
    el("h3", { textContent: "Its story, the latest first" }),
    p.story.length ? el("ol", { id: "lines" }, ...p.story.map(storyLine))
      : el("p", { className: "muted", textContent: nothing }),
  ];
}
function topicBody(t) {
  const box = el("div", { className: "cells" }), more = t.partition_count - t.partitions.length;
  box.style.setProperty("--across", "auto-fill");
  for (const p of t.partitions) {
    const cell = { key: `${t.name}-${p.partition}`, node: el("button", {}) };
    paint(cell, p.leader ?? -1, p.marks);
    cell.node.classList.remove("dim");
    cell.node.title = describe(cell);
    cell.node.onclick = () => open(t.name, p.partition);
    box.append(cell.node);
  }
  return [
    facts([["Partitions", number(t.partition_count)], ["Topic id", t.id ?? "none"],
      ["Deletion", t.deleting ? t.deletion_waits ?? "under way" : ""]]),
    box, el("p", { className: "muted", textContent: more ? `and ${number(more)} more` : "" }),
  ];
}
$("close").onclick = () => $("story").close();
$("story").addEventListener("click", event => { if (event.target === $("story")) $("story").close(); });
$("story").addEventListener("close", () => { state.open = null; });

// -- what happens, and what is under way ---------------------------------------------------------

const GRAVE = /gone|stood down|resigned|refused|quarantined|failed|not /;
function add(kind, at, text, took = "", below = null) {
  const list = $("stream");
  list.prepend(el("li", { className: kind }, el("time", { textContent: at ? clock(at) : "" }), text,
    el("span", { className: "took", textContent: took }), below));
  while (list.children.length > STREAM_MAX) list.lastChild.remove();
}
function showStories({ stories, more }) {
  for (const s of stories) {
    const why = s.why && el("span", { className: "muted", textContent: ` \u2013 ${s.why}` });
    const lines = [...s.changes, ...s.more ? [`and ${number(s.more)} more`] : []];
    add(GRAVE.test(s.what) ? "story grave" : "story", s.at_ms,
      el("span", {}, el("b", { textContent: s.what }), s.key ? ` ${s.key}` : "", why), "",
      lines.length ? el("div", { className: "changes" }, ...lines.map(line => el("div", { textContent: arrows(line) }))) : null);
  }
  if (more) add("story", 0, el("span", { className: "muted", textContent: `and ${number(more)} more changes` }));
}
function showHandled({ events, more }) {
  const kinds = new Map();
  for (const e of events) {
    const kind = kinds.get(e.event) ?? { at: e.at_ms, count: 0, took: 0 };
    kinds.set(e.event, { at: e.at_ms, count: kind.count + e.events, took: Math.max(kind.took, e.took_ms) });
    state.slowest = Math.max(state.slowest, e.took_ms);
  }
  for (const [name, { at, count, took }] of kinds)
    add("event", at, el("span", { textContent: count > 1 ? `${name} \u00d7 ${number(count)}` : name }), ms(took));
  if (more) add("event", 0, el("span", { textContent: `and ${number(more)} more events` }));
}
function showWork(all) {
  const chips = ids => ids.flatMap(id => [chip(id, !state.brokers.find(b => b.id === id)?.alive), " "]);
  const name = text => el("span", { className: "mono", textContent: text });
  const part = (title, count, items, line) => !items.length ? [] : [
    el("h3", { textContent: `${title} (${number(count)})` }),
    el("ul", {}, ...items.map(item => el("li", {}, ...line(item)))),
  ];
  const parts = [
    ...part("Reassignments", all.counts.reassigning, all.reassignments, r =>
      [name(r.partition), "  adds ", ...chips(r.adding), " removes ", ...chips(r.removing), ` in sync ${r.isr.join(", ")}`]),
    ...part("Deletions", all.counts.deleting, all.deletions, d =>
      [name(d.topic), d.waits ? ` waits: ${d.waits}` : d.started ? " under way" : " queued"]),
    ...part("Quarantine", all.counts.quarantined, all.quarantine, q =>
      [name(q.path), el("span", { className: "muted", textContent: ` ${q.reason}` })]),
  ];
  const nothing = el("p", { className: "muted", textContent: "No reassignment, no deletion, nothing in quarantine." });
  $("work").replaceChildren(...parts.length ? parts : [nothing]);
}

// -- the server ----------------------------------------------------------------------------------

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}
/** One at a time; if it is asked for meanwhile, once more after that. */
function once(work) {
  let running = false, again = false;
  return async function run() {
    if (running) { again = true; return; }
    running = true;
    try { await work(); } catch { /* the server is gone; what follows its return loads everything */ }
    running = false;
    if (again) { again = false; setTimeout(run, 250); }
  };
}
const loadMap = once(async () => showMap(await get("state?view=map")));
const loadAll = once(async () => {
  const all = await get("state?limit=1");
  showController(all.controller);
  showCounts(all.counts);
  showBrokers(all.brokers);
  showWork(all);
});
function onCells({ cells, stale }) {
  if (stale || state.mode !== "partitions") return loadMap();
  for (const [topic, partition, now] of cells) {
    const cell = state.cells.get(`${topic}-${partition}`);
    if (!cell || !now) return loadMap();
    paint(cell, ...now);
  }
}
function onPulse(p) {
  showController(p.controller);
  showCounts(p.counts);
  showBrokers(p.brokers);
  showVital("queue", p.queue.size);
  showVital("lag", p.lag_ms);
  showVital("busy", state.slowest);
  state.slowest = 0;
  $("under-way").textContent = p.queue.under_way ? `${p.queue.under_way} for ${ms(p.queue.under_way_s * 1000)}` : "";
  const single = state.mode === "partitions";
  if (single ? p.counts.partitions !== state.cells.size : p.census !== state.census) loadMap();
  state.census = p.census;
}
function connected(live) {
  $("link").className = live ? "muted" : "lost";
  $("link").textContent = live ? "live" : "no connection, trying again";
}
let source, heard = 0;
function connect() {
  source?.close();
  source = new EventSource("events");
  heard = Date.now();
  const on = (name, act) => source.addEventListener(name, event => {
    heard = Date.now();
    act(JSON.parse(event.data));
  });
  on("hello", c => { connected(true); showController(c); loadAll().then(loadMap); });
  on("stories", told => {
    showStories(told);
    loadAll();
    if (state.open?.partition !== undefined) open(state.open.topic, state.open.partition);
  });
  on("cells", onCells);
  on("brokers", showBrokers);
  on("handled", showHandled);
  on("pulse", onPulse);
  on("missed", () => { loadAll(); loadMap(); });
  source.onerror = () => connected(false);
}
connect();
setInterval(showSince, 1000);
setInterval(() => { if (Date.now() - heard > 4000) { connected(false); connect(); } }, 1000);
setInterval(() => { if (!document.hidden && $("link").className !== "lost") { loadMap(); loadAll(); } }, 10000);
