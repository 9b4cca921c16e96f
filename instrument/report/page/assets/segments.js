// The segment map: what the allocator has reserved, and the blocks and holes
// in it at the cursor.

// Segments are a run's ranges of reserved memory.
class Segments {
  constructor(run) {
    const s = run.segments, lives = unpack(s.events);
    this.start = unpack(s.start);
    this.end = this.start.map((at, i) => at + lives[i]);
    this.bytes = unpack(s.bytes, s.unit);
    this.addr = unpack(s.addr, s.unit);
    this.stream = unpack(s.stream);
    this.pool = Array.from(unpack(s.pool), i => run.strings[i]);
    this.expandable = unpack(s.expandable);
  }

  // at lists the segments after an event by address; mapped ranges that touch
  // are one segment.
  at(event) {
    const list = [];
    for (let i = 0; i < this.start.length && this.start[i] <= event; i++) {
      if (this.end[i] <= event) continue;
      list.push({addr: this.addr[i], bytes: this.bytes[i], stream: this.stream[i], pool: this.pool[i], expandable: this.expandable[i] === 1,
        blocks: [], holes: [], live: 0});
    }
    list.sort((a, b) => a.addr - b.addr);
    const joined = [];
    for (const s of list) {
      const last = joined[joined.length - 1];
      if (last && s.expandable && last.expandable && last.addr + last.bytes === s.addr && last.stream === s.stream) last.bytes += s.bytes;
      else joined.push(s);
    }
    return joined;
  }

  // map puts the blocks in use after an event into the segments and finds the
  // holes between them. Blocks in no known segment are counted in lost.
  map(timeline, event) {
    const list = this.at(event), live = timeline.live(event).slice().sort((a, b) => timeline.addr[a] - timeline.addr[b]);
    let next = 0, lost = 0;
    for (const s of list) {
      let at = s.addr;
      const hole = to => { if (to > at) s.holes.push({addr: at, bytes: to - at}); };
      for (; next < live.length && timeline.addr[live[next]] < s.addr + s.bytes; next++) {
        const i = live[next];
        if (timeline.addr[i] < at) { lost++; continue; }
        hole(timeline.addr[i]);
        s.blocks.push(i);
        s.live += timeline.bytes[i];
        at = timeline.addr[i] + timeline.bytes[i];
      }
      hole(s.addr + s.bytes);
      s.largest = s.holes.reduce((most, h) => Math.max(most, h.bytes), 0);
      s.free = s.bytes - s.live;
      // Memory that stays reserved for the sake of little.
      s.pinned = s.blocks.length > 0 && s.free >= s.bytes / 2 && !s.expandable;
    }
    return {list, lost: lost + live.length - next};
  }
}

const tapeRow = 22, tapeGap = 5, pinnedRows = 8, blockRows = 60;

// tape lays segments out in rows, one after the other, as wide as they have
// bytes. It returns the pieces with the rows' number.
function tape(list, width, rows) {
  const total = list.reduce((sum, s) => sum + s.bytes, 0), gap = list.length > 1500 ? 1 : 3, least = list.length > 1500 ? 1 : 3;
  const perPixel = total / Math.max(width, rows * width - list.length * (gap + least));
  const pieces = [];
  let x = 0, row = 0;
  for (const s of list) {
    let rest = Math.max(least, s.bytes / perPixel), from = 0;
    while (rest > 0) {
      if (width - x < least) { x = 0; row++; }
      const w = Math.min(rest, width - x), bytes = rest <= w ? s.bytes - from : Math.min(w * perPixel, s.bytes - from);
      pieces.push({segment: s, x, row, w, from, bytes});
      from += bytes;
      rest -= w;
      x += w;
    }
    x += gap;
  }
  return {pieces, rows: row + 1};
}

class SegmentMap {
  constructor() {
    this.by = id => document.getElementById('segments-' + id);
    this.box = this.by('map');
    this.box.addEventListener('mousemove', e => this.hover(e, this.whole, this.box));
    this.box.addEventListener('mouseleave', () => { this.by('here').textContent = ''; });
    this.box.addEventListener('click', e => {
      const hit = this.hit(e, this.whole, this.box);
      if (hit) this.select(hit.piece.segment);
    });
    this.box.addEventListener('keydown', e => this.key(e));
    this.by('detail').addEventListener('mousemove', e => this.hover(e, this.part, this.by('detail')));
    new ResizeObserver(() => this.later()).observe(this.box);
  }

