
'use strict';

// Okabe and Ito's colours, which people of every colour vision tell apart. With
// more engines they come again: each engine has a letter, too.
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442'];
const DARK_INK = new Set(['#e69f00', '#56b4e9', '#f0e442', '#cc79a7']);

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

// The engine's letter around (x, y).
function drawLetter(g, look, px, x, y) {
  g.fillStyle = look.ink;
  g.font = `${px}px system-ui, sans-serif`;
  g.textAlign = 'center';
  g.textBaseline = 'middle';
  g.fillText(look.letter, x, y);
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A drawing of items, of which a pointer or the keyboard chooses one, and a text
// about that. A subclass has the items: length, first (chosen by the focus),
// layOut(width), which returns the height, paint(g, width, height), under(event),
// keys (by name, where each leads to from an item), and about(item).
class Figure {
  constructor(kind, type, label) {
    this.canvas = el('canvas', {
      class: kind, tabindex: 0, role: 'application', 'aria-roledescription': type, 'aria-label': label,
    });
    this.text = el('p', {class: `about ${kind}-text`, 'aria-live': 'polite'});
    this.chosen = -1;
    this.canvas.addEventListener('keydown', (e) => this.onKey(e));
    this.canvas.addEventListener('focus', () => this.choose(this.chosen < 0 ? this.first : this.chosen));
    this.canvas.addEventListener('pointermove', (e) => this.choose(this.under(e)));
    this.canvas.addEventListener('pointerleave', () => {
      if (document.activeElement !== this.canvas) this.choose(-1);
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    dark.addEventListener('change', () => this.draw());
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (width === 0 || this.length === 0) return;
    const height = this.layOut(width);
    const ratio = devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const g = this.canvas.getContext('2d');
    g.scale(ratio, ratio);
    this.paint(g, width, height);
  }

  onKey(event) {
    const to = this.keys[event.key];
    if (!to || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const item = to(this.chosen < 0 ? this.first : this.chosen);
    if (item >= 0 && item < this.length) this.choose(item);
  }

  choose(item) {
    if (item === this.chosen) return;
    this.chosen = item;
    this.draw();
    this.describe();
  }

  describe() {
    const text = this.chosen >= 0 && this.chosen < this.length ? this.about(this.chosen) : '';
    if (this.text.textContent !== text) this.text.textContent = text;
  }
}
