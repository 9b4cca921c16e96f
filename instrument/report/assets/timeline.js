'use strict';
// The model: timelines, what they show in a range, and what is alive at an event.

function undelta(list) {
  const out = new Float64Array(list.length);
  let sum = 0;
  for (let i = 0; i < list.length; i++) out[i] = sum += list[i];
  return out;
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
    this.start = undelta(run.blocks.start_deltas);
    this.end = this.start.map((s, i) => s + run.blocks.events[i]);
    this.views = {};
    if (run.columns) {
      for (const c of run.columns) this.views[c.axis] = this.fromColumns(c);
    } else {
      this.fromEvents();
    }
  }

  // fromEvents adds the blocks up.
  fromEvents() {
    const {run} = this, n = run.end - run.first, index = {};
    this.categories.forEach((name, i) => { index[name] = i; });
    const byCategory = this.categories.map(() => new Float64Array(n + 1));
    for (let i = 0; i < this.start.length; i++) {
      const list = byCategory[index[run.labels[run.blocks.label[i]].category]];
      list[Math.max(0, this.start[i] - run.first)] += run.blocks.bytes[i];
      list[this.end[i] - run.first] -= run.blocks.bytes[i];
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
    (run.reserved || []).forEach(([at, bytes], i, all) => {
      reserved.fill(bytes, at - run.first, i + 1 < all.length ? all[i + 1][0] - run.first : n);
    });
    const common = {byCategory, total, reserved, event};
    this.views.event = {...common, x: event, begin: run.first, end: run.end};
    if (run.timed && n > 0) {
      const x = undelta(run.time_deltas).map(ns => ns / 1e9);
      if (x[n - 1] > x[0]) this.views.time = {...common, x, begin: x[0], end: x[n - 1]};
    }
  }

  fromColumns(c) {
    const event = undelta(c.event_deltas), n = event.length;
    const byCategory = this.categories.map(name => c.category_deltas[name] ? undelta(c.category_deltas[name]) : new Float64Array(n));
    const total = new Float64Array(n);
    for (const list of byCategory) for (let k = 0; k < n; k++) total[k] += list[k];
    const x = event.map((_, k) => c.axis === 'event' ? c.begin + Math.ceil(k * (c.end - c.begin) / n) : c.begin + k * (c.end - c.begin) / n);
    return {byCategory, total, reserved: undelta(c.reserved_deltas), event, x, begin: c.begin, end: c.end};
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

  // alive lists the blocks in use after an event, grouped: how is made of c, m
  // and o for category, module and operation, or is "block".
  alive(event, how) {
    const {run} = this, groups = new Map();
    for (let i = 0; i < this.start.length && this.start[i] <= event; i++) {
      if (this.end[i] <= event) continue;
      const label = run.labels[run.blocks.label[i]];
      const group = {bytes: 0, blocks: 0,
        category: how === 'block' || how.includes('c') ? label.category : '',
        module: how === 'block' || how.includes('m') ? label.module || '' : null,
        op: how === 'block' || how.includes('o') ? label.op || '' : null};
      let key = [group.category, group.module, group.op].join('\n');
      if (how === 'block') {
        key = i;
        group.addr = run.blocks.addr[i];
        group.since = this.start[i];
        group.caller = label.caller || '';
      }
      if (!groups.has(key)) groups.set(key, group);
      const g = groups.get(key);
      g.bytes += run.blocks.bytes[i];
      g.blocks++;
    }
    return [...groups.values()];
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
