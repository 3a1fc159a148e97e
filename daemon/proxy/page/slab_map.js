
'use strict';

// Okabe and Ito's colours, which people of every colour vision tell apart. With
// more engines they come again: each engine has a letter, too.
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442'];
const DARK_INK = new Set(['#e69f00', '#56b4e9', '#f0e442', '#cc79a7']);
const MOVED_MS = 900;  // how long a slab that changed is outlined

const still = matchMedia('(prefers-reduced-motion: reduce)');
const dark = matchMedia('(prefers-color-scheme: dark)');
const engineNumbers = new Map();  // by name: the same engine looks the same on every GPU

function engineLook(name) {
  if (!engineNumbers.has(name)) engineNumbers.set(name, engineNumbers.size);
  const n = engineNumbers.get(name);
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
  const colour = COLOURS[n % COLOURS.length];
  return {
    colour,
    ink: DARK_INK.has(colour) ? '#000' : '#fff',
    letter: (n < 26 ? '' : letters[Math.floor(n / 26) - 1] || '?') + letters[n % 26],
  };
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The mark of a state is drawn over the engine's colour, so that neither needs the other.
const MARKS = {
  full(g, s) {
    g.strokeRect(s * .25, s * .25, s * .5, s * .5);
  },
  zeroing(g, s) {
    for (let y = s / 4; y < s; y += s / 4) line(g, 0, y, s, y);
  },
  returning(g, s) {
    line(g, s * .65, s * .2, s * .3, s * .5);
    line(g, s * .3, s * .5, s * .65, s * .8);
  },
  quarantined(g, s) {
    line(g, s * .15, s * .15, s * .85, s * .85);
    line(g, s * .85, s * .15, s * .15, s * .85);
  },
};

function line(g, x1, y1, x2, y2) {
  g.beginPath();
  g.moveTo(x1, y1);
  g.lineTo(x2, y2);
  g.stroke();
}

// Draws one slab into a square of `size` at (x, y).
function drawSlab(g, x, y, size, state, look, colours) {
  const s = size >= 6 ? size - 1 : size;  // a gap where there is room for one
  g.save();
  g.translate(x, y);
  if (state === 'absent') {
    g.strokeStyle = colours.line;
    if (s >= 5) g.strokeRect(.5, .5, s - 1, s - 1);
    g.restore();
    return;
  }
  g.fillStyle = look ? look.colour : colours.free;
  g.fillRect(0, 0, s, s);
  g.strokeStyle = look ? look.ink : colours.ink;
  g.lineWidth = Math.max(.7, s / 10);
  if (MARKS[state]) MARKS[state](g, s);
  if (look && s >= 18 && state === 'partial') {
    g.fillStyle = look.ink;
    g.font = `${Math.round(s * .55)}px system-ui, sans-serif`;
    g.textAlign = 'center';
    g.textBaseline = 'middle';
    g.fillText(look.letter, s / 2, s / 2 + 1);
  }
  g.restore();
}

// The slabs of one GPU in a canvas, which arrow keys walk over.
class SlabMap {
  constructor(label) {
    this.canvas = el('canvas', {
      class: 'map', tabindex: 0, role: 'application',
      'aria-roledescription': 'slab map', 'aria-label': label,
    });
    this.text = el('p', {class: 'slab', 'aria-live': 'polite'});
    this.states = [];   // by slab
    this.owners = [];   // by slab: the engine's name, or ''
    this.moved = new Map();  // slab -> when
    this.chosen = -1;
    this.canvas.addEventListener('keydown', (e) => this.onKey(e));
    this.canvas.addEventListener('focus', () => this.choose(Math.max(this.chosen, 0)));
    this.canvas.addEventListener('pointermove', (e) => this.choose(this.slabUnder(e)));
    this.canvas.addEventListener('pointerleave', () => {
      if (document.activeElement !== this.canvas) this.choose(-1);
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    dark.addEventListener('change', () => this.draw());
  }

  set(pool, stateNames) {
    const names = new Map(pool.engines.map((e) => [e.id, e.name]));
    const states = [], owners = [];
    for (let i = 0; i < pool.runs.length; i += 3) {
      const state = stateNames[pool.runs[i]] || 'unknown';
      const id = pool.runs[i + 1];
      const owner = id === 0 ? '' : names.get(id) || `engine ${id}`;
      for (let n = pool.runs[i + 2]; n > 0; --n) {
        states.push(state);
        owners.push(owner);
      }
    }
    if (states.length === this.states.length) this.noteMoves(states, owners);
    this.states = states;
    this.owners = owners;
    this.bytes = pool.slab_bytes;
    this.draw();
    this.describe();
  }

  noteMoves(states, owners) {
    const now = performance.now();
    for (const [slab, at] of this.moved) {
      if (now - at > MOVED_MS) this.moved.delete(slab);
    }
    for (let i = 0; i < states.length; ++i) {
      if (owners[i] !== this.owners[i] || states[i] !== this.states[i]) this.moved.set(i, now);
    }
    if (this.moved.size > 0 && !still.matches) setTimeout(() => this.draw(), MOVED_MS + 20);
  }

  // The largest squares with which the map stays lower than it may be.
  layOut(width) {
    const n = this.states.length;
    for (this.size = 26; this.size > 4; --this.size) {
      this.columns = Math.max(1, Math.floor(width / this.size));
      if (Math.ceil(n / this.columns) * this.size <= 360) break;
    }
    this.columns = Math.max(1, Math.floor(width / this.size));
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (width === 0 || this.states.length === 0) return;
    this.layOut(width);
    const height = Math.ceil(this.states.length / this.columns) * this.size;
    const ratio = devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const g = this.canvas.getContext('2d');
    g.scale(ratio, ratio);
    const colours = {free: cssColour('--free'), line: cssColour('--line'), ink: cssColour('--ink')};
    const now = performance.now();
    const flashes = this.size >= 8 && !still.matches;
    this.states.forEach((state, i) => {
      const [x, y] = this.place(i);
      const owner = this.owners[i];
      drawSlab(g, x, y, this.size, state, owner ? engineLook(owner) : null, colours);
      if (flashes && now - (this.moved.get(i) ?? -1e9) < MOVED_MS) this.outline(g, i, colours.ink, 1);
    });
    if (this.chosen >= 0) this.outline(g, this.chosen, cssColour('--focus'), 3);
  }

  outline(g, slab, colour, width) {
    const [x, y] = this.place(slab);
    g.strokeStyle = colour;
    g.lineWidth = width;
    g.strokeRect(x, y, this.size - 1, this.size - 1);
  }

  place(slab) {
    return [(slab % this.columns) * this.size, Math.floor(slab / this.columns) * this.size];
  }

  slabUnder(event) {
    const column = Math.floor(event.offsetX / this.size);
    const slab = Math.floor(event.offsetY / this.size) * this.columns + column;
    return column < this.columns && slab < this.states.length ? slab : -1;
  }

  // Where a run of equal slabs ends: the next one in this direction.
  nextRun(from, step) {
    const same = (i) => this.states[i] === this.states[from] && this.owners[i] === this.owners[from];
    let i = from;
    while (i + step >= 0 && i + step < this.states.length && same(i)) i += step;
    return i;
  }

  onKey(event) {
    const at = Math.max(this.chosen, 0), last = this.states.length - 1;
    const to = {
      ArrowLeft: () => at - 1, ArrowRight: () => at + 1,
      ArrowUp: () => at - this.columns, ArrowDown: () => at + this.columns,
      Home: () => 0, End: () => last,
      PageUp: () => this.nextRun(at, -1), PageDown: () => this.nextRun(at, 1),
    }[event.key];
    if (!to || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const slab = to();
    if (slab >= 0 && slab <= last) this.choose(slab);
  }

  choose(slab) {
    if (slab === this.chosen) return;
    this.chosen = slab;
    this.draw();
    this.describe();
  }

  describe() {
    const i = this.chosen;
    let text = '';
    if (i >= 0 && i < this.states.length) {
      const owner = this.owners[i];
      const whose = owner ? `, of ${owner} (${engineLook(owner).letter})` : '';
      text = `Slab ${i} of ${this.states.length}: ${this.states[i]}${whose}, ${bytes(this.bytes)}.`;
    }
    if (this.text.textContent !== text) this.text.textContent = text;
  }
}
