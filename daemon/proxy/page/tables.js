
// Makes an element. `fields` are attributes; children are elements or text.
function el(tag, fields = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) {
    if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    ++unit;
  }
  return `${n >= 100 || Number.isInteger(n) ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

// The blank does not break, so that no line begins with a unit.
function duration(us) {
  if (us < 1000) return `${us}\u00a0µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e5 ? 1 : 0)}\u00a0ms`;
  return `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)}\u00a0s`;
}

function clock(ms) {
  return new Date(ms).toLocaleTimeString([], {hour12: false});
}

const count = (n) => n.toLocaleString('en');
const part = (a, b) => (b === 0 ? 0 : a / b);
const sum = (items, of) => items.reduce((all, item) => all + of(item), 0);

// Rows of cells; a cell is text or an element. `left`: columns that hold words.
function table(caption, heads, rows, left = []) {
  const side = (i) => (left.includes(i) ? 'text' : null);
  const row = (cells) => el('tr', {}, ...cells.map((cell, i) =>
    i === 0 ? el('th', {scope: 'row'}, cell) : el('td', {'data-label': heads[i], class: side(i)}, el('span', {}, cell))));
  return el('table', {'aria-label': caption},
    el('thead', {}, el('tr', {}, ...heads.map((head, i) => el('th', {scope: 'col', class: side(i)}, head)))),
    el('tbody', {}, ...rows.map(row)));
}

function swatch(name) {
  const look = engineLook(name);
  const made = el('span', {class: 'swatch', 'aria-hidden': true}, look.letter);
  made.style.backgroundColor = look.colour;
  made.style.color = look.ink;
  return made;
}

// Segments of a bar: [class, part of the whole].
function bar(label, segments) {
  const made = el('div', {class: 'bar', role: 'img', 'aria-label': label});
  for (const [kind, share] of segments) {
    const segment = el('span', {class: `part ${kind}`});
    segment.style.width = `${100 * Math.max(0, share)}%`;
    if (share > 0) made.append(segment);
  }
  return made;
}

// One GPU. It stays in the document, so that the focus does.
class GpuCard {
  constructor(gpu) {
    this.title = el('h3', {}, gpu.name);
    this.note = el('p', {class: 'away-note', hidden: ''});
    this.facts = el('p', {class: 'dim'});
    this.map = new SlabMap(gpu.name);
    this.past = new PoolPast(gpu.name);
    this.rest = el('div');
    this.card = el('article', {class: 'card', 'aria-label': gpu.name},
      this.title, this.note, this.facts, this.map.canvas, this.map.text, this.rest, this.past.part);
    // A canvas does not follow the style by itself.
    dark.addEventListener('change', () => this.last && this.show(...this.last));
  }

  show(gpu, stateNames) {
    this.last = [gpu, stateNames];
    this.card.classList.toggle('away', !gpu.answers);
    this.note.hidden = gpu.answers && gpu.why === '';
    this.note.textContent = gpu.answers ? gpu.why
      : `daemon away since ${clock(gpu.since)}${gpu.pool ? '; this is what it wrote last' : ''} (${gpu.why})`;
    this.map.canvas.hidden = !gpu.pool;
    if (!gpu.pool) return;
    const pool = gpu.pool;
    this.facts.textContent = `${pool.device}${pool.emulated && !pool.device.includes('emulated') ? ', emulated' : ''}: ${bytes(pool.present)} in ` +
      `${count(pool.slabs)} slabs of ${bytes(pool.slab_bytes)}; daemon ${pool.pid}` +
      `${pool.number > 1 ? `, number ${pool.number} of this pool` : ''}`;
    pool.engines.forEach((engine) => engineLook(engine.name));
    this.map.set(pool, stateNames);
    handOvers.note(gpu.name, pool, this.map.owners);
    this.rest.replaceChildren(this.legend(stateNames), ...this.shares(pool), this.engines(pool));
  }

  // Only states that occur.
  legend(stateNames) {
    const counts = new Map();
    for (const state of this.map.states) counts.set(state, (counts.get(state) || 0) + 1);
    const list = el('ul', {class: 'states', 'aria-label': 'States of the slabs'});
    const owned = {colour: '#8b949e', ink: '#000', letter: ''};
    for (const state of stateNames.filter((name) => counts.has(name))) {
      const sample = el('canvas', {width: 15, height: 15, 'aria-hidden': true});
      const colours = {free: cssColour('--free'), line: cssColour('--dim'), ink: cssColour('--ink')};
      const ownerless = state === 'free' || state === 'zeroing' || state === 'absent';
      drawSlab(sample.getContext('2d'), 0, 0, 16, state, ownerless ? null : owned, colours);
      list.append(el('li', {}, sample, `${state} ${count(counts.get(state))}`));
    }
    return list;
  }

  shares(pool) {
    const views = pool.engines.filter((e) => e.view && e.view.active);
    const floorUsed = sum(views, (e) => Math.min(e.held, e.view.floor));
    const above = sum(views, (e) => Math.max(0, e.held - e.view.floor));
    const lacking = sum(views, (e) => Math.max(0, e.view.wanted - e.held));
    const contested = Math.min(above, pool.contested);
    const shares = [
      ['whole', pool.whole, 'leased whole'],
      ['floor', floorUsed, 'of floors in use'],
      ['spare', pool.floors - floorUsed, 'of floors not in use'],
      ['contested', contested, 'contested, in use'],
      ['open', pool.contested - contested, 'contested, free'],
    ].filter(([, n]) => n > 0);
    const legend = shares.map(([kind, n, what]) =>
      el('span', {}, el('span', {class: `part ${kind}`}), `${bytes(n)} ${what}`));
    if (lacking > 0) legend.push(el('span', {}, `engines want ${bytes(lacking)} more than they hold`));
    return [
      bar(shares.map(([, n, what]) => `${bytes(n)} ${what}`).join(', '),
        shares.map(([kind, n]) => [kind, part(n, pool.present)])),
      el('p', {class: 'key'}, ...legend),
    ];
  }

  engines(pool) {
    if (pool.engines.length === 0) return el('p', {class: 'none'}, 'No engine is in the pool.');
    const none = '–';
    const rows = pool.engines.map((engine) => {
      const view = engine.view;
      const of = (n) => (view ? bytes(n) : none);
      const note = engine.quarantined ? ' (dead, in quarantine)' : view && view.suspended ? ' (asleep)' : '';
      return [el('span', {}, swatch(engine.name), engine.name, el('small', {}, note)), bytes(engine.held),
              view ? of(view.wanted) : 'whole slabs', of(view && view.target), of(view && view.floor),
              view && view.cap < pool.slabs * pool.slab_bytes ? of(view.cap) : none];
    });
    return table('Engines in the pool', ['Engine', 'Holds', 'Wants', 'Granted', 'Floor', 'Cap'], rows);
  }
}

function showModels([models, names]) {
  const rows = models.map((model) => {
    const ended = model.on_time + model.late;
    const share = part(model.on_time, ended);
    const slow = model.first_tokens && model.ttft_p99_us > model.slo_ttft_ms * 1000;
    const kept = ended === 0 ? '–' : el('span', {class: share < .95 ? 'bad' : null},
      `${share < .95 ? '▼ ' : ''}${(100 * share).toFixed(1)} % of ${count(ended)}`);
    const ttft = (us) => (model.first_tokens ? duration(us) : '–');
    return [model.name, count(model.waiting), count(model.running), ttft(model.ttft_p50_us),
            el('span', {class: slow ? 'bad' : null}, ttft(model.ttft_p99_us)),
            model.slo_ttft_ms ? duration(model.slo_ttft_ms * 1000) : '–', kept,
            el('span', {}, ...model.engines.map((engine) => engineChip(engine, names)))];
  });
  return table('Models', ['Model', 'Waiting', 'Running', 'TTFT p50', 'TTFT p99', 'SLO', 'On time', 'Engines'], rows, [7]);
}

// Names of the engines in all pools, by their processes.
function namesByPid(gpus) {
  return Object.fromEntries(gpus.flatMap((gpu) => (gpu.pool ? gpu.pool.engines : []))
    .flatMap((engine) => engine.pids.map((pid) => [pid, engine.name])));
}

function readingText(reading, names) {
  const lender = names[reading.lender] || (reading.lender ? `pid ${reading.lender}` : 'another replica');
  return `reads ${bytes(reading.bytes)} of weights from ${lender} since ${clock(reading.since)}` +
    `${reading.step_us ? `, adds ${duration(reading.step_us)} to a step` : ''}`;
}

function engineChip(engine, names) {
  const reads = engine.serves && engine.let_in && !engine.evicted && engine.reading;
  const [mark, word] = reads ? ['◒', readingText(reads, names)] : !engine.serves ? ['○', engine.stopped ? 'stopped by hand' : engine.on_request ? 'starts on request' : engine.scaled ? 'scaled away' : 'does not answer'] : engine.let_in && engine.evicted ? ['◌', 'evicted, comes back on request'] : engine.let_in ? ['●', 'serves'] : ['◐', 'gets nothing new'];
  return el('span', {class: 'chip', title: `${engine.name}: ${word}${engine.gpu ? `, on ${engine.gpu}` : ''}`},
    `${mark} ${engine.name}`, el('small', {}, engine.serves && engine.let_in && !engine.evicted && !reads ? '' : ` ${word}`));
}

function showPlan(plan) {
  if (plan === null) return el('p', {class: 'none'}, 'No planner: engines run as the fleet file says.');
  const rows = plan.places.map((place) => [place.engine, place.state, place.state === 'serve' ? `${+place.rate.toFixed(2)}/s` : '–']);
  const moves = [...plan.changes].reverse().map((change) =>
    el('li', {}, `plan ${change.number}: ${change.engine}, ${change.from} → ${change.to}`));
  return el('div', {class: 'card'},
    el('p', {}, `Plan ${plan.number}${plan.leader ? `, of the leader on ${plan.leader}` : ''}`),
    table('Places of the plan', ['Engine', 'State', 'Target rate'], rows, [1]),
    el('h3', {}, 'Moves'),
    moves.length ? el('ol', {class: 'moves'}, ...moves) : el('p', {class: 'none'}, 'None since this proxy knows of a plan.'));
}

const PARTS = [['counting', 'counting'], ['waiting', 'waiting'], ['engine', 'until the first byte'], ['relaying', 'relaying']];

function showRequests(requests) {
  if (requests === null) return el('p', {class: 'none'}, 'None is kept: this proxy was started with --recent-requests 0.');
  if (requests.length === 0) return el('p', {class: 'none'}, 'No request has ended yet.');
  const times = (request) => PARTS.map(([kind]) => request[`${kind}_us`]);
  const total = (request) => sum(times(request), (us) => us);
  const longest = Math.max(1, ...requests.map(total));
  return el('ol', {}, ...requests.map((request) => {
    const way = PARTS.map(([kind, word]) => `${word} ${duration(request[`${kind}_us`])}`).join(', ');
    return el('li', {},
      el('div', {class: 'way'},
        el('span', {}, clock(request.ended)),
        el('strong', {class: request.status >= 400 ? 'bad' : null}, `${request.status}`),
        el('span', {}, `${request.model}${request.engine && request.engine !== request.model ? ` → ${request.engine}` : ''}${request.attempts > 1 ? ` (attempt ${request.attempts})` : ''}`),
        el('span', {}, duration(total(request))),
        el('code', {title: request.id}, request.id)),
      bar(way, PARTS.map(([kind], i) => [kind, times(request)[i] / longest])),
      el('small', {}, way));
  }));
}
