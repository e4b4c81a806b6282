"use strict";
// Chooses topics, ranks their words, and shows the topics of a word. Without this script the map and the table can be read.

const values = JSON.parse(document.getElementById("data").textContent);
const chosen = { topic: 0, relevance: 1, fit: 0, word: null };
const at = (id) => document.getElementById(id);
const circles = [...document.querySelectorAll("#map .topic")];
const links = circles.filter((link) => link.dataset.fit === "0").sort((a, b) => a.dataset.topic - b.dataset.topic);
const unit = Number(at("map").dataset.unit);
const usual = at("areas").textContent;
const nTopics = values.topics.length;

function percent(share) {
  const number = 100 * share;
  if (number >= 0.1) return number.toFixed(number < 10 ? 2 : 1);
  return number < 0.001 ? "< 0.001" : number.toFixed(3);
}

// λ log φ + (1 - λ) log(φ / p), of the fit that ranks
function relevance(topic, place) {
  const fit = values.fits[chosen.fit];
  const log = Math.log(fit.probabilities[topic][place]);
  return log - (1 - chosen.relevance) * Math.log(fit.overall[values.topics[topic][place]]);
}

function ranked(topic) {
  const words = values.topics[topic].map((word, place) => ({ word, place, relevance: relevance(topic, place) }));
  words.sort((a, b) => b.relevance - a.relevance || a.word - b.word);
  return words.slice(0, values.n_words);
}

function made(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function named(word) {
  return made("bdi", "", values.words[word]);
}

function bar(kind, share, largest) {
  const element = made("div", `bar ${kind}`);
  element.style.width = `${(100 * share) / largest}%`;
  return element;
}

function rowOf({ word, place }, largest) {
  const row = made("tr");
  const button = made("button");
  button.type = "button";
  button.dataset.word = word;
  button.setAttribute("aria-pressed", String(chosen.word === word));
  button.append(named(word));
  button.addEventListener("click", () => choose({ word: chosen.word === word ? null : word }));
  button.addEventListener("focus", () => showWord(word));
  button.addEventListener("blur", () => showWord(chosen.word));
  row.addEventListener("mouseenter", () => showWord(word));
  row.addEventListener("mouseleave", () => showWord(chosen.word));
  const head = made("th");
  head.scope = "row";
  head.append(button);
  const bars = made("td");
  bars.setAttribute("aria-hidden", "true");
  const shares = values.fits.map((fit) => fit.probabilities[chosen.topic][place]);
  const overall = values.fits[chosen.fit].overall[word];
  shares.forEach((share, fit) => bars.append(bar(`of-${fit}`, share, largest)));
  bars.append(bar("overall", overall, largest));
  row.append(head, bars, ...shares.map((share) => made("td", "", percent(share))), made("td", "from-all", percent(overall)));
  return row;
}

function showTopic() {
  const topic = chosen.topic;
  const words = ranked(topic);
  const all = words.flatMap(({ word, place }) => [
    ...values.fits.map((fit) => fit.probabilities[topic][place]), values.fits[chosen.fit].overall[word],
  ]);
  const largest = Math.max(...all);
  const focused = document.activeElement?.dataset?.word;
  at("words").tBodies[0].replaceChildren(...words.map((each) => rowOf(each, largest)));
  if (focused !== undefined) at("words").querySelector(`button[data-word="${focused}"]`)?.focus();
  const shares = values.fits.map((fit) => `${percent(fit.shares[topic])} %`);
  const label = links[topic].dataset.label;
  at("words-heading").textContent = `Topic ${topic}: ${shares.join(" and ")} of all words${label ? `; ${label}` : ""}`;
  at("topic").value = topic;
  for (const link of circles) link.classList.toggle("chosen", Number(link.dataset.topic) === topic);
  for (const link of links) link.tabIndex = Number(link.dataset.topic) === topic ? 0 : -1;
  for (const row of document.querySelectorAll(".all tbody tr")) row.classList.toggle("chosen", row.id === `topic-${topic}`);
}

// Areas of circles: shares of the topics in the uses of a word, or in all words.
function showWord(word) {
  for (const link of circles) {
    const fit = values.fits[link.dataset.fit];
    const letter = word === null ? null : fit.radii[word][link.dataset.topic];
    const radius = word === null ? Math.sqrt(fit.shares[link.dataset.topic]) : values.radii.indexOf(letter) / (values.radii.length - 1);
    link.querySelector("circle").setAttribute("r", (unit * radius).toFixed(2));
  }
  if (word === null) at("areas").textContent = usual;
  else at("areas").replaceChildren("Area of a circle: the topic's share of the uses of ", named(word), ".");
}

function spoken() {
  const words = ranked(chosen.topic).slice(0, 3).map(({ word }) => values.words[word]);
  if (chosen.word === null) return `topic ${chosen.topic}, first words: ${words.join(", ")}`;
  const letters = [...values.fits[0].radii[chosen.word]];
  const shares = letters.map((letter, topic) => [topic, (values.radii.indexOf(letter) / (values.radii.length - 1)) ** 2]);
  shares.sort(([, a], [, b]) => b - a);
  const most = shares.slice(0, 3).map(([topic, share]) => `topic ${topic}, ${Math.round(100 * share)} %`);
  return `${values.words[chosen.word]} is used most in ${most.join("; ")}`;
}

function choose(changes) {
  Object.assign(chosen, changes);
  showTopic();
  showWord(chosen.word);
  at("said").textContent = spoken();
}

function step(by) {
  choose({ topic: (chosen.topic + by + nTopics) % nTopics });
}

for (const link of circles) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    choose({ topic: Number(link.dataset.topic) });
  });
}
at("map").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  step(by);
  links[chosen.topic].focus();
});
at("topic").addEventListener("change", (event) => choose({ topic: Number(event.target.value) }));
at("before").addEventListener("click", () => step(-1));
at("after").addEventListener("click", () => step(1));
at("relevance").addEventListener("input", (event) => {
  at("lambda").textContent = Number(event.target.value).toString();
  choose({ relevance: Number(event.target.value) });
});
for (const radio of document.querySelectorAll("input[name=ranked]")) {
  radio.addEventListener("change", () => choose({ fit: Number(radio.value) }));
}
for (const element of document.querySelectorAll(".controls, .words")) element.hidden = false;
choose({});
at("said").textContent = "";
