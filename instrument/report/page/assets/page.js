// The page: charts on one scale, tools, colours.

(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const root = document.documentElement, charts = [], panels = [];
  const prefersDark = matchMedia('(prefers-color-scheme: dark)');
  const theme = document.getElementById('theme');
  function paint() {
    root.toggleAttribute('data-dark', theme.value === 'dark' || theme.value === '' && prefersDark.matches);
    for (const c of charts) c.plot.redraw();
    for (const p of panels) if (p.later) p.later();
  }
  prefersDark.addEventListener('change', paint);
  theme.onchange = paint;
  paint();
  if (!data.runs.length) return;

  panels.push(new Alive(data), new Flame(data), new SegmentMap());
  const state = {common: true, axis: 'event'};
  let active = null;

  // rescale gives the charts their full ranges and heights.
  function rescale() {
    const most = c => c.view.total.length ? Math.max(c.view.reserved.reduce((a, b) => Math.max(a, b), 0), c.view.total.reduce((a, b) => Math.max(a, b), 0)) : 0;
    const shown = charts.filter(c => !c.root.hidden), same = state.common && shown.every(c => c.axis === shown[0].axis);
    for (const c of shown) {
      const group = same ? shown : [c];
      c.full = {begin: Math.min(...group.map(g => g.view.begin)), end: Math.max(...group.map(g => g.view.end))};
      c.top = Math.max(...(state.common ? shown : [c]).map(most)) / data.unit_bytes;
      c.linked = group;
      c.setRange(c.full.begin, c.full.end);
    }
  }

  for (const figure of document.querySelectorAll('.timeline')) {
    const run = data.runs[figure.dataset.run];
    const chart = new Chart(figure, new Timeline(run, data.categories), {
      unit: data.unit, unitBytes: data.unit_bytes, categories: data.categories, top: 1, plotHeight: data.runs.length > 1 ? 262 : 420,
      onRange(lo, hi) { for (const c of chart.linked || [chart]) c.setRange(lo, hi); },
      onSelect(event) { activate(chart, event); },
    });
    charts.push(chart);
    const notes = [];
    if (run.end === run.first) notes.push('No memory was allocated.');
    if (run.first > 0) notes.push(`The first ${exact(run.first)} of ${exact(run.end)} events were not kept.`);
    if (run.peak && !chart.hasPeak()) notes.push(`The peak of ${amount(run.peak.allocated_bytes, chart)} was ${run.first > 0 ? 'among them' : 'there before the first event'}.`);
    if (run.columns) {
      notes.push(`The ${exact(run.end - run.first)} events are drawn as ${exact(chart.view.event.length)} columns with their true maxima.`);
      const {left_out: out} = run;
      if (out.blocks) notes.push(`Of its blocks this file has the ${exact(chart.timeline.start.length)} that held the most bytes for the longest; it merges ${exact(out.blocks)} small or short-lived ones, the largest of ${exact(out.largest_bytes)} bytes, into one entry of the flame graph.`);
    }
    if (run.left_out.stacks) notes.push(`${exact(run.left_out.stacks)} kinds of blocks have their stacks or names cut for room.`);
    const note = figure.querySelector('.note');
    note.hidden = !notes.length;
    note.textContent = notes.join(' ');
  }

  function activate(chart, event) {
    if (active) active.root.classList.remove('active');
    active = chart;
    chart.root.classList.add('active');
    chart.select(event);
    for (const p of panels) p.show(chart);
  }

  for (const b of document.querySelectorAll('.findings button')) {
    b.onclick = () => {
      const chart = charts[b.dataset.run], {run} = chart.timeline;
      activate(chart, Math.min(Math.max(Number(b.dataset.event), run.first), run.end - 1));
      chart.box.focus();
    };
  }

  // The tools.
  const tools = document.getElementById('tools');
  const button = (text, onclick, props = {}) => element('button', {type: 'button', onclick, ...props}, text);
  const group = (...children) => element('span', {role: 'group'}, ...children);
  const choice = (labels, initial, set) => {
    const all = labels.map(([value, text]) => button(text, () => {
      all.forEach((b, i) => b.setAttribute('aria-pressed', String(labels[i][0] === value)));
      set(value);
    }, {'aria-pressed': String(value === initial)}));
    return group(...all);
  };
  const withActive = f => () => f(active || charts[0]);
  tools.append(
    group(button('Zoom in', withActive(c => c.zoom(0.5))), button('Zoom out', withActive(c => c.zoom(2))),
      button('◀', withActive(c => c.pan(-0.25)), {'aria-label': 'Move left'}), button('▶', withActive(c => c.pan(0.25)), {'aria-label': 'Move right'}),
      button('Whole', withActive(c => c.whole()))),
    button('Go to peak', withActive(c => c.peak())));
  if (charts.some(c => c.timeline.views.time)) {
    tools.append(choice([['event', 'Along events'], ['time', 'Along time']], 'event', axis => {
      for (const c of charts) c.setAxis(axis);
      rescale();
    }));
  }
  if (charts.length > 1) {
    tools.append(
      choice([[false, 'One above the other'], [true, 'Side by side']], false, beside => {
        document.getElementById('charts').classList.toggle('beside', beside);
      }),
      choice([[true, 'One scale'], [false, 'Own scales']], true, common => {
        state.common = common;
        rescale();
      }));
  }
  if (charts.length > 2) {
    tools.append(element('label', {}, 'Show ', element('select', {onchange: e => {
      charts.forEach((c, i) => { c.root.hidden = e.target.value !== '' && Number(e.target.value) !== i; });
      rescale();
      if (e.target.value !== '' && charts[e.target.value].event !== undefined) activate(charts[e.target.value], charts[e.target.value].event);
    }}, element('option', {value: ''}, 'all runs'), ...charts.map((c, i) => element('option', {value: i}, c.timeline.run.name)))));
  }

  rescale();
  // The cursors begin at the peaks.
  for (const c of [...charts].reverse()) {
    const {run} = c.timeline;
    if (run.end > run.first) activate(c, c.hasPeak() ? run.peak.event : run.end - 1);
  }
})();
