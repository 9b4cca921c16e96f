// The flame graph of what is alive at the cursor: the outermost on top, each
// row divided among what it called or holds, widths as bytes.

const frameRow = 21, frameLeast = 3;
const leftOutName = '(small blocks, merged)';

// flamePaths are the ways from the outside in that a label can take.
const flamePaths = {
  module: label => [...(label.module ? label.module.split('.') : ['(no module)']), label.op || '(no operation)'],
  stack: (label, timeline) => label.stack ? timeline.frames(label.stack) : ['(no stack)', ...(label.op ? [label.op] : [])],
  line: label => [label.line || '(no line)', label.op || '(no operation)'],
};

// frameText is what of names has room: of a chain the innermost, of a path its
// end.
function frameText(names, pixels) {
  const fits = text => text.length * 6.4 <= pixels;
  let text = names.join(' › ');
  if (fits(text)) return text;
  text = (names.length > 1 ? '… › ' : '') + names[names.length - 1];
  return fits(text) ? text : names[names.length - 1].replace(/^[^\s]*\//, '');
}

class FlameNode {
  constructor(name, outer, categories) {
    this.name = name;
    this.outer = outer;
    this.bytes = this.blocks = 0;
    this.byCategory = new Float64Array(categories);
    this.inner = new Map();
  }

  add(rank, bytes, blocks) {
    this.bytes += bytes;
    this.blocks += blocks;
    this.byCategory[rank] += bytes;
  }

  get path() { return this.outer ? [...this.outer.path, this.name] : []; }
  get sorted() { return [...this.inner.values()].sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1)); }
}

// flameTree is the tree of what is alive; by is a name of flamePaths, with
// "category " before it to divide by category first.
function flameTree(timeline, view, event, by) {
  const n = timeline.categories.length, root = new FlameNode('all', null, n);
  const first = by.startsWith('category '), path = flamePaths[by.replace('category ', '')];
  const bytes = new Float64Array(timeline.labels.length), blocks = new Float64Array(timeline.labels.length);
  for (const i of timeline.live(event)) {
    bytes[timeline.label[i]] += timeline.bytes[i];
    blocks[timeline.label[i]]++;
  }
  const add = (names, rank, size, count) => {
    let node = root;
    node.add(rank, size, count);
    for (const name of names) {
      if (!node.inner.has(name)) node.inner.set(name, new FlameNode(name, node, n));
      node = node.inner.get(name);
      node.add(rank, size, count);
    }
  };
  timeline.labels.forEach((label, i) => {
    if (blocks[i]) add([...(first ? [label.category] : []), ...path(label, timeline)], label.rank, bytes[i], blocks[i]);
  });
  (timeline.missing(view, event) || []).forEach((size, rank) => {
    if (size > 0) add([...(first ? [timeline.categories[rank]] : []), leftOutName], rank, size, 0);
  });
  return root;
}

class Flame {
  constructor(data) {
    this.categories = data.categories;
    this.by = id => document.getElementById('flame-' + id);
    this.path = [];
    this.by('by').onchange = () => { this.path = []; this.refresh(); };
    this.by('find').oninput = () => this.refresh();
    this.by('whole').onclick = () => this.zoom([]);
    this.by('graph').addEventListener('keydown', e => this.key(e));
    new ResizeObserver(() => this.later()).observe(this.by('graph'));
  }

