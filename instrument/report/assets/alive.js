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
    const total = timeline.run.columns && view.event[p] !== chart.event ? listed : view.total[p];
    this.totals(total, view, p);
    this.list(groups, how, total, listed);
    document.getElementById('announce').textContent = `${timeline.run.name}, event ${chart.event}: ` +
      `${amount(total, this)} allocated in ${groups.length} groups, ${timeline.where(chart.event)}`;
  }

  seconds(chart) {
    const t = chart.timeline.views.time;
    return t.x[chart.timeline.pointOf(t, chart.event)].toFixed(6);
  }

  totals(total, view, p) {
    const bytes = this.categories.map((_, i) => view.byCategory[i][p]);
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
        element('summary', {}, 'By category'), element('table', {}, element('tbody', {}, ...rows))));
  }

  list(groups, how, total, listed) {
    const words = this.by('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = g => [g.category, g.module, g.op, g.caller].filter(Boolean).join(' ').toLowerCase();
    const found = words.length ? groups.filter(g => words.every(w => text(g).includes(w))) : groups;
    const {by, down} = this.sort;
    // A fixed order where the chosen one leaves it open.
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const rank = g => this.categories.indexOf(g.category);
    const keys = {bytes: g => g.bytes, blocks: g => g.blocks, category: rank, name: g => (g.module || '') + '\n' + (g.op || '')};
    found.sort((a, b) => (down ? -1 : 1) * compare(keys[by](a), keys[by](b)) || b.bytes - a.bytes || rank(a) - rank(b) ||
      compare(a.module || '', b.module || '') || compare(a.op || '', b.op || '') || compare(a.addr || 0, b.addr || 0));
    const noun = how === 'block' ? 'blocks' : 'groups';
    let count = `${exact(found.length)} ${noun}`;
    if (words.length) count += ` of ${exact(groups.length)}, ${exact(found.reduce((s, g) => s + g.bytes, 0))} bytes`;
    if (total > listed) count += `; ${exact(total - listed)} bytes are in blocks that this file leaves out`;
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
    if (how !== 'm') cells.push(cell('category', 'category'));
    if (how === 'block' || how.length > 1 || how === 'm') cells.push(cell('name', how === 'm' || how === 'cm' ? 'module' : how === 'co' ? 'operation' : 'module, operation'));
    if (how !== 'block') cells.push(cell('blocks', 'blocks', {class: 'n'}));
    this.by('list').tHead.replaceChildren(element('tr', {}, ...cells));
  }

  row(g, how, total) {
    const cells = [element('td', {class: 'n', title: (100 * g.bytes / total).toFixed(2) + ' % of what is allocated'},
      amount(g.bytes, this), element('small', {class: 'bytes'}, exact(g.bytes)))];
    if (how !== 'm') cells.push(element('td', {class: 'category'}, element('i', {color: g.category}), g.category));
    const name = element('td', {});
    if (g.module !== null) name.append(element('span', {class: 'module'}, g.module || '-'));
    if (g.op !== null) name.append(element(g.module === null ? 'span' : 'small', {class: 'op'}, g.op || '-'));
    if (how === 'block') name.append(element('small', {}, '0x' + g.addr.toString(16) + ', ' + (g.since < this.chart.timeline.run.first ? 'from before the first event' : 'since event ' + exact(g.since)) + (g.caller ? ' · ' + g.caller : '')));
    cells.push(name);
    if (how !== 'block') cells.push(element('td', {class: 'n blocks'}, exact(g.blocks)));
    return element('tr', {}, ...cells);
  }
}
