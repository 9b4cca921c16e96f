// The list of what is alive at the cursor.

function element(name, props = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, v] of Object.entries(props)) {
    if (key === 'class') e.className = v;
    else if (key === 'color') e.style.background = `var(--category-${v})`;
    else if (key.startsWith('on')) e[key] = v;
    else e.setAttribute(key, v);
  }
  e.append(...children);
  return e;
}

// breakable is a text that may be broken after the marks within long names, and
// neither within words nor within numbers.
function breakable(text) {
  return text.split(/(?<=[./:])(?=[^\s./:\d])|(?<=[^\d.][./])(?=\d)/).flatMap((part, i) => i ? [document.createElement('wbr'), part] : [part]);
}

const aliveRows = 200;

class Alive {
  constructor(data) {
    Object.assign(this, {unit: data.unit, unitBytes: data.unit_bytes, categories: data.categories});
    this.sort = {by: 'bytes', down: true};
    this.by = id => document.getElementById('alive-' + id);
    this.by('group').onchange = () => this.refresh();
    this.by('filter').oninput = () => this.refresh();
  }

  // show lists what is alive in a chart's timeline at its cursor.
  show(chart) {
    if (!this.chart && chart.timeline.run.flame_by === 'stack') this.by('group').value = 'clo';
    if (this.chart !== chart || this.event !== chart.event) this.all = false;
    this.chart = chart;
    this.event = chart.event;
    this.refresh();
  }

  refresh() {
    const {chart} = this;
    if (!chart) return;
    const {timeline, view} = chart, p = chart.point, how = this.by('group').value;
    this.by('title').textContent = 'Alive in ' + timeline.run.name;
    this.by('at').textContent = `after event ${exact(chart.event)} of ${exact(timeline.run.end)}` +
      (timeline.views.time ? `, ${this.seconds(chart)} s` : '') + ` · ${timeline.where(chart.event)}` +
      (chart.hasPeak() && timeline.run.peak.event === chart.event ? ' · the allocated peak' : '');
    const groups = timeline.alive(chart.event, how);
    const listed = groups.reduce((sum, g) => sum + g.bytes, 0);
    // Of columns only the maximum is known; at other events the list is.
    const exactly = view.event[p] === chart.event, total = exactly ? view.total[p] : listed;
    this.totals(total, view, p, exactly);
    this.list(groups, how, total, listed, exactly);
    document.getElementById('announce').textContent = `${timeline.run.name}, event ${chart.event}: ` +
      `${amount(total, this)} allocated in ${groups.length} groups, ${timeline.where(chart.event)}`;
  }

  seconds(chart) {
    const t = chart.timeline.views.time;
    return t.x[chart.timeline.pointOf(t, chart.event)].toFixed(6);
  }

  totals(total, view, p, exactly) {
    const {timeline} = this.chart, bytes = this.categories.map((_, i) => exactly ? view.byCategory[i][p] : 0);
    if (!exactly) for (const i of timeline.live(this.event)) bytes[timeline.labels[timeline.label[i]].rank] += timeline.bytes[i];
    const stack = element('div', {class: 'stack', 'aria-hidden': 'true'});
    const rows = [];
    this.categories.forEach((name, i) => {
      if (!bytes[i]) return;
      const part = element('i', {color: name, title: name});
      part.style.width = 100 * bytes[i] / total + '%';
      stack.append(part);
      rows.push(element('tr', {}, element('th', {scope: 'row'}, element('i', {color: name}), name),
        element('td', {class: 'n'}, amount(bytes[i], this)), element('td', {class: 'n'}, exact(bytes[i]))));
    });
    const row = (name, n) => element('tr', {}, element('th', {scope: 'row'}, name),
      element('td', {class: 'n'}, amount(n, this)), element('td', {class: 'n'}, exact(n)));
    const head = element('table', {}, element('tbody', {}, row('allocated', total), row('reserved', view.reserved[p])));
    this.by('total').replaceChildren(head, stack,
      element('details', {...(this.open ? {open: ''} : {}), ontoggle: e => { this.open = e.target.open; }},
        element('summary', {}, 'By category' + (timeline.run.category_basis ? ` (${timeline.run.category_basis})` : '')), element('table', {}, element('tbody', {}, ...rows))));
  }

