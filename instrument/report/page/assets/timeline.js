'use strict';
// The model: timelines, what they show in a range, and what is alive at an event.

// unpack reads a list of integers: base64 of a varint for each, which is its
// difference from the one before in zigzag order. Numbers are multiples of unit.
function unpack(text, unit = 1) {
  const raw = atob(text), out = new Float64Array(raw.length);
  let n = 0, sum = 0, z = 0, scale = 1;
  for (let i = 0; i < raw.length; i++) {
    const byte = raw.charCodeAt(i);
    z += (byte & 127) * scale;
    scale *= 128;
    if (byte > 127) continue;
    sum += z % 2 ? -(z + 1) / 2 : z / 2;
    out[n++] = sum * unit;
    z = 0;
    scale = 1;
  }
  return out.slice(0, n);
}

// lastAtMost is the last index i with list[i] <= x, or -1.
function lastAtMost(list, x) {
  let lo = 0, hi = list.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (list[mid] <= x) lo = mid + 1; else hi = mid;
  }
  return lo - 1;
}

// A Timeline is a run's. Its points are single events, or columns with their
// true maxima where the file does not hold all events.
class Timeline {
  constructor(run, categories) {
    this.run = run;
    this.categories = categories;
    this.unpackLabels();
    this.unpackBlocks();
    this.segments = new Segments(run);
    this.views = {};
    if (run.columns) {
      for (const c of run.columns) this.views[c.axis] = this.fromColumns(c);
    } else {
      this.fromEvents();
    }
  }

  unpackLabels() {
    const {run} = this, l = run.labels, text = list => Array.from(unpack(list), i => run.strings[i]);
    this.stacks = {parent: unpack(run.stacks.parent), name: text(run.stacks.name)};
    const category = unpack(l.category), module = text(l.module), op = text(l.op), line = text(l.line), stack = unpack(l.stack);
    this.labels = Array.from(category, (c, i) => ({category: this.categories[c], rank: c, module: module[i], op: op[i], line: line[i], stack: stack[i]}));
  }

  unpackBlocks() {
    const b = this.run.blocks, lives = unpack(b.events);
    this.start = unpack(b.start);
    this.end = this.start.map((s, i) => s + lives[i]);
    this.bytes = unpack(b.bytes, b.unit);
    this.addr = unpack(b.addr, b.unit);
    this.label = Int32Array.from(unpack(b.label));
  }

  // frames are a stack's, the outermost first.
  frames(stack) {
    const list = [];
    for (let n = stack; n > 0; n = this.stacks.parent[n - 1]) list.push(this.stacks.name[n - 1]);
    return list.reverse();
  }

  // fromEvents adds the blocks up.
  fromEvents() {
    const {run} = this, n = run.end - run.first;
    const byCategory = this.categories.map(() => new Float64Array(n + 1));
    for (let i = 0; i < this.start.length; i++) {
      const list = byCategory[this.labels[this.label[i]].rank];
      list[Math.max(0, this.start[i] - run.first)] += this.bytes[i];
      list[this.end[i] - run.first] -= this.bytes[i];
    }
    const total = new Float64Array(n), event = new Float64Array(n), reserved = new Float64Array(n);
    for (const list of byCategory) {
      let sum = 0;
      for (let k = 0; k < n; k++) {
        list[k] = sum += list[k];
        total[k] += sum;
      }
    }
    for (let k = 0; k < n; k++) event[k] = run.first + k;
    const at = unpack(run.reserved_at), bytes = unpack(run.reserved);
    at.forEach((from, i) => reserved.fill(bytes[i], from - run.first, i + 1 < at.length ? at[i + 1] - run.first : n));
    const common = {byCategory, total, reserved, event};
    this.views.event = {...common, x: event, begin: run.first, end: run.end};
    if (run.timed && n > 0) {
      const x = unpack(run.times).map(ns => ns / 1e9);
      if (x[n - 1] > x[0]) this.views.time = {...common, x, begin: x[0], end: x[n - 1]};
    }
  }

  fromColumns(c) {
    const event = unpack(c.event), n = event.length;
    const byCategory = this.categories.map(name => c.categories[name] ? unpack(c.categories[name]) : new Float64Array(n));
    const total = new Float64Array(n);
    for (const list of byCategory) for (let k = 0; k < n; k++) total[k] += list[k];
    const x = event.map((_, k) => c.axis === 'event' ? c.begin + Math.ceil(k * (c.end - c.begin) / n) : c.begin + k * (c.end - c.begin) / n);
    return {byCategory, total, reserved: unpack(c.reserved), event, x, begin: c.begin, end: c.end};
  }