  // later draws once before the next frame, however often it is asked for.
  later() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => { this.asked = 0; this.refresh(); });
  }

  show(chart) {
    if (this.chart !== chart) {
      this.path = [];
      this.chart = chart;
      const {labels, run} = chart.timeline;
      const has = {stack: labels.some(l => l.stack), module: labels.some(l => l.module), line: labels.some(l => l.line)};
      const old = this.by('by').value, options = [['module', 'module path'], ['stack', 'stack'], ['line', 'line, operation']]
        .filter(([by]) => has[by]).flatMap(([by, text]) => [[by, text], ['category ' + by, 'category, ' + text]]);
      if (!options.length) options.push(['line', 'operation']);
      this.by('by').replaceChildren(...options.map(([by, text]) => element('option', {value: by}, text)));
      this.by('by').value = [old, run.flame_by, options[0][0]].find(by => options.some(o => o[0] === by));
    }
    this.later();
  }

  zoom(path) {
    this.path = path;
    this.refresh();
    const at = this.by('graph').querySelector('.zoomed');
    if (at) at.focus();
  }

  refresh() {
    const {chart} = this, graph = this.by('graph');
    if (!chart) return;
    const {timeline} = chart;
    this.root = flameTree(timeline, chart.view, chart.event, this.by('by').value);
    // The zoom stays where it was as far as there is something.
    let node = this.root;
    const outer = [];
    for (const name of this.path) {
      if (!node.inner.has(name)) break;
      outer.push(node);
      node = node.inner.get(name);
    }
    this.path = node.path;
    this.words = this.by('find').value.toLowerCase().split(/\s+/).filter(Boolean);
    this.elements = [];
    this.hidden = this.deepest = this.found = 0;
    outer.forEach((o, row) => this.frame([o], row, 0, 1, 'outer'));
    this.draw(node, outer.length, 0, 1, graph.clientWidth, false);
    graph.style.height = (this.deepest + 1) * frameRow + 'px';
    graph.replaceChildren(...this.elements.map(e => e.button));
    this.by('at').textContent = `${timeline.run.name}, after event ${exact(chart.event)}: ${sized(this.root.bytes)} in ${counted(this.root.blocks, 'block')}` +
      (this.words.length ? `; ${sized(this.found)} (${(100 * this.found / (node.bytes || 1)).toFixed(1)} %) match` : '');
    this.by('note').textContent = this.hidden ? `${counted(this.hidden, 'frame')} too narrow to draw: zoom in.` : '';
    this.by('whole').disabled = !this.path.length;
  }

  // draw draws a node and what is in it from left to left + width, as parts of
  // the whole. A frame that has all of what its caller has stands in its row.
  draw(node, row, left, width, pixels, found) {
    const chain = [node];
    while (node.outer && node.inner.size === 1) {
      const [only] = node.inner.values();
      chain.push(node = only);
    }
    const hit = this.words.length > 0 && chain.some(n => this.words.every(w => n.name.toLowerCase().includes(w)));
    if (hit && !found) this.found += node.bytes;
    this.frame(chain, row, left, width, row && !chain[0].outer ? 'outer' : chain[0].path.length === this.path.length ? 'zoomed' : '', hit, pixels * width);
    let at = left;
    for (const inner of node.sorted) {
      const part = width * inner.bytes / node.bytes;
      if (part * pixels >= frameLeast) this.draw(inner, row + 1, at, part, pixels, found || hit);
      else this.hidden++;
      at += part;
    }
  }

  frame(chain, row, left, width, kind, hit, pixels = Infinity) {
    const inner = chain[chain.length - 1], {byCategory, bytes} = inner, names = chain.map(n => n.name);
    const size = sized(bytes), share = (100 * bytes / (this.root.bytes || 1)).toFixed(1) + ' %';
    const most = byCategory.indexOf(Math.max(...byCategory));
    const button = element('button', {type: 'button', class: `frame ${kind} ${hit ? 'hit' : this.words.length ? 'miss' : ''}`, tabindex: kind === 'zoomed' || !this.path.length && !inner.outer ? 0 : -1,
      title: `${names.join('\n')}\n${size}, ${share} of what is alive, ${counted(inner.blocks, 'block')}\n${this.mix(byCategory)}`,
      'data-path': JSON.stringify(inner.path), 'data-bytes': bytes,
      onclick: () => this.zoom(kind === 'zoomed' && inner.outer ? chain[0].outer.path : inner.path)});
    button.style.cssText = `left:${100 * left}%;width:${100 * width}%;top:${row * frameRow}px;--shade-of:var(--category-${this.categories[most]})`;
    if (pixels > 24) {
      button.append(element('span', {}, frameText(names, pixels - (pixels > 150 ? 78 : 8))));
      if (pixels > 150) button.append(element('small', {}, size));
    }
    this.deepest = Math.max(this.deepest, row);
    this.elements.push({button, row, left, width, chain});
  }

  // mix says how a node's bytes divide among categories.
  mix(byCategory) {
    return this.categories.map((name, i) => [name, byCategory[i]]).filter(([, n]) => n).sort((a, b) => b[1] - a[1])
      .map(([name, n]) => `${name} ${sized(n)}`).join(', ');
  }

  key(e) {
    const at = this.elements.find(f => f.button === document.activeElement);
    if (!at || e.altKey || e.ctrlKey || e.metaKey) return;
    const row = r => this.elements.filter(f => f.row === r), middle = at.left + at.width / 2;
    const over = list => list.find(f => f.left <= middle && middle < f.left + f.width);
    const within = list => list.find(f => f.left >= at.left - 1e-9 && f.left < at.left + at.width);
    const beside = by => { const list = row(at.row); return list[list.indexOf(at) + by]; };
    const to = {ArrowUp: () => over(row(at.row - 1)), ArrowDown: () => within(row(at.row + 1)),
      ArrowLeft: () => beside(-1), ArrowRight: () => beside(1)}[e.key];
    if (to) {
      const next = to();
      if (next) next.button.focus();
    } else if (e.key === 'Escape' && this.path.length) {
      this.zoom(this.path.slice(0, -1));
    } else {
      return;
    }
    e.preventDefault();
  }
}
