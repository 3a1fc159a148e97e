
const LOG_MS = 2000;

// The end of one engine's log, read again and again while it is open.
class LogPanel {
  constructor() {
    this.engine = '';
    this.paused = false;
    this.turn = 0;  // an answer of a former one is not shown
    at('log-close').addEventListener('click', () => this.open(''));
    at('log-pause').addEventListener('click', () => this.pause(!this.paused));
  }

  // A button for each engine; `shown`: this proxy serves logs.
  offer({engines, shown}) {
    if (!shown) return el('p', {class: 'none'}, 'None is shown: this proxy was started with --no-page-logs.');
    return engines.map((name) => {
      const button = el('button', {type: 'button', 'aria-controls': 'log', 'aria-pressed': name === this.engine}, name);
      button.addEventListener('click', () => this.open(name));
      return button;
    });
  }

  open(name) {
    this.engine = name;
    at('log').hidden = name === '';
    at('log-name').textContent = name;
    at('log-text').textContent = at('log-note').textContent = '';
    for (const button of at('log-engines').querySelectorAll('button')) {
      button.setAttribute('aria-pressed', button.textContent === name);
    }
    this.pause(false);
  }

  pause(paused) {
    this.paused = paused;
    at('log-pause').textContent = paused ? 'Go on' : 'Pause';
    this.read();
  }

  async read() {
    const turn = ++this.turn;
    clearTimeout(this.timer);
    if (this.paused || this.engine === '') return;
    if (!document.hidden) {
      const said = await this.ask();
      if (turn !== this.turn) return;
      this.show(said);
    }
    this.timer = setTimeout(() => this.read(), LOG_MS);
  }

  async ask() {
    try {
      const answer = await fetch(`logs/${encodeURIComponent(this.engine)}`);
      const text = await answer.text();
      if (answer.ok) return {text, note: `at ${clock(Date.now())}`};
      return {text: '', note: JSON.parse(text).error.message};
    } catch {
      return {note: 'the proxy gives no answer; what is shown is old'};
    }
  }

  // As a terminal shows it: without colours, and of a line that was written over
  // the last state. Someone who reads further up is left there.
  show({text, note}) {
    at('log-note').textContent = note;
    if (text === undefined) return;
    const shown = at('log-text');
    const follows = shown.scrollHeight - shown.scrollTop - shown.clientHeight < 30;
    const lines = text.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, '').replaceAll('\r\n', '\n').split('\n');
    const plain = lines.map((line) => line.slice(line.lastIndexOf('\r', line.length - 2) + 1)).join('\n');
    if (shown.textContent === plain) return;
    shown.textContent = plain;
    if (follows) shown.scrollTop = shown.scrollHeight;
  }
}
