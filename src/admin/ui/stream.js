// The live decisions: NDJSON over one long response, requested again when it ends.

import { api } from "./api.js";

// The pauses between attempts after a failure, which double each time.
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;
// The proxy sends a blank line every 10 s, so a connection that is silent for this long is dead.
const SILENCE_MS = 25_000;
// The lines that are stored to recognize repeated ones after an interruption.
const MEMORY_LINES = 500;

/** Creates the memory of a stream, from which another can continue. */
export function memory() {
  return { lines: [], at: 0 };
}

/**
 * Reads decisions that match `query` and calls `on.lines(texts)`, `on.lost(number)`, `on.state(text, failure)`, and
 * `on.gap(ms)` if lines may be missing after an interruption. Lines in `seen` are left out. Returns the function that
 * ends the stream. Lines are passed as text, since most of them are never parsed when there are many.
 */
export function follow(query, recent, on, seen = memory()) {
  const end = new AbortController();
  run(query, recent, on, seen, end.signal);
  return () => end.abort();
}

async function run(query, recent, on, seen, signal) {
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    try {
      on.state("connecting", null);
      const parameters = [...query, ["recent", recentToRequest(seen, recent)], ["follow", "true"]];
      await once(parameters, on, seen, signal, () => {
        pause = FIRST_PAUSE_MS;
      });
    } catch (error) {
      if (signal.aborted) return;
      on.state("stopped", error.name === "AbortError" ? null : error);
      if (error.status === 400 || error.status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

/** Returns the number of recent lines to request: never more than were seen, or older ones would look new. */
function recentToRequest(seen, recent) {
  if (!seen.lines.length) return recent;
  return seen.lines.length < recent ? MEMORY_LINES : seen.lines.length;
}

async function once(query, on, seen, signal, started) {
  const silence = new AbortController();
  let watch = 0;
  const resetWatch = () => {
    clearTimeout(watch);
    watch = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  const either = AbortSignal.any([signal, silence.signal]);
  resetWatch();
  try {
    const response = await api.decisions(query, either);
    started();
    on.state("live", null);
    await read(response.body, on, newLines(seen, on), resetWatch, signal);
  } finally {
    clearTimeout(watch);
  }
}

/** Returns a filter for repeated lines. It reports a gap if the recent lines do not reach back to the interruption. */
function newLines(seen, on) {
  const known = new Set(seen.lines);
  const since = seen.at;
  let first = known.size > 0;
  return (texts) => {
    const fresh = known.size ? texts.filter((text) => !known.delete(text)) : texts;
    if (first && fresh.length === texts.length) on.gap(Date.now() - since);
    first = false;
    seen.lines.push(...fresh);
    if (seen.lines.length > MEMORY_LINES) seen.lines.splice(0, seen.lines.length - MEMORY_LINES);
    seen.at = Date.now();
    return fresh;
  };
}

async function read(body, on, fresh, resetWatch, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || signal.aborted) return;
    resetWatch();
    const texts = (rest + value).split("\n");
    rest = texts.pop();
    const lines = [];
    for (const text of texts) {
      if (text.startsWith('{"lost"')) on.lost(JSON.parse(text).lost);
      else if (text.trim()) lines.push(text);
    }
    const left = lines.length ? fresh(lines) : lines;
    if (left.length) on.lines(left);
  }
}
