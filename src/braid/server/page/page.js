'use strict';

const STATS_MS = 1000, LANES_MS = 2000;
const at = id => document.getElementById(id);
let messages = [];  // of the conversation, as the API takes them
let running = null;  // aborts the answer on its way

function headers() {
  const all = {'Content-Type': 'application/json'};
  if (at('key').value) all.Authorization = 'Bearer ' + at('key').value;
  return all;
}

function bubble(kind, text) {
  const item = document.createElement('li');
  item.className = kind;
  item.append(document.createTextNode(text));
  at('messages').append(item);
  item.scrollIntoView();
  return item;
}

// Yields the data of a stream's events, whole lines however they are cut.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) if (line.startsWith('data: ')) yield line.slice(6);
  }
}

// Shows an answer as it comes. Returns its text.
async function answer(item, signal) {
  const body = {messages, stream: true, stream_options: {include_usage: true}};
  if (at('temperature').value !== '') body.temperature = Number(at('temperature').value);
  const response = await fetch('v1/chat/completions',
      {method: 'POST', headers: headers(), body: JSON.stringify(body), signal});
  if (response.status === 401) at('key').hidden = false;
  if (!response.ok) throw new Error((await response.json()).error.message);
  let text = '', reasoning = null, first = 0;
  for await (const data of events(response)) {
    if (data === '[DONE]') break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    if (chunk.usage && first) {
      const seconds = (performance.now() - first) / 1000;
      const tokens = chunk.usage.completion_tokens;
      if (seconds > 0 && tokens > 1)
        at('speed').textContent = ((tokens - 1) / seconds).toFixed(1) + ' tokens/s';
    }
    const delta = chunk.choices.length ? chunk.choices[0].delta : {};
    if (delta.reasoning_content) {
      if (!reasoning) {
        const details = document.createElement('details');
        const summary = document.createElement('summary');
        summary.textContent = 'Reasoning';
        reasoning = document.createTextNode('');
        details.append(summary, reasoning);
        item.prepend(details);
      }
      reasoning.data += delta.reasoning_content;
    }
    if (delta.content) {
      text += delta.content;
      item.lastChild.data = text;
    }
    if (!first && (delta.content || delta.reasoning_content)) first = performance.now();
    if (at('messages').scrollHeight - at('messages').scrollTop - at('messages').clientHeight < 200)
      item.scrollIntoView({block: 'end'});
  }
  return text;
}

async function send() {
  const text = at('text').value.trim();
  if (!text || running) return;
  at('text').value = '';
  messages.push({role: 'user', content: text});
  bubble('user', text);
  const item = bubble('assistant', '');
  const control = running = new AbortController();
  const conversation = messages;
  at('send').disabled = !(at('stop').disabled = false);
  try {
    await answer(item, control.signal);
  } catch (error) {
    if (error.name !== 'AbortError') {
      item.className = 'error';
      item.lastChild.data += (item.lastChild.data && '\n') + error.message;
    }
  }
  // An answer that was cut stays in the conversation; one that failed leaves it.
  if (item.className === 'error') conversation.pop();
  else conversation.push({role: 'assistant', content: item.lastChild.data});
  if (running === control) {
    running = null;
    at('send').disabled = !(at('stop').disabled = true);
  }
}

let before = null;  // the last numbers

async function stats() {
  try {
    const now = await (await fetch('stats')).json();
    if (now.error) throw new Error(now.error.message);
    const kv = now.kv_pages;
    at('model').textContent = now.model;
    at('running').textContent = now.running + ' of ' + now.max_running;
    at('waiting').textContent = now.waiting;
    at('batch').textContent = now.step_tokens + ' of ' + now.max_step_tokens;
    at('held').value = kv.total ? kv.held / kv.total : 0;
    at('pages').textContent = `${kv.held} of ${kv.total} pages, ${kv.cached} cached`;
    at('preemptions').textContent = now.preemptions;
    at('cached').textContent = now.prefix_queries
        ? (100 * now.prefix_hits / now.prefix_queries).toFixed(0) + '%' : '';
    if (before && now.seconds > before.seconds) {
      const change = name => now[name] - before[name];
      const seconds = change('seconds');
      at('generated').textContent = (change('answer_tokens') / seconds).toFixed(1);
      at('prompt').textContent = (change('prompt_tokens') / seconds).toFixed(1);
      if (change('steps') > 0)
        at('step').textContent = (1000 * change('step_seconds') / change('steps')).toFixed(2);
    }
    before = now;
  } catch (error) {
    at('model').textContent = error.message;
    before = null;
  }
  setTimeout(stats, STATS_MS);
}

async function lanes() {
  if (at('lanes').open) {
    try {
      const response = await fetch('step.svg');
      if (!response.ok) throw new Error((await response.json()).error.message);
      const url = URL.createObjectURL(await response.blob());
      URL.revokeObjectURL(at('picture').src);
      at('picture').src = url;
      at('nolanes').textContent = '';
    } catch (error) {
      at('nolanes').textContent = error.message;
    }
  }
  setTimeout(lanes, LANES_MS);
}

at('form').addEventListener('submit', event => { event.preventDefault(); send(); });
at('text').addEventListener('keydown', event => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
at('stop').addEventListener('click', () => running && running.abort());
at('new').addEventListener('click', () => {
  if (running) running.abort();
  messages = [];
  at('messages').replaceChildren();
});
stats();
lanes();
