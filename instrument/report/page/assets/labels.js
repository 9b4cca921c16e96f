// What is drawn behind and around a chart's areas: phases, steps, marks, the peak.

Object.assign(Chart.prototype, {
  // span is where a phase or step lies on the canvas, null out of sight.
  span(u, s) {
    let lo = this.axis === 'time' ? s.began : s.first, hi = this.axis === 'time' ? s.ended : s.end;
    lo = Math.max(lo, this.lo);
    hi = Math.min(hi, this.hi);
    return hi < lo || hi === lo && lo === this.hi ? null : [u.valToPos(lo, 'x', true), u.valToPos(hi, 'x', true)];
  },

  background(u) {
    const {ctx, bbox} = u;
    ctx.save();
    ctx.fillStyle = css('--shade');
    this.timeline.run.phases.filter(p => p.depth === 0).forEach((p, i) => {
      const at = i % 2 === 0 && this.span(u, p);
      if (at) ctx.fillRect(at[0], bbox.top, at[1] - at[0], bbox.height);
    });
    ctx.restore();
  },

  foreground(u) {
    const {ctx, bbox} = u, r = uPlot.pxRatio, {run} = this.timeline;
    const ink = css('--ink'), faint = css('--faint'), fills = [css('--strip2'), css('--strip')], failed = css('--fail-bg');
    ctx.save();
    ctx.font = `${11.5 * r}px system-ui, sans-serif`;
    ctx.textBaseline = 'middle';
    // label writes a text into a stretch if it has room there.
    const label = (text, lo, hi, y, color) => {
      const room = hi - lo - 6 * r;
      let t = text;
      if (ctx.measureText(t).width > room) {
        const n = Math.floor(t.length * room / ctx.measureText(t).width) - 1;
        if (n < 3) return;
        t = t.slice(0, n) + '…';
      }
      ctx.fillStyle = color;
      ctx.textAlign = 'center';
      ctx.fillText(t, (lo + hi) / 2, y);
    };
    let y = bbox.top;
    if (run.phases.length) {
      for (let depth = this.depths - 1; depth >= 0; depth--) {
        y -= strip * r;
        run.phases.filter(p => p.depth === depth).forEach((p, i) => {
          const at = this.span(u, p);
          if (!at) return;
          ctx.fillStyle = p.failed ? failed : fills[i % 2];
          ctx.fillRect(at[0], y, Math.max(at[1] - at[0], r), (strip - 1) * r);
          label(p.name + (p.failed ? ' (failed)' : ''), at[0], at[1], y + strip / 2 * r, ink);
        });
      }
    }
    if (run.steps.length) {
      y -= strip * r;
      let last = -Infinity;
      for (const s of run.steps) {
        const at = this.span(u, s), text = 'step ' + s.step;
        if (!at) continue;
        ctx.fillStyle = faint;
        if (at[0] - last > 3 * r) ctx.fillRect(at[0], y + 2 * r, r, (strip - 3) * r);
        const width = ctx.measureText(text).width;
        if (at[0] < last || at[0] + width + 5 * r > bbox.left + bbox.width) continue;
        ctx.textAlign = 'left';
        ctx.fillText(text, at[0] + 5 * r, y + strip / 2 * r);
        last = at[0] + width + 12 * r;
      }
    }
    this.marks(u, y, faint);
    this.drawFailures(u);
    this.drawReserved(u, ink);
    this.drawPeak(u, ink);
    ctx.restore();
  },

  // marks draws a dashed line for each mark and, where there is room, its name.
  marks(u, y, color) {
    const {ctx, bbox} = u, r = uPlot.pxRatio, free = Array(markRows).fill(-Infinity);
    ctx.strokeStyle = ctx.fillStyle = color;
    ctx.lineWidth = r;
    for (const m of this.timeline.run.marks) {
      const at = this.axis === 'time' ? m.seconds : m.event;
      if (at < this.lo || at > this.hi) continue;
      const x = Math.round(u.valToPos(at, 'x', true)) + 0.5, name = m.name.length > 28 ? m.name.slice(0, 27) + '…' : m.name, width = ctx.measureText(name).width;
      ctx.setLineDash([3 * r, 3 * r]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.setLineDash([]);
      const flip = x + width + 5 * r > bbox.left + bbox.width, from = flip ? x - width - 4 * r : x + 4 * r;
      const row = free.findIndex(f => f < from - 4 * r);
      if (row < 0) continue;
      free[row] = from + width;
      const middle = y - (row + 0.5) * markRow * r;
      ctx.textAlign = 'left';
      ctx.fillText(name, from, middle);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, middle - markRow / 2 * r + 2 * r);
      ctx.globalAlpha = 0.45;
      ctx.stroke();
      ctx.globalAlpha = 1;
    }
  },

  // drawFailures draws a line where a request ran out of memory.
  drawFailures(u) {
    const {ctx, bbox} = u, r = uPlot.pxRatio, color = css('--fail');
    ctx.font = `600 ${12 * r}px system-ui, sans-serif`;
    ctx.fillStyle = ctx.strokeStyle = color;
    ctx.lineWidth = 1.5 * r;
    let last = -Infinity;
    for (const f of this.timeline.run.failures) {
      const at = this.axis === 'time' ? f.seconds : f.event + 0.5;
      if (at < this.lo || at > this.hi) continue;
      const x = u.valToPos(at, 'x', true), text = 'out of memory: ' + sized(f.requested_bytes) + ' asked for', width = ctx.measureText(text).width;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const flip = x + width + 8 * r > bbox.left + bbox.width, from = flip ? x - width - 5 * r : x + 5 * r;
      if (from < last) continue;
      ctx.fillStyle = css('--card');
      ctx.globalAlpha = 0.85;
      ctx.fillRect(from - 3 * r, bbox.top + bbox.height - 19 * r, width + 6 * r, 17 * r);
      ctx.globalAlpha = 1;
      ctx.fillStyle = color;
      ctx.textAlign = 'left';
      ctx.fillText(text, from, bbox.top + bbox.height - 10 * r);
      last = from + width;
    }
  },

  // drawReserved rings the first moment of the greatest reserved bytes.
  drawReserved(u, ink) {
    const {reserved, x: along, event} = this.view, r = uPlot.pxRatio;
    if (this.reservedOf !== this.view) {
      this.reservedOf = this.view;
      this.reservedAt = reserved.reduce((best, n, i) => n > reserved[best] ? i : best, 0);
    }
    const i = this.reservedAt, at = this.axis === 'time' ? along[i] : event[i] + 0.5;
    if (!reserved[i] || at < this.lo || at > this.hi) return;
    u.ctx.beginPath();
    u.ctx.arc(u.valToPos(at, 'x', true), u.valToPos(reserved[i] / this.unitBytes, 'y', true), 4 * r, 0, 2 * Math.PI);
    u.ctx.fillStyle = css('--card');
    u.ctx.fill();
    u.ctx.strokeStyle = ink;
    u.ctx.lineWidth = 1.6 * r;
    u.ctx.stroke();
  },

  drawPeak(u, ink) {
    if (!this.hasPeak()) return;
    const {peak} = this.timeline.run, {ctx, bbox} = u, r = uPlot.pxRatio;
    const at = this.axis === 'time' ? peak.seconds : peak.event + 0.5;
    if (at < this.lo || at > this.hi) return;
    const x = u.valToPos(at, 'x', true), y = u.valToPos(peak.allocated_bytes / this.unitBytes, 'y', true);
    const text = 'peak ' + amount(peak.allocated_bytes, this);
    ctx.font = `600 ${12 * r}px system-ui, sans-serif`;
    const width = ctx.measureText(text).width, pad = 4 * r;
    // Beside the peak, where the cursor's line does not cross it.
    const left = x + 9 * r + width + pad < bbox.left + bbox.width ? x + 9 * r : x - width - 9 * r;
    const middle = Math.max(y - 16 * r, bbox.top + 8 * r);
    ctx.fillStyle = css('--card');
    ctx.globalAlpha = 0.85;
    ctx.fillRect(left - pad, middle - 8 * r, width + 2 * pad, 16 * r);
    ctx.globalAlpha = 1;
    ctx.fillStyle = ink;
    ctx.textAlign = 'left';
    ctx.fillText(text, left, middle);
    ctx.beginPath();
    ctx.arc(x, y, 4 * r, 0, 2 * Math.PI);
    ctx.fill();
    ctx.strokeStyle = css('--card');
    ctx.lineWidth = 1.5 * r;
    ctx.stroke();
  },
});
