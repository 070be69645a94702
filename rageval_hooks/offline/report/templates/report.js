"use strict";
// All texts come from files of other people: they are set with textContent, never as markup.
(() => {
  const PAGE = 50;
  const load = (id) => JSON.parse(document.getElementById(id).textContent);
  const index = load("index");
  const [ID, RUN, QUERY, DOCUMENT, FAILED, UNSUPPORTED, VALUES, VERDICT, REASON, CAUSE] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  const VERDICTS = { bad: "bad", doubtful: "weak", good: "good", declined: "weak", not_evaluable: "weak" };
  const words = (verdict) => verdict.replaceAll("_", " ");
  const $ = (id) => document.getElementById(id);
  const state = { page: 0, other: null, open: new Set(), columns: new Set(index.columns) };
  const files = index.files.map((_, place) => load(`rows-${place}`));
  let rows = [];

  function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in made && !name.includes("-")) made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  function number(value, binary) {
    if (value === null || value === undefined) return "–";
    if (binary && (value === 0 || value === 1)) return value ? "yes" : "no";
    if (Number.isInteger(value)) return String(value);
    return Math.abs(value) < 0.001 ? value.toPrecision(2) : value.toFixed(3);
  }

  // One row per answer; with a comparison one per question and run that either file has.
  function buildRows() {
    const first = files[0].map((data, place) => ({ data, place, other: null, otherPlace: null }));
    if (state.other === null) return first;
    const [before, after] = [files[0], files[state.other]];
    const [placeBefore, placeAfter] = [placeFinder(before), placeFinder(after)];
    for (const row of first) {
      row.otherPlace = placeAfter(row.data);
      row.other = row.otherPlace === null ? null : after[row.otherPlace];
    }
    after.forEach((other, otherPlace) => {
      const place = placeBefore(other);
      const data = place === null ? null : before[place];
      if (data === null || data[RUN] !== other[RUN]) first.push({ data, place, other, otherPlace });
    });
    return first;
  }

  // Finds the same run of a question in a file. A file with fewer runs has its first answer compared with the others.
  function placeFinder(answers) {
    const [byRun, byQuestion] = [new Map(), new Map()];
    answers.forEach((data, place) => {
      byRun.set(`${data[ID]}\n${data[RUN]}`, place);
      if (!byQuestion.has(data[ID])) byQuestion.set(data[ID], place);
    });
    return (wanted) => {
      const place = byRun.get(`${wanted[ID]}\n${wanted[RUN]}`) ?? byQuestion.get(wanted[ID]);
      // An id may stand for another question in the second file: then the two are not compared.
      return place !== undefined && answers[place][QUERY] === wanted[QUERY] ? place : null;
    };
  }

  function runsOf(row) {
    const runs = [...new Set([row.data, row.other].filter(Boolean).map((data) => data[RUN]))];
    const repeated = index.files[0].runs > 1 || runs.some((run) => run > 1);
    return repeated ? runs.map((run) => `run ${run}`).join(" → ") : "";
  }

  const shownData = (row) => row.other || row.data;
  const valueOf = (row, score) => (shownData(row) ? shownData(row)[VALUES][score] : null);

  function changeOf(row, score) {
    if (!row.data || !row.other) return null;
    const [before, after] = [row.data[VALUES][score], row.other[VALUES][score]];
    if (before === null || after === null) return null;
    return index.scores[score].lower ? before - after : after - before;
  }

  const FILTERS = {
    all: ["all", () => true],
    ...Object.fromEntries(Object.keys(VERDICTS).map((verdict) => [verdict, [words(verdict), (row) => shownData(row)[VERDICT] === verdict]])),
    failed: ["failed", (row) => Boolean(row.data?.[FAILED] || row.other?.[FAILED])],
    unsupported: ["with unsupported sentences", (row) => shownData(row)[UNSUPPORTED] > 0],
    worse: ["worse than before", (row, score) => (changeOf(row, score) ?? 0) < 0],
    better: ["better than before", (row, score) => (changeOf(row, score) ?? 0) > 0],
    only: ["in one file only", (row) => !row.data || !row.other],
  };

  function selected() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = FILTERS[$("status").value][1];
    const score = sortScore();
    const limit = $("range-max").value === "" ? null : Number($("range-max").value);
    const limited = Number($("range-score").value);
    return rows.filter((row) => {
      const data = shownData(row);
      const text = `${data[ID]} ${data[QUERY]} ${data[DOCUMENT]}`.toLowerCase();
      if (!words.every((word) => text.includes(word)) || !matches(row, score ?? index.columns[0])) return false;
      const value = limit === null ? null : valueOf(row, limited);
      return limit === null || (value !== null && value <= limit);
    });
  }

  function sortScore() {
    const chosen = $("sort").value;
    return /^\d+$/.test(chosen) ? Number(chosen) : chosen.startsWith("change:") ? Number(chosen.slice(7)) : null;
  }

  function sorted(found) {
    const chosen = $("sort").value;
    if (chosen === "file") return found;
    const score = sortScore();
    const key = chosen === "question" ? (row) => shownData(row)[QUERY].toLowerCase()
      : chosen.startsWith("change:") ? (row) => changeOf(row, score)
      : (row) => { const value = valueOf(row, score); return value === null ? null : index.scores[score].lower ? -value : value; };
    const sign = $("order").value === "worst" ? 1 : -1;
    // Questions without a value come last in either order.
    return found.map((row) => [key(row), row]).sort(([one], [other]) => {
      if (one === null || other === null) return (one === null) - (other === null);
      return one < other ? -sign : one > other ? sign : 0;
    }).map(([, row]) => row);
  }

  function render() {
    const found = sorted(selected());
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const columns = index.scores.map((_, place) => place).filter((place) => state.columns.has(place));
    const table = element("table", { className: "questions" }, head(columns));
    const body = element("tbody");
    for (const row of found.slice(state.page * PAGE, (state.page + 1) * PAGE)) addRow(body, row, columns);
    table.append(body);
    $("question-table").replaceChildren(table);
    $("count").textContent = `${found.length} of ${rows.length} ${rows.length === 1 ? "answer" : "answers"}`;
    $("pages").hidden = pages < 2;
    $("page").textContent = `page ${state.page + 1} of ${pages}`;
    $("previous").disabled = state.page === 0;
    $("next").disabled = state.page === pages - 1;
  }

  function head(columns) {
    const cell = (name, key) => {
      const active = $("sort").value === key;
      const th = element("th", { scope: "col", className: key === "question" ? "q" : "" });
      if (active) th.setAttribute("aria-sort", $("order").value === "worst" ? "ascending" : "descending");
      const button = element("button", { type: "button" }, `${name}${active ? ($("order").value === "worst" ? " ▲" : " ▼") : ""}`);
      button.addEventListener("click", () => {
        if (active) $("order").value = $("order").value === "worst" ? "best" : "worst";
        else { $("sort").value = key; $("order").value = "worst"; }
        state.page = 0;
        render();
        document.querySelector(`[data-sort="${key}"]`)?.focus();
      });
      button.dataset.sort = key;
      th.append(button);
      return th;
    };
    const scores = columns.map((place) => cell(index.scores[place].name + (index.scores[place].lower ? " ↓" : ""), String(place)));
    return element("thead", {}, element("tr", {}, cell("question", "question"), ...scores));
  }

  function addRow(body, row, columns) {
    const data = shownData(row);
    const key = `${row.place}/${row.otherPlace}`;
    const opener = element("button", { type: "button", className: "opener", "aria-expanded": "false" }, data[QUERY] || "(no question)");
    const tags = data[VERDICT] ? [verdictTag(data[VERDICT])] : [];
    const before = row.data && row.other && row.data[VERDICT];
    if (before && before !== data[VERDICT]) tags.unshift(verdictTag(before), "→ ");
    if (row.data?.[FAILED] || row.other?.[FAILED]) tags.push(element("span", { className: "tag bad" }, "failed"));
    if (data[UNSUPPORTED]) tags.push(element("span", { className: "tag weak" }, `${data[UNSUPPORTED]} unsupported`));
    if (state.other !== null && (!row.data || !row.other)) {
      tags.push(element("span", { className: "tag weak" }, `only in ${index.files[row.data ? 0 : state.other].name}`));
    }
    const about = [data[CAUSE], data[ID], runsOf(row), data[DOCUMENT]];
    const line = element("tr", {},
      element("td", { className: "q" }, opener,
        data[REASON] && data[VERDICT] !== "good" ? element("span", { className: "reason" }, data[REASON]) : null,
        element("small", {}, ...tags, about.filter(Boolean).join(" · "))),
      ...columns.map((place) => scoreCell(row, place)));
    const detail = element("td", { className: "detail", colSpan: columns.length + 1 });
    const detailRow = element("tr", { hidden: true }, detail);
    const show = () => {
      opener.setAttribute("aria-expanded", "true");
      detailRow.hidden = false;
      if (!detail.hasChildNodes()) detail.append(sides(row));
    };
    opener.addEventListener("click", () => {
      if (detailRow.hidden) { state.open.add(key); show(); return; }
      state.open.delete(key);
      opener.setAttribute("aria-expanded", "false");
      detailRow.hidden = true;
    });
    body.append(line, detailRow);
    if (state.open.has(key)) show();
  }

  function verdictTag(verdict) {
    return element("span", { className: `tag verdict ${VERDICTS[verdict] ?? "weak"}` }, words(verdict));
  }

  function scoreCell(row, place) {
    const score = index.scores[place];
    const cell = element("td", { "data-label": score.name });
    if (state.other === null) {
      cell.textContent = number(valueOf(row, place), score.binary);
      return cell;
    }
    const [before, after] = [row.data?.[VALUES][place], row.other?.[VALUES][place]];
    cell.append(`${number(before, score.binary)} → ${number(after, score.binary)} `, changeMark(changeOf(row, place)));
    return cell;
  }

  function changeMark(change) {
    if (!change) return "";
    return change < 0 ? element("span", { className: "worse" }, "▼ worse") : element("span", { className: "better" }, "▲ better");
  }

  // ------------------------------------------------------------------ details

  function sides(row) {
    const found = element("div", { className: "sides" });
    // Every turn has an element of its own with its details.
    const before = row.data ? load(`turn-0-${row.place}`) : null;
    if (before) found.append(side(before, state.other === null ? null : index.files[0].name, null));
    if (row.other) found.append(side(load(`turn-${state.other}-${row.otherPlace}`), index.files[state.other].name, before));
    return found;
  }

  function labelled(name, ...children) {
    return [element("h4", {}, name), ...children];
  }

  function side(turn, title, before) {
    const found = element("div", { className: "side" });
    if (title) found.append(element("h3", {}, title));
    found.append(...labelled("Question", element("p", { className: "answer" }, turn.query || "(none)")));
    if (turn.verdict) found.append(...labelled("Verdict", element("p", {}, verdictTag(turn.verdict), ` ${[turn.cause, turn.reason].filter(Boolean).join(": ")}`)));
    if (turn.error) found.append(...labelled("Failed", element("p", { className: "answer worse" }, turn.error)));
    found.append(...labelled("Answer", ...answer(turn)));
    if (turn.reference) found.append(...labelled("Reference answer", element("p", { className: "answer" }, turn.reference)));
    if (turn.answerable === false) found.append(...labelled("Right answer", element("p", {}, "a refusal: the question is marked as unanswerable")));
    if (turn.facts?.length) found.append(...labelled("No passage has", element("p", {}, turn.facts.join(", "))));
    found.append(...labelled("Scores", scoreList(turn, before)));
    if (turn.passages?.length) found.append(...labelled(`Passages (${turn.passages.length})`, passages(turn)));
    if (turn.trace_id && index.trace_url) {
      const href = index.trace_url.replaceAll("{trace_id}", encodeURIComponent(turn.trace_id));
      found.append(element("p", {}, element("a", { href, target: "_blank", rel: "noopener noreferrer" }, "Open the trace")));
    }
    return found;
  }

  // The answer with its sentences marked by their support, and the facts that no passage has.
  function answer(turn) {
    const text = turn.response || "";
    if (!text) return [element("p", {}, "(none)")];
    const evidence = turn.evidence || [];
    const spans = [];
    const reasons = element("ul", { className: "reasons" });
    for (const { score, sentences } of evidence) {
      let from = 0;
      for (const { text: sentence, support, note, quotes } of sentences) {
        const next = text.indexOf(sentence, from);
        const start = next >= 0 ? next : text.indexOf(sentence);
        if (start >= 0) from = start + sentence.length;
        if (support === "supported") continue;
        const why = [note, ...(quotes || []).map((quote) => `closest: passage ${quote.passage}`)].filter(Boolean).join("; ");
        reasons.append(element("li", {}, `${score}, ${support}: “${sentence}”${why ? ` (${why})` : ""}`));
        if (start >= 0) spans.push({ start, end: from, support });
      }
    }
    const shown = element("p", { className: "answer" });
    for (const piece of pieces(text, spans)) {
      const nodes = withFacts(piece.text, turn.facts || []);
      shown.append(...(piece.support ? [element("mark", { className: piece.support, title: piece.support }, ...nodes)] : nodes));
    }
    const found = [shown];
    if (spans.length || turn.facts?.length) {
      found.unshift(element("p", { className: "legend" },
        "Marked: ", element("mark", { className: "unsupported" }, "unsupported"), " ", element("mark", { className: "weak" }, "weakly supported"),
        " ", element("mark", { className: "fact" }, "fact that no passage has")));
    }
    if (reasons.hasChildNodes()) found.push(reasons);
    return found;
  }

  function pieces(text, spans) {
    const cuts = [...new Set([0, text.length, ...spans.flatMap(({ start, end }) => [start, end])])].sort((one, other) => one - other);
    return cuts.slice(0, -1).map((start, place) => {
      const over = spans.filter((span) => span.start <= start && span.end > start).map((span) => span.support);
      return { text: text.slice(start, cuts[place + 1]), support: over.includes("unsupported") ? "unsupported" : over[0] };
    });
  }

  function withFacts(text, facts) {
    const nodes = [];
    let rest = text;
    while (rest) {
      const hits = facts.map((fact) => [fact ? rest.indexOf(fact) : -1, fact]).filter(([place]) => place >= 0);
      if (!hits.length) { nodes.push(rest); break; }
      const [place, fact] = hits.reduce((one, other) => (other[0] < one[0] ? other : one));
      if (place) nodes.push(rest.slice(0, place));
      nodes.push(element("mark", { className: "fact", title: "no passage has this" }, fact));
      rest = rest.slice(place + fact.length);
    }
    return nodes;
  }

  function scoreList(turn, before) {
    const earlier = new Map((before?.scores || []).map((score) => [score.name, score.value]));
    const lower = new Map(index.scores.map((score) => [score.name, score.lower]));
    const list = element("ul", { className: "score-list" });
    for (const score of turn.scores || []) {
      const line = element("li", {}, `${score.name} `, element("b", {}, number(score.value)), score.label ? ` ${score.label} ` : " ");
      if (earlier.has(score.name)) {
        const change = (score.value - earlier.get(score.name)) * (lower.get(score.name) ? -1 : 1);
        line.append(changeMark(change));
      }
      if (score.explanation) line.append(element("span", { className: "why" }, `${score.model ? `${score.model}: ` : ""}${score.explanation}`));
      list.append(line);
    }
    for (const [name, reason] of Object.entries(turn.missing || {})) list.append(element("li", {}, `${name}: ${reason}`));
    return list;
  }

  function passages(turn) {
    const list = element("ol", { className: "passages" });
    for (const passage of turn.passages) {
      const tags = [];
      if (passage.is_target) tags.push(element("span", { className: "tag good" }, "target"));
      if (passage.in_prompt === true) tags.push(element("span", { className: "tag good" }, "in prompt"));
      if (passage.in_prompt === false) tags.push(element("span", { className: "tag weak" }, "not in prompt"));
      const about = [`Rank ${passage.rank}`, passage.id, passage.score === undefined || passage.score === null ? "" : `score ${number(passage.score)}`];
      const kind = passage.is_target ? "target" : passage.in_prompt === false ? "dropped" : "";
      list.append(element("li", { className: kind }, element("b", {}, about.filter(Boolean).join(" · ")), " ", ...tags,
        element("span", { className: "text", tabIndex: 0 }, passage.text)));
    }
    return list;
  }

  // ------------------------------------------------------------------ controls

  function option(value, text) {
    return element("option", { value: String(value) }, text);
  }

  function fillControls() {
    const compared = state.other !== null;
    const found = new Set(files.flat().map((data) => data[VERDICT]));
    const filters = Object.entries(FILTERS).filter(([key]) => (compared || !["worse", "better", "only"].includes(key)) && (!(key in VERDICTS) || found.has(key)));
    $("status").replaceChildren(...filters.map(([key, [name]]) => option(key, name)));
    $("range-score").replaceChildren(...index.scores.map((score, place) => option(place, score.name)));
    const sorts = [option("file", "order of the file"), option("question", "question")];
    if (compared) sorts.push(...index.scores.map((score, place) => option(`change:${place}`, `change of ${score.name}`)));
    sorts.push(...index.scores.map((score, place) => option(place, score.name)));
    $("sort").replaceChildren(...sorts);
    $("sort").value = index.sort === null ? "file" : compared ? `change:${index.sort}` : String(index.sort);
    if (index.sort !== null) $("range-score").value = String(index.sort);
  }

  function fillColumns() {
    $("columns").replaceChildren(...index.scores.map((score, place) => {
      const box = element("input", { type: "checkbox", checked: state.columns.has(place) });
      box.addEventListener("change", () => { box.checked ? state.columns.add(place) : state.columns.delete(place); render(); });
      return element("label", {}, box, score.name);
    }));
  }

  function start() {
    if (files.length > 1) {
      state.other = 1;
      $("pair-label").hidden = false;
      $("pair").append(...index.files.slice(1).map((file, place) => option(place + 1, `${index.files[0].name} → ${file.name}`)));
      $("pair").append(...index.files.slice(0, 1).map((file) => option("", `${file.name} alone`)));
    }
    rows = buildRows();
    fillControls();
    fillColumns();
    // Without a value there is nothing to order or to limit.
    document.querySelectorAll(".by-score").forEach((control) => { control.hidden = !index.scores.length; });
    document.querySelector(".columns").hidden = !index.scores.length;
    $("controls").hidden = false;
    $("pair").addEventListener("change", () => {
      state.other = $("pair").value === "" ? null : Number($("pair").value);
      state.open.clear();
      rows = buildRows();
      fillControls();
    });
    let waiting = null;
    const soon = () => { state.page = 0; clearTimeout(waiting); waiting = setTimeout(render, 60); };
    $("controls").addEventListener("input", soon);
    $("controls").addEventListener("submit", (event) => event.preventDefault());
    $("previous").addEventListener("click", () => { state.page -= 1; render(); $("questions").scrollIntoView(); });
    $("next").addEventListener("click", () => { state.page += 1; render(); $("questions").scrollIntoView(); });
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); $("search").focus(); }
    });
    render();
  }

  start();
})();
