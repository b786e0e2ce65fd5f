// The live decisions: NDJSON over one long answer, opened again when it ends.

import { api } from "./api.js";

// After a failure it is tried again, ever more slowly.
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;
// A blank line comes each 10 s: after this the connection is dead, even if nothing says so.
const SILENCE_MS = 25_000;
// The lines by which those that come again after a break are known.
const KEPT = 500;

/** What was seen of a stream, so that another can go on where it ended. */
export function memory() {
  return { lines: [], at: 0 };
}

/**
 * Reads decisions that fit `query` and calls `got.lines(texts)`, `got.lost(number)`, `got.state(words, failure)`, and
 * `got.gap(ms)` if lines may be missing after a break. What `seen` holds is not given again.
 * Returns what ends it. Lines are given as text: most are never looked at when there are many.
 */
export function follow(query, recent, got, seen = memory()) {
  const end = new AbortController();
  run(query, recent, got, seen, end.signal);
  return () => end.abort();
}

async function run(query, recent, got, seen, signal) {
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    try {
      got.state("connecting", null);
      await once([...query, ["recent", again(seen, recent)], ["follow", "true"]], got, seen, signal, () => {
        pause = FIRST_PAUSE_MS;
      });
    } catch (error) {
      if (signal.aborted) return;
      got.state("stopped", error.name === "AbortError" ? null : error);
      if (error.status === 400 || error.status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

/** How many of the past to ask for: never more than were seen, or older ones would look new. */
function again(seen, recent) {
  if (!seen.lines.length) return recent;
  return seen.lines.length < recent ? KEPT : seen.lines.length;
}

async function once(query, got, seen, signal, begun) {
  const silence = new AbortController();
  let watch = 0;
  const heard = () => {
    clearTimeout(watch);
    watch = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  const either = AbortSignal.any([signal, silence.signal]);
  heard();
  try {
    const response = await api.decisions(query, either);
    begun();
    got.state("live", null);
    await read(response.body, got, sieve(seen, got), heard, signal);
  } finally {
    clearTimeout(watch);
  }
}

/** Leaves out what came before the break; tells of a gap if the past does not reach back to it. */
function sieve(seen, got) {
  const known = new Set(seen.lines);
  const since = seen.at;
  let first = known.size > 0;
  return (texts) => {
    const fresh = known.size ? texts.filter((text) => !known.delete(text)) : texts;
    if (first && fresh.length === texts.length) got.gap(Date.now() - since);
    first = false;
    seen.lines.push(...fresh);
    if (seen.lines.length > KEPT) seen.lines.splice(0, seen.lines.length - KEPT);
    seen.at = Date.now();
    return fresh;
  };
}

async function read(body, got, fresh, heard, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || signal.aborted) return;
    heard();
    const texts = (rest + value).split("\n");
    rest = texts.pop();
    const lines = [];
    for (const text of texts) {
      if (text.startsWith('{"lost"')) got.lost(JSON.parse(text).lost);
      else if (text.trim()) lines.push(text);
    }
    const left = lines.length ? fresh(lines) : lines;
    if (left.length) got.lines(left);
  }
}
