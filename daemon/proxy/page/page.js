
const WORD_MS = 12000;  // the proxy says something every 5 s
const cards = new Map();  // by GPU
const shown = new Map();  // by place: what it shows, as text
let lastWord = 0;
let lostSince = 0;
let source = null;
let past = null;  // of all pools

const at = (id) => document.getElementById(id);
const logPanel = new LogPanel();

// Makes the content of `id` again if what it shows has changed.
function place(id, value, make) {
  const text = JSON.stringify(value);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  at(id).replaceChildren(...[make(value)].flat());
}

function showGpus(gpus, stateNames) {
  if (gpus.length === 0 && cards.size === 0) {
    at('gpus').replaceChildren(el('p', {class: 'none'}, 'No daemon was found. Start one: fineserved --gpu 0 --pool auto --fleet FILE'));
    return;
  }
  for (const gpu of gpus) {
    if (!cards.has(gpu.name)) {
      if (cards.size === 0) at('gpus').replaceChildren();
      cards.set(gpu.name, new GpuCard(gpu));
      at('gpus').append(cards.get(gpu.name).card);
      showPast(gpu.name);
    }
    const text = JSON.stringify(gpu);
    if (shown.get(gpu.name) === text) continue;
    shown.set(gpu.name, text);
    cards.get(gpu.name).show(gpu, stateNames);
  }
}

function showPast(gpu) {
  if (past !== null) cards.get(gpu).past.set(past, past.gpus.find((pool) => pool.name === gpu));
}

function alarms(frame) {
  const list = [];
  for (const gpu of frame.away) {
    list.push(`No daemon decides about requests${gpu ? ` for ${gpu}` : ''}: the proxy admits or refuses them by itself, as the fleet's without_daemon says.`);
  }
  if (frame.unscheduled > 0) list.push(`${count(frame.unscheduled)} requests were admitted without a daemon since the proxy began.`);
  if (frame.draining) list.push('This proxy is draining: it takes no new requests.');
  return list;
}

function show(frame) {
  showGpus(frame.gpus, frame.states);
  place('hand-overs', {list: handOvers.list, many: cards.size > 1}, showHandOvers);
  place('models', [frame.models, namesByPid(frame.gpus)], showModels);
  place('plan', frame.plan, showPlan);
  place('requests', frame.requests, showRequests);
  const engines = frame.models.flatMap((model) => model.engines.map((engine) => engine.name));
  place('log-engines', {engines, shown: frame.logs}, (offered) => logPanel.offer(offered));
  place('alarms', alarms(frame), (texts) => texts.map((text) => el('p', {}, text)));
  at('version').textContent = frame.version;
  document.title = frame.away.length || frame.gpus.some((gpu) => !gpu.answers) ? '⚠ FineServe' : 'FineServe';
}

function setLink(text, lost) {
  if (at('link').textContent !== text) at('link').textContent = text;
  at('link').classList.toggle('lost', lost);
}

function heard() {
  lastWord = performance.now();
  lostSince = 0;
  setLink('live', false);
}

function lose(why) {
  if (lostSince === 0) lostSince = Date.now();
  setLink(`${why} since ${clock(lostSince)}; what is shown is old`, true);
}

function connect() {
  if (source) source.close();
  source = new EventSource('frames');
  source.addEventListener('message', (event) => {
    heard();
    show(JSON.parse(event.data));
  });
  source.addEventListener('history', (event) => {
    heard();
    past = JSON.parse(event.data);
    for (const gpu of cards.keys()) showPast(gpu);
  });
  source.addEventListener('beat', heard);
  source.addEventListener('error', () => {
    // A browser asks again by itself unless it was refused.
    const refused = source.readyState === EventSource.CLOSED;
    lose(refused ? 'the proxy refuses another viewer' : 'no connection to the proxy');
    if (refused) setTimeout(connect, 5000);
  });
}

setInterval(() => {
  if (lastWord !== 0 && performance.now() - lastWord > WORD_MS) lose('the proxy says nothing');
}, 1000);
connect();