  // view is the points along an axis, or along events if nothing was timed.
  view(axis) { return this.views[axis] || this.views.event; }

  // columns picks at most about n of a view's points for a range. Of points
  // that fall together it takes that of the greatest allocated bytes; reserved
  // is their greatest. It returns the columns' beginnings, points and reserved.
  columns(view, lo, hi, n) {
    const {x, total, reserved} = view;
    const from = Math.max(0, lastAtMost(x, lo)), to = lastAtMost(x, hi) + 1;
    const begin = [], point = [], res = [];
    const push = (b, p, r) => { begin.push(b); point.push(p); res.push(r); };
    if (to - from <= n) {
      for (let k = from; k < to; k++) push(Math.max(x[k], k === from && x[k] < lo ? lo : x[k]), k, reserved[k]);
      return {begin, point, res};
    }
    const width = (hi - lo) / n, carries = x !== view.event;
    let k = from, carry = -1;
    for (let b = 0; b < n; b++) {
      const left = lo + b * width, right = b === n - 1 ? Infinity : left + width;
      let best = -1, most = 0;
      if (carries && carry >= 0) { best = carry; most = reserved[carry]; }
      const first = k;
      while (k < to && x[k] < right) {
        if (best < 0 || total[k] > total[best]) best = k;
        most = Math.max(most, reserved[k]);
        carry = k++;
      }
      if (first === k && (best < 0 || point.length && point[point.length - 1] === best && res[res.length - 1] === most)) continue;
      push(left, best, most);
    }
    return {begin, point, res};
  }

  // pointOf is the point that holds an event along a view.
  pointOf(view, event) {
    if (!this.run.columns) return Math.min(Math.max(event - this.run.first, 0), view.event.length - 1);
    const k = lastAtMost(view.event, event);
    // Of two neighbours the one whose maximum is nearer.
    if (k < 0) return 0;
    if (k + 1 < view.event.length && view.event[k + 1] - event < event - view.event[k]) return k + 1;
    return k;
  }

  // live lists the blocks in use after an event.
  live(event) {
    if (this.liveAt === event) return this.liveList;
    const list = [];
    for (let i = 0; i < this.start.length && this.start[i] <= event; i++) if (this.end[i] > event) list.push(i);
    this.liveAt = event;
    return this.liveList = list;
  }

  // alive lists the blocks in use after an event, grouped: how is made of c, m,
  // o and l for category, module, operation and line, or is "block".
  alive(event, how) {
    const groups = new Map(), all = how === 'block', by = letter => all || how.includes(letter);
    for (const i of this.live(event)) {
      const label = this.labels[this.label[i]];
      const group = {bytes: 0, blocks: 0, category: by('c') ? label.category : '', module: by('m') ? label.module : null,
        op: by('o') ? label.op : null, line: by('l') ? label.line : null};
      let key = [group.category, group.module, group.op, group.line].join('\n');
      if (all) {
        key = i;
        group.addr = this.addr[i];
        group.since = this.start[i];
      }
      if (!groups.has(key)) groups.set(key, group);
      const g = groups.get(key);
      g.bytes += this.bytes[i];
      g.blocks++;
    }
    return [...groups.values()];
  }

  // missing is the bytes by category of the blocks in use after an event that
  // this file leaves out; null where that is not known.
  missing(view, event) {
    if (!this.run.left_out.blocks) return null;
    const p = this.pointOf(view, event);
    if (view.event[p] !== event) return null;
    const bytes = view.byCategory.map(list => list[p]);
    for (const i of this.live(event)) bytes[this.labels[this.label[i]].rank] -= this.bytes[i];
    return bytes;
  }

  // where names the step and the phases that an event is in.
  where(event) {
    const within = s => s.first <= event && event < s.end;
    const step = this.run.steps.find(within);
    const phases = this.run.phases.filter(within).sort((a, b) => a.depth - b.depth).map(p => p.name + (p.failed ? ' (failed)' : ''));
    if (phases.length && step) return phases.join(' › ') + ' of step ' + step.step;
    if (phases.length) return phases.join(' › ');
    return step ? 'step ' + step.step : 'outside of any phase';
  }
}
