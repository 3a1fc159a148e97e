
const MOVED_MS = 900;  // how long a slab that changed is outlined

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
  if (look && s >= 18 && state === 'partial') drawLetter(g, look, Math.round(s * .55), s / 2, s / 2 + 1);
  g.restore();
}

// The slabs of one GPU.
class SlabMap extends Figure {
  constructor(gpu) {
    super('map', 'slab map', `Slabs of ${gpu}. Arrow keys go from slab to slab, Page Up and Page Down from owner to owner.`);
    this.states = [];   // by slab
    this.owners = [];   // by slab: the engine's name, or ''
    this.moved = new Map();  // slab -> when
    this.keys = {
      ArrowLeft: (at) => at - 1, ArrowRight: (at) => at + 1,
      ArrowUp: (at) => at - this.columns, ArrowDown: (at) => at + this.columns,
      Home: () => 0, End: () => this.length - 1,
      PageUp: (at) => this.nextRun(at, -1), PageDown: (at) => this.nextRun(at, 1),
    };
  }

  get length() {
    return this.states.length;
  }

  get first() {
    return 0;
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
    return Math.ceil(n / this.columns) * this.size;
  }

  paint(g) {
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

  under(event) {
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

  about(slab) {
    const owner = this.owners[slab];
    const whose = owner ? `, of ${owner} (${engineLook(owner).letter})` : '';
    return `Slab ${slab} of ${this.length}: ${this.states[slab]}${whose}, ${bytes(this.bytes)}.`;
  }
}
