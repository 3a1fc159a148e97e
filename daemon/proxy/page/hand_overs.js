
const TOGETHER_MS = 2000;
const MOST_HAND_OVERS = 20;

// Slabs that went from one engine to another since the page was opened: each
// slab's last owner is kept while it is free, and over frames that were missed.
class HandOvers {
  constructor() {
    this.pools = new Map();  // by GPU
    this.list = [];  // newest first
  }

  // `owners`: names by slab, as they are now; '' has none.
  note(gpu, pool, owners) {
    if (this.pools.get(gpu)?.epoch !== pool.epoch) this.pools.set(gpu, {epoch: pool.epoch, last: []});
    const last = this.pools.get(gpu).last;
    const known = new Set(pool.engines.map((engine) => engine.name));
    owners.forEach((owner, slab) => {
      if (!known.has(owner)) return;
      if (last[slab] && last[slab] !== owner) this.add(gpu, last[slab], owner, pool.slab_bytes);
      last[slab] = owner;
    });
  }

  add(gpu, from, to, size) {
    const now = performance.now();
    let group = this.list.find((one) => one.gpu === gpu && one.from === from && one.to === to && now - one.until < TOGETHER_MS);
    if (!group) {
      group = {gpu, from, to, at: Date.now(), since: now, slabs: 0, bytes: 0};
      this.list = [group, ...this.list].slice(0, MOST_HAND_OVERS);
    }
    group.until = now;
    group.slabs += 1;
    group.bytes += size;
  }
}

const handOvers = new HandOvers();

// `many`: there are several GPUs.
function showHandOvers({list, many}) {
  if (list.length === 0) return el('p', {class: 'none'}, 'No slab went from one engine to another.');
  const rows = list.map((one) => {
    const ms = one.until - one.since;
    const what = `${count(one.slabs)} ${one.slabs === 1 ? 'slab' : 'slabs'}, ${bytes(one.bytes)}${ms > 0 ? `, ${duration(Math.round(ms) * 1000)}` : ''}`;
    return el('li', {}, el('span', {}, clock(one.at)), ' ',
      swatch(one.from), one.from, ' → ', swatch(one.to), one.to, `: ${what}`, el('small', {}, many ? ` on ${one.gpu}` : ''));
  });
  return el('ol', {class: 'moves'}, ...rows);
}