  later() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => { this.asked = 0; this.refresh(); });
  }

  show(chart) {
    if (this.chart !== chart) this.addr = undefined;
    this.chart = chart;
    this.later();
  }

  select(segment) {
    this.addr = segment ? segment.addr : undefined;
    this.refresh();
  }

  refresh() {
    const {chart} = this;
    if (!chart) return;
    const {timeline} = chart;
    this.map = timeline.segments.map(timeline, chart.event);
    const {list} = this.map;
    this.selected = list.find(s => s.addr === this.addr);
    // The largest first, the small pool last.
    this.order = list.slice().sort((a, b) => a.stream - b.stream || (a.pool < b.pool ? -1 : a.pool > b.pool ? 1 : 0) || b.bytes - a.bytes || a.addr - b.addr);
    this.summary();
    const width = this.box.clientWidth;
    this.whole = tape(this.order, width, Math.min(14, Math.round(1.5 * Math.sqrt(list.length) - 0.25)));
    this.paint(this.by('canvas'), this.whole, width);
    this.describe();
    this.pinned();
  }

  summary() {
    const {list, lost} = this.map, {timeline, event, view} = this.chart, sum = of => list.reduce((n, s) => n + of(s), 0);
    const holes = sum(s => s.holes.length), empty = list.filter(s => !s.blocks.length), largest = list.reduce((n, s) => Math.max(n, s.largest), 0);
    const size = bytes => bytes < 1024 ? sized(bytes) : `${sized(bytes)} (${exact(bytes)}\u00a0bytes)`;
    let text = `${timeline.run.name}, after event ${exact(event)}: ${counted(list.length, 'segment')} of ${size(sum(s => s.bytes))}; ` +
      `alive ${size(sum(s => s.live))} in ${counted(sum(s => s.blocks.length), 'block')}; free ${size(sum(s => s.free))} in ${counted(holes, 'hole')}, the largest of ${size(largest)}`;
    if (empty.length) text += `; ${counted(empty.length, 'empty segment')} of ${size(empty.reduce((n, s) => n + s.bytes, 0))} kept as cache`;
    this.by('at').textContent = text + '.';
    const notes = [], missing = timeline.missing(view, event);
    if (missing) {
      const bytes = missing.reduce((a, b) => a + b, 0);
      if (bytes > 0) notes.push(`${size(bytes)} that are drawn as free are in small blocks that this file leaves out.`);
    } else if (timeline.run.left_out.blocks) {
      notes.push('Some of what is drawn as free may be small blocks that this file leaves out.');
    }
    if (timeline.run.left_out.segments) notes.push(`This file leaves out ${counted(timeline.run.left_out.segments, 'segment')}, small or short-lived.`);
    if (lost) notes.push(`In no known segment: ${counted(lost, 'block')}.`);
    this.by('note').textContent = notes.join(' ');
    this.by('note').hidden = !notes.length;
  }

  // paint draws a tape on a canvas.
  paint(canvas, {pieces, rows}, width) {
    const {timeline} = this.chart, ratio = devicePixelRatio || 1, height = rows * (tapeRow + tapeGap);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + 'px';
    const ctx = canvas.getContext('2d'), free = css('--free'), line = css('--strip2'), fail = css('--fail'), cursor = css('--cursor');
    const colors = timeline.categories.map(name => css('--category-' + name));
    ctx.scale(ratio, ratio);
    for (const p of pieces) {
      const {segment: s} = p, y = p.row * (tapeRow + tapeGap), perByte = p.w / p.bytes;
      ctx.fillStyle = free;
      ctx.fillRect(p.x, y, p.w, tapeRow);
      for (const i of s.blocks) {
        const lo = Math.max(timeline.addr[i] - s.addr - p.from, 0), hi = Math.min(timeline.addr[i] + timeline.bytes[i] - s.addr - p.from, p.bytes);
        if (hi <= lo) continue;
        ctx.fillStyle = colors[timeline.labels[timeline.label[i]].rank];
        const w = (hi - lo) * perByte;
        ctx.fillRect(p.x + lo * perByte, y, w > 3 ? w - 0.6 : w, tapeRow);
      }
      ctx.lineWidth = s === this.selected ? 2.5 : s.pinned ? 1.5 : 1;
      ctx.strokeStyle = s === this.selected ? cursor : s.pinned ? fail : line;
      if (p.w > 3) ctx.strokeRect(p.x + 0.5, y + 0.5, p.w - 1, tapeRow - 1);
      else if (s === this.selected || s.pinned) ctx.fillStyle = ctx.strokeStyle, ctx.fillRect(p.x, y, p.w, 3);
    }
  }

  hit(e, drawn, box) {
    if (!drawn) return null;
    const r = box.getBoundingClientRect(), x = e.clientX - r.left, row = Math.floor((e.clientY - r.top) / (tapeRow + tapeGap));
    const piece = drawn.pieces.find(p => p.row === row && p.x <= x && x < p.x + p.w + 1);
    return piece && {piece, addr: piece.segment.addr + piece.from + Math.min((x - piece.x) / piece.w, 1) * piece.bytes};
  }

  hover(e, drawn, box) {
    const hit = this.hit(e, drawn, box);
    if (!hit) { this.by('here').textContent = ''; return; }
    const {segment: s} = hit.piece, {timeline} = this.chart;
    const block = s.blocks.find(i => timeline.addr[i] <= hit.addr && hit.addr < timeline.addr[i] + timeline.bytes[i]);
    const hole = block === undefined && s.holes.find(h => h.addr <= hit.addr && hit.addr < h.addr + h.bytes);
    this.by('here').textContent = (block !== undefined ? this.blockText(block) : hole ? `free, ${sized(hole.bytes)}` : '') + ' · ' + this.segmentText(s);
  }

  blockText(i) {
    const {timeline} = this.chart, l = timeline.labels[timeline.label[i]];
    return [sized(timeline.bytes[i]), l.category, l.module, l.op, l.line].filter(Boolean).join(' · ');
  }

  segmentText(s) {
    return `segment at 0x${s.addr.toString(16)}, ${s.pool}${s.expandable ? ', expandable' : ''}${s.stream ? ', stream ' + s.stream : ''}: ${exact(s.bytes)} bytes, ` +
      `${exact(s.live)} alive in ${counted(s.blocks.length, 'block')}, ${exact(s.free)} free in ${counted(s.holes.length, 'hole')}`;
  }

  // describe shows the chosen segment alone.
  describe() {
    const s = this.selected, {timeline} = this.chart;
    this.box.setAttribute('aria-valuemin', 0);
    this.box.setAttribute('aria-valuemax', this.order.length);
    this.box.setAttribute('aria-valuenow', s ? this.order.indexOf(s) + 1 : 0);
    this.box.setAttribute('aria-valuetext', s ? this.segmentText(s) : 'no segment chosen');
    this.by('one').hidden = !s;
    if (!s) return;
    this.by('title').textContent = this.segmentText(s);
    const width = this.by('detail').clientWidth;
    this.part = tape([s], width, 3);
    this.paint(this.by('detail'), this.part, width);
    const rows = [...s.blocks.map(i => ({addr: timeline.addr[i], bytes: timeline.bytes[i], i})), ...s.holes].sort((a, b) => b.bytes - a.bytes).slice(0, blockRows).sort((a, b) => a.addr - b.addr);
    this.by('list').tBodies[0].replaceChildren(...rows.map(r => {
      const l = r.i === undefined ? null : timeline.labels[timeline.label[r.i]];
      return element('tr', {}, element('td', {class: 'n'}, '+' + exact(r.addr - s.addr)), element('td', {class: 'n'}, sized(r.bytes), element('small', {}, exact(r.bytes))),
        element('td', {class: 'category'}, ...(l ? [element('i', {color: l.category}), l.category] : ['free'])),
        element('td', {}, ...breakable(l ? [l.module, l.op, l.line].filter(Boolean).join(' · ') : '')));
    }));
    const count = s.blocks.length + s.holes.length;
    this.by('more').textContent = count > rows.length ? `the ${exact(rows.length)} largest of ${exact(count)} blocks and holes` : '';
  }

  // pinned lists the segments that are mostly free and cannot be given back.
  pinned() {
    const {timeline} = this.chart, all = this.order.filter(s => s.pinned).sort((a, b) => b.free - a.free), sum = of => all.reduce((n, s) => n + of(s), 0);
    this.by('pinned').hidden = !all.length;
    if (!all.length) return;
    this.by('pinned-title').textContent = `${counted(all.length, 'segment')} at least half free: ${sized(sum(s => s.free))} stay reserved for ${sized(sum(s => s.live))}`;
    this.by('pinned-list').tBodies[0].replaceChildren(...all.slice(0, pinnedRows).map(s => {
      const largest = s.blocks.reduce((a, b) => timeline.bytes[b] > timeline.bytes[a] ? b : a);
      return element('tr', {}, element('td', {class: 'n'}, element('button', {type: 'button', onclick: () => this.select(s)}, sized(s.bytes))),
        element('td', {class: 'n'}, sized(s.free)), element('td', {class: 'n'}, sized(s.live)), element('td', {class: 'n'}, exact(s.blocks.length)),
        element('td', {}, ...breakable(this.blockText(largest))));
    }));
  }

  key(e) {
    if (e.altKey || e.ctrlKey || e.metaKey || !this.order || !this.order.length) return;
    const at = this.order.indexOf(this.selected), last = this.order.length - 1;
    const to = {ArrowRight: Math.min(at + 1, last), ArrowDown: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), ArrowUp: Math.max(at - 1, 0), Home: 0, End: last}[e.key];
    if (to !== undefined) this.select(this.order[to]);
    else if (e.key === 'Escape') this.select(null);
    else return;
    e.preventDefault();
  }
}