  list(groups, how, total, listed, exactly) {
    const words = this.by('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = g => [g.category, g.module, g.op, g.line].filter(Boolean).join(' ').toLowerCase();
    const found = words.length ? groups.filter(g => words.every(w => text(g).includes(w))) : groups;
    const {by, down} = this.sort;
    // A fixed order where the chosen one leaves it open.
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const rank = g => this.categories.indexOf(g.category);
    const keys = {bytes: g => g.bytes, blocks: g => g.blocks, category: rank, name: g => [g.module, g.line, g.op].map(s => s || '').join('\n')};
    found.sort((a, b) => (down ? -1 : 1) * compare(keys[by](a), keys[by](b)) || b.bytes - a.bytes || rank(a) - rank(b) ||
      compare(a.module || '', b.module || '') || compare(a.op || '', b.op || '') || compare(a.addr || 0, b.addr || 0));
    const noun = how === 'block' ? 'blocks' : 'groups';
    let count = `${exact(found.length)} ${noun}`;
    if (words.length) count += ` of ${exact(groups.length)}, ${exact(found.reduce((s, g) => s + g.bytes, 0))} bytes`;
    if (total > listed) count += `; ${exact(total - listed)} bytes are in small blocks, merged, which this file does not list`;
    else if (!exactly) count += '; small blocks that this file does not list are not counted here';
    this.by('count').textContent = count;
    this.head(how);
    const shown = this.all ? found : found.slice(0, aliveRows);
    this.by('list').tBodies[0].replaceChildren(...shown.map(g => this.row(g, how, total)));
    this.by('more').replaceChildren(...(shown.length < found.length ? [element('button', {type: 'button', onclick: () => {
      this.all = true;
      this.refresh();
    }}, `Show all ${exact(found.length)} ${noun}`)] : []));
  }

  head(how) {
    const cell = (id, text, props = {}) => element('th', {scope: 'col', ...props,
      'aria-sort': this.sort.by === id ? (this.sort.down ? 'descending' : 'ascending') : 'none'},
    element('button', {type: 'button', 'data-sort': id, onclick: () => {
      this.sort = {by: id, down: this.sort.by === id ? !this.sort.down : id === 'bytes' || id === 'blocks'};
      this.refresh();
      this.by('list').querySelector(`[data-sort=${id}]`).focus();
    }}, text + (this.sort.by === id ? (this.sort.down ? ' ↓' : ' ↑') : '')));
    const cells = [cell('bytes', 'size', {class: 'n'})];
    if (how === 'block' || how.includes('c')) cells.push(cell('category', 'category'));
    const names = how === 'block' ? 'module, operation, line' : [['m', 'module'], ['l', 'line'], ['o', 'operation']].filter(([letter]) => how.includes(letter)).map(([, text]) => text).join(', ');
    cells.push(cell('name', names));
    if (how !== 'block') cells.push(cell('blocks', 'blocks', {class: 'n'}));
    this.by('list').tHead.replaceChildren(element('tr', {}, ...cells));
  }

  row(g, how, total) {
    const cells = [element('td', {class: 'n', title: (100 * g.bytes / total).toFixed(2) + ' % of what is allocated'},
      amount(g.bytes, this), element('small', {class: 'bytes'}, exact(g.bytes)))];
    if (how === 'block' || how.includes('c')) cells.push(element('td', {class: 'category'}, element('i', {color: g.category}), g.category));
    const name = element('td', {});
    for (const key of ['module', 'line', 'op']) {
      if (g[key] === null || how === 'block' && key === 'line' && !g.line) continue;
      name.append(element(name.childNodes.length ? 'small' : 'span', {class: key}, ...breakable(g[key] || '-')));
    }
    if (how === 'block') name.append(element('small', {}, '0x' + g.addr.toString(16) + ', ' + (g.since < this.chart.timeline.run.first ? 'from before the first event' : 'since event ' + exact(g.since))));
    cells.push(name);
    if (how !== 'block') cells.push(element('td', {class: 'n blocks'}, exact(g.blocks)));
    return element('tr', {}, ...cells);
  }
}
