
const HOUR_MS = 3600e3;
const LEAST_MS = 300e3;  // what a young history is drawn over
const LETTER_PX = 13;

const minute = (ms) => new Date(ms).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', hour12: false});

// One pool by engine over the last hour, as stacked areas; what is above them is
// free. What a moment says holds until the next one.
class PoolPast extends Figure {
  constructor(gpu) {
    super('past', 'chart', gpu);
    this.gpu = gpu;
    this.times = [];
    this.keys = {
      ArrowLeft: (at) => at - 1, ArrowRight: (at) => at + 1,
      PageUp: (at) => Math.max(0, at - 20), PageDown: (at) => Math.min(this.first, at + 20),
      Home: () => 0, End: () => this.first,
    };
    this.title = el('h4');
    this.legend = el('ul', {class: 'states'});
    this.ends = el('p', {class: 'ends', 'aria-hidden': true});
    this.part = el('div', {hidden: ''}, this.title, this.canvas, this.ends, this.text, this.legend);
  }

  get length() {
    return this.times.length;
  }

  // The newest one.
  get first() {
    return this.length - 1;
  }

  // `pool`: of this GPU; undefined: the history has none.
  set(history, pool) {
    this.part.hidden = !pool;
    const chosen = this.times[this.chosen];
    this.times = pool ? history.times : [];
    this.period = history.period_ms;
    this.chosen = this.times.findIndex((time) => Math.abs(time - chosen) < this.period / 2);
    if (!pool) return;
    this.present = pool.present;
    this.engines = pool.engines;
    this.known = this.times.map((_, i) => i).filter((i) => this.present[i] !== null);
    this.since = this.times[this.known[0]];
    this.end = this.times[this.first] + this.period;
    this.begin = this.end - Math.min(HOUR_MS, Math.max(LEAST_MS, this.end - this.since));
    this.most = Math.max(...this.present);
    this.name();
    this.draw();
    this.describe();
  }

  free(moment) {
    return Math.max(0, this.present[moment] - sum(this.engines, (engine) => engine.held[moment]));
  }

  // Title, legend and what a screen reader says.
  name() {
    const range = (of) => {
      const all = this.known.map(of), least = Math.min(...all), most = Math.max(...all);
      return least === most ? bytes(most) : `${bytes(least)} to ${bytes(most)}`;
    };
    const rows = this.engines.map((engine) => [engine.name, range((i) => engine.held[i])]);
    const free = range((i) => this.free(i));
    const span = `${minute(this.since)} to ${minute(this.end)}`;
    const gaps = this.known.length < this.length - this.known[0] ? '; there are gaps, in which no daemon answered' : '';
    this.canvas.setAttribute('aria-label', `Pool of ${this.gpu} by engine, ${span}: ` +
      `${[...rows, ['free', free]].map((row) => row.join(' ')).join(', ')}${gaps}. Arrow keys go from moment to moment.`);
    this.title.textContent = `The pool by engine, ${span}`;
    this.ends.replaceChildren(el('span', {}, minute(this.begin)), el('span', {}, minute(this.end)));
    this.legend.replaceChildren(
      ...rows.map(([name, text]) => el('li', {}, swatch(name), `${name} ${text}`)),
      el('li', {}, el('span', {class: 'swatch open'}, '\u00a0'), `free ${free}`));
  }

  // Where the step that begins with this moment ends.
  until(moment) {
    const next = this.times[moment + 1];
    const last = this.times[moment] + this.period;
    return next !== undefined && next < last + 1.5 * this.period ? next : last;
  }

  x(time, width) {
    return Math.round((time - this.begin) / (this.end - this.begin) * width);
  }

  layOut() {
    return 110;
  }

  paint(g, width, height) {
    const y = (n) => height - Math.round(n / this.most * height);
    const back = cssColour('--card'), free = cssColour('--free');
    this.times.forEach((time, i) => {
      if (this.present[i] === null) return;
      const x = this.x(time, width), w = this.x(this.until(i), width) - x;
      g.fillStyle = free;
      g.fillRect(x, y(this.present[i]), w, height);
      this.bands(i, (engine, from, to) => {
        g.fillStyle = engineLook(engine.name).colour;
        g.fillRect(x, y(to), w, y(from) - y(to));
        g.fillStyle = back;
        if (y(from) - y(to) > 3) g.fillRect(x, y(to), w, 1);
      });
    });
    this.letters(g, width, y);
    if (this.chosen < 0) return;
    const x = this.x(this.times[this.chosen], width), w = this.x(this.until(this.chosen), width) - x;
    g.strokeStyle = cssColour('--focus');
    g.lineWidth = 2;
    g.strokeRect(x, 1, Math.max(w, 2), height - 2);
  }

  // Calls `each` with an engine, where its band begins and where it ends.
  bands(moment, each) {
    let from = 0;
    for (const engine of this.engines) {
      const to = from + engine.held[moment];
      if (to > from) each(engine, from, to);
      from = to;
    }
  }

  // Each engine's letter in the widest part of its area that has room for it.
  letters(g, width, y) {
    for (const [engine, {from, to}] of this.widest(y)) {
      const x = this.x(this.times[from], width), end = this.x(this.until(to), width);
      if (end - x < LETTER_PX) continue;
      this.bands(Math.floor((from + to) / 2), (its, low, high) => {
        if (its === engine) drawLetter(g, engineLook(engine.name), 11, (x + end) / 2, (y(low) + y(high)) / 2);
      });
    }
  }

  // By engine, the first and the last of the most moments in a row at which its
  // band is high enough for a letter.
  widest(y) {
    const runs = new Map(), best = new Map();
    this.times.forEach((_, i) => this.bands(i, (engine, from, to) => {
      if (y(from) - y(to) < LETTER_PX) return;
      const run = runs.get(engine)?.to === i - 1 ? runs.get(engine) : {from: i};
      run.to = i;
      runs.set(engine, run);
      if (!best.has(engine) || i - run.from > best.get(engine).to - best.get(engine).from) best.set(engine, run);
    }));
    return best;
  }

  under(event) {
    const time = this.begin + event.offsetX / this.canvas.clientWidth * (this.end - this.begin);
    return this.times.findIndex((from, i) => time >= from && time < this.until(i));
  }

  about(moment) {
    const when = clock(this.times[moment]);
    if (this.present[moment] === null) return `${when}: no daemon answered.`;
    const held = this.engines.filter((engine) => engine.held[moment] > 0)
      .map((engine) => `${engine.name} (${engineLook(engine.name).letter}) ${bytes(engine.held[moment])}`);
    return `${when}: ${[...held, `free ${bytes(this.free(moment))}`].join(', ')}, of ${bytes(this.present[moment])}.`;
  }
}
