// The drawing of a timeline with uPlot.

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const strip = 17, markRows = 2, markRow = 14, peakRoom = 1.1;

class Chart {
  // options: unit, unitBytes, categories, onSelect(event, point), onRange(lo, hi)
  constructor(root, timeline, options) {
    Object.assign(this, options, {root, timeline});
    this.box = root.querySelector('.chart');
    this.readout = root.querySelector('.readout');
    this.here = document.createElement('div');
    this.here.className = 'here';
    this.depths = Math.min(2, 1 + Math.max(0, ...timeline.run.phases.map(p => p.depth)));
    this.head = strip * ((timeline.run.phases.length ? this.depths : 0) + (timeline.run.steps.length ? 1 : 0)) +
      (timeline.run.marks.length ? markRows * markRow : 0) + 4;
    this.used = this.categories.filter((_, i) => timeline.view('event').byCategory[i].some(v => v));
    this.setAxis('event');
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.box);
  }

  setAxis(axis) {
    this.view = this.timeline.view(axis);
    this.axis = this.timeline.views[axis] ? axis : 'event';
    this.lo = this.view.begin;
    this.hi = this.view.end;
    if (this.plot) this.plot.destroy();
    this.plot = null;
    this.resize();
  }

  // width is the chart's in pixels.
  get width() { return Math.max(240, this.box.clientWidth); }

  resize() {
    const size = {width: this.width, height: this.plotHeight + this.head};
    if (!this.plot) this.make(size);
    else if (this.plot.width !== size.width) { this.plot.setSize(size); this.draw(); }
  }

  make(size) {
    const area = {width: 0, points: {show: false}, paths: uPlot.paths.stepped({align: 1})};
    const axis = {stroke: () => css('--faint'), grid: {stroke: () => css('--grid'), width: 1}, ticks: {stroke: () => css('--rule'), width: 1, size: 5},
      font: '12px system-ui, sans-serif', labelFont: '12px system-ui, sans-serif', labelSize: 18};
    this.plot = new uPlot({
      ...size, padding: [this.head, 12, 0, 0], legend: {show: false},
      scales: {x: {time: false, range: () => [this.lo, this.hi]}, y: {range: () => [0, this.top * peakRoom || 1]}},
      series: [{},
        ...this.used.slice().reverse().map(name => ({...area, fill: () => css('--category-' + name)})),
        {...area, width: 1.6, stroke: () => css('--ink')}],
      axes: [
        {...axis, size: 32, space: 90, label: this.axis === 'time' ? 'time, s' : 'events, in order', incrs: this.axis === 'time' ? undefined : uPlotIntegers},
        {...axis, size: 54, label: this.unit}],
      cursor: {y: false, points: {show: false}, drag: {x: true, y: false, setScale: false}, bind: {dblclick: () => () => { this.whole(); return null; }}},
      hooks: {drawClear: [u => this.background(u)], draw: [u => { this.foreground(u); this.place(); }], setSelect: [u => this.selected(u)], setCursor: [u => this.hover(u)]},
    }, this.data(size.width), this.box);
    this.plot.over.append(this.here);
    this.place();
    let downX = 0;
    this.plot.over.addEventListener('mousedown', e => { downX = e.clientX; });
    this.plot.over.addEventListener('click', e => {
      if (Math.abs(e.clientX - downX) > 3) return;
      const column = this.columnAt(this.plot.posToVal(e.clientX - this.plot.over.getBoundingClientRect().left, 'x'));
      if (column >= 0) this.onSelect(this.view.event[this.shown.point[column]]);
    });
    this.plot.over.addEventListener('wheel', e => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      this.zoom(e.deltaY < 0 ? 0.8 : 1.25, this.plot.posToVal(e.clientX - this.plot.over.getBoundingClientRect().left, 'x'));
    }, {passive: false});
  }

  // data is the columns of the visible range as uPlot takes them.
  data(width) {
    const n = Math.max(100, Math.round((width - 80) * Math.min(2, devicePixelRatio || 1)));
    const s = this.shown = this.timeline.columns(this.view, this.lo, this.hi, n);
    const end = Math.min(this.hi, this.view.end), more = s.begin.length > 0 && end > s.begin[s.begin.length - 1];
    const close = list => { if (more) list.push(list[list.length - 1]); return list; };
    const x = s.begin.slice();
    if (more) x.push(end);
    const sums = new Float64Array(s.point.length), stacked = [];
    for (const name of this.used) {
      const list = this.view.byCategory[this.categories.indexOf(name)];
      stacked.unshift(close(s.point.map((p, i) => (sums[i] += list[p]) / this.unitBytes)));
    }
    return [x, ...stacked, close(s.res.map(r => r / this.unitBytes))];
  }

  draw() {
    if (!this.plot) return;
    this.plot.setData(this.data(this.plot.width));
    this.place();
  }

  setRange(lo, hi) {
    const {begin, end} = this.full || this.view;
    const least = this.axis === 'event' ? 4 : (end - begin) / 1e6;
    const width = Math.min(Math.max(hi - lo, least), end - begin);
    lo = Math.min(Math.max(lo + (hi - lo - width) / 2, begin), end - width);
    this.lo = lo;
    this.hi = lo + width;
    this.draw();
  }

  whole() { const {begin, end} = this.full || this.view; this.onRange(begin, end); }
  zoom(factor, at = this.cursorX()) {
    if (!(at >= this.lo && at <= this.hi)) at = (this.lo + this.hi) / 2;
    this.onRange(at - (at - this.lo) * factor, at + (this.hi - at) * factor);
  }
  pan(part) { const d = (this.hi - this.lo) * part; this.onRange(this.lo + d, this.hi + d); }

  columnAt(x) { return x > this.view.end ? -1 : lastAtMost(this.shown.begin, x); }

  selected(u) {
    if (u.select.width > 4) {
      const lo = u.posToVal(u.select.left, 'x'), hi = u.posToVal(u.select.left + u.select.width, 'x');
      u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
      this.onRange(lo, hi);
    }
  }

  hover(u) {
    const column = u.cursor.left >= 0 ? this.columnAt(u.posToVal(u.cursor.left, 'x')) : -1;
    const p = column < 0 ? -1 : this.shown.point[column];
    this.readout.textContent = p < 0 ? '' : `event ${this.view.event[p].toLocaleString('en')}: ` +
      `${amount(this.view.total[p], this)} allocated, ${amount(this.shown.res[column], this)} reserved · ${this.timeline.where(this.view.event[p])}`;
  }

  // The cursor.

  get point() { return this.timeline.pointOf(this.view, this.event); }
  cursorX() { return this.xOf(this.event); }

  // xOf is the middle of an event along the order of events, or its time.
  xOf(event) {
    const p = this.timeline.pointOf(this.view, event);
    if (this.axis === 'time') return this.view.x[p];
    return event + 0.5;
  }

  // select puts the cursor on an event, in sight.
  select(event) {
    this.event = event;
    const x = this.cursorX();
    if (x < this.lo || x > this.hi) {
      const half = (this.hi - this.lo) / 2;
      this.onRange(x - half, x + half);
    }
    this.place();
  }

  place() {
    if (this.event === undefined || !this.plot) return;
    const x = this.cursorX();
    this.here.hidden = x < this.lo || x > this.hi;
    this.here.style.left = this.plot.valToPos(x, 'x') - 1 + 'px';
    const p = this.point, {run} = this.timeline;
    this.box.setAttribute('aria-valuemin', run.first);
    this.box.setAttribute('aria-valuemax', Math.max(run.first, run.end - 1));
    this.box.setAttribute('aria-valuenow', this.event);
    this.box.setAttribute('aria-valuetext', `event ${this.event}: ${this.view.total[p]} bytes allocated, ${this.view.reserved[p]} bytes reserved, ${this.timeline.where(this.event)}`);
  }

  // moveColumn goes to the maximum of a neighbouring column.
  moveColumn(by) {
    const {point} = this.shown, {event} = this.view;
    let i = lastAtMost(point, this.point);
    if (i < 0) i = 0;
    else if (by < 0 && point[i] < this.point) by++;
    const next = i + by;
    if (next >= 0 && next < point.length && event[point[next]] !== this.event) return this.onSelect(event[point[next]]);
    this.moveEvent(by);
  }

  moveEvent(by) {
    const p = Math.min(Math.max(this.point + Math.sign(by || 1), 0), this.view.event.length - 1);
    this.onSelect(this.view.event[p]);
  }

  movePhase(by) {
    const {run} = this.timeline, starts = [...new Set([run.first, ...run.phases.map(p => p.first), run.end - 1])].filter(e => e >= run.first && e < run.end).sort((a, b) => a - b);
    const next = by > 0 ? starts.find(s => s > this.event) : starts.findLast(s => s < this.event);
    if (next !== undefined) this.onSelect(next);
  }

  listen() {
    this.box.addEventListener('keydown', e => {
      if (e.altKey || e.ctrlKey || e.metaKey) return;
      const {run} = this.timeline;
      const keys = {
        ArrowLeft: () => e.shiftKey ? this.moveEvent(-1) : this.moveColumn(-1),
        ArrowRight: () => e.shiftKey ? this.moveEvent(1) : this.moveColumn(1),
        ArrowUp: () => this.moveColumn(1), ArrowDown: () => this.moveColumn(-1),
        PageUp: () => this.movePhase(-1), PageDown: () => this.movePhase(1),
        Home: () => this.onSelect(run.first), End: () => this.onSelect(run.end - 1),
        p: () => this.peak(), P: () => this.peak(),
        '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2), 0: () => this.whole(),
      };
      if (!keys[e.key] || run.end === run.first) return;
      e.preventDefault();
      keys[e.key]();
    });
    this.box.addEventListener('focus', () => { if (this.event !== undefined) this.onSelect(this.event); });
  }

  // peak goes to the allocated peak, if the file has it.
  peak() { if (this.hasPeak()) this.onSelect(this.timeline.run.peak.event); }
  hasPeak() { const {run} = this.timeline; return run.peak && run.peak.event >= run.first; }
}

// uPlotIntegers are the distances that ticks of an axis of events may have.
const uPlotIntegers = Array.from({length: 13}, (_, i) => [1, 2, 5].map(m => m * 10 ** i)).flat();

// amount is bytes in a unit.
function amount(bytes, {unit, unitBytes}) {
  const text = (bytes / unitBytes).toFixed(3);
  return (text === '0.000' && bytes ? '<0.001' : text) + ' ' + unit;
}
const exact = n => n.toLocaleString('en');

// sized is bytes in the unit that suits them.
function sized(bytes) {
  for (const [unit, unitBytes] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (Math.abs(bytes) >= unitBytes) return (bytes / unitBytes).toFixed(unit === 'GiB' ? 3 : 1) + '\u00a0' + unit;
  }
  return exact(bytes) + '\u00a0bytes';
}

// counted is a number of things: 1 hole, 2 holes.
const counted = (n, noun) => exact(n) + ' ' + noun + (n === 1 ? '' : 's');
