// The table of instances. This script follows shown_texts.js. It uses no network and stores nothing in the browser.
(() => {
  const TYPE = "application/x-eval-factory";
  const PAGE_OF_ROWS = 100;
  // SIGNS is defined before this script: name -> [label, label for values that are not right or wrong, true if a row lists it].
  const FLIPPED = "flipped";  // the sign of an instance whose values differ between the results of the page
  const labelOf = (flag) => flag === FLIPPED || !SIGNS[flag] ? flag : SIGNS[flag][0];
  const isListed = (flag) => !SIGNS[flag] || SIGNS[flag][2];

  // ---- data ----------------------------------------------------------------------------------------------------------------

  async function unpack(script) {
    const packed = Uint8Array.from(atob(script.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // Returns the key of a row, which is equal in all results. Programs have their own ids and splits. A row of another program
  // therefore has in `pair` the id of the first result's question.
  const keyOf = (row) => JSON.stringify(row.pair === undefined ? [row.id, row.trial, row.perturbation, row.split]
    : ["pair", row.pair, row.trial, row.perturbation]);

  class Run {
    scripts = new Map();

    async readIndex() {
      const lines = (await unpack(this.scripts.get("index"))).split("\n");
      this.head = JSON.parse(lines[0]);
      this.rows = lines.slice(1).map((line, place) => {
        const row = JSON.parse(line);
        return { ...row, place, key: keyOf(row), text: null };
      });
    }

    async detail(row) {
      const lines = (await unpack(this.scripts.get(String(Math.floor(row.place / this.head.chunk))))).split("\n");
      return JSON.parse(lines[row.place % this.head.chunk]);
    }
  }

  const runs = [];

  function findScripts() {
    for (const script of document.querySelectorAll(`script[type="${TYPE}"]`)) {
      const at = Number(script.dataset.run);
      runs[at] = runs[at] || new Run();
      runs[at].scripts.set(script.dataset.part, script);
    }
  }

  // ---- state ---------------------------------------------------------------------------------------------------------------

  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const letter = (at) => LETTERS[at % 26] + (at >= 26 ? String(Math.floor(at / 26) + 1) : "");
  const state = { flags: new Set(), groups: new Map(), lost: null, words: "", order: "asked", limit: PAGE_OF_ROWS, open: null };
  let all = [];      // an entry for each instance: its rows in all runs
  let questions = [];  // the entries that have a line in the table; rewordings are listed in `askings`
  let found = [];    // the questions that pass the filters, in the order of the table
  let searched = 0;  // the number of chunks whose texts are unpacked
  let chunks = 0;

  function joinRuns() {
    const entries = new Map();
    runs.forEach((run, at) => run.rows.forEach((row) => {
      const entry = entries.get(row.key) || { key: row.key, rows: new Array(runs.length).fill(null), at: entries.size, first: row };
      entry.rows[at] = row;
      entries.set(row.key, entry);
    }));
    all = [...entries.values()];
    for (const entry of all) {
      const values = entry.rows.filter((row) => row && row.value !== null).map((row) => row.value);
      entry.flipped = values.length > 1 && values.some((value) => value !== values[0]);
    }
    groupAskings();
  }

  // A question that was asked again, also in other words, has one line. The opened question lists all askings.
  function groupAskings() {
    const plain = new Map();
    const of = ({ first }) => JSON.stringify([first.id, first.trial, first.split]);
    for (const entry of all) if (!entry.first.perturbation) plain.set(of(entry), entry);
    for (const entry of all) {
      entry.askings = [];
      entry.question = entry.first.perturbation ? plain.get(of(entry)) || entry : entry;
    }
    for (const entry of all) if (entry.question !== entry) entry.question.askings.push(entry);
    questions = all.filter((entry) => entry.question === entry);
  }

  const hasFlag = (entry, flag) =>
    flag === FLIPPED ? entry.flipped : entry.rows.some((row) => row && row.flags.includes(flag));

  function matches(entry) {
    for (const flag of state.flags) if (!hasFlag(entry, flag)) return false;
    for (const [field, member] of state.groups) {
      if (!entry.rows.some((row) => row && row.groups[field] === member)) return false;
    }
    if (state.lost !== null && !entry.rows.some((row, at) => row && row.lost.some((place) => nameOfLost(runs[at], place) === state.lost))) return false;
    const said = (row) => row && (row.id.toLowerCase().includes(state.words) || (row.text !== null && row.text.includes(state.words)));
    return !state.words || [entry, ...entry.askings].some((one) => one.rows.some(said));
  }

  // Returns the text of a tag or criterion. Results number their tags and criteria differently.
  const nameOfLost = (run, place) => JSON.stringify(run.head.lost[place]);

  // Returns a comparison for sorting. Unknown values come last, in both directions.
  const by = (get, way) => (a, b) => {
    const [x, y] = [get(a.first), get(b.first)];
    if (x === null || y === null) return (x === null) - (y === null) || a.at - b.at;
    return way * (x - y) || a.at - b.at;
  };
  const ORDERS = {
    asked: ["as they were asked", null],
    low: ["lowest score first", by((row) => row.value, 1)],
    high: ["highest score first", by((row) => row.value, -1)],
    slow: ["slowest first", by((row) => row.latency, -1)],
    long: ["longest answer first", by((row) => row.tokens, -1)],
  };

  function filter() {
    found = questions.filter(matches);
    const compare = ORDERS[state.order][1];
    if (compare) found.sort(compare);
    state.limit = PAGE_OF_ROWS;
    showRows();
    showStatus();
  }

  // ---- the table -----------------------------------------------------------------------------------------------------------

  const hasTexts = () => runs[0].head.texts;

  function showColumns() {
    const several = runs.length > 1;
    const names = ["id", ...(several ? runs.map((_, at) => "score " + letter(at)) : ["score"]), "signs"];
    const cells = names.map((name) => element("th", { scope: "col" }, name));
    if (hasTexts()) cells.push(...["question", ...runs.map((_, at) => several ? "answer of " + letter(at) : "answer")].map((name) => element("th", { scope: "col", class: "extra" }, name)));
    byId("columns").replaceChildren(...cells);
  }

  function verdict(run, row) {
    if (!row) return element("span", { class: "preview" }, "not asked");
    if (row.value === null) return element("span", { class: row.flags.includes("failed") ? "sign failed" : "preview" }, row.flags.includes("failed") ? "\u2715 failed" : "not scored");
    if (run.head.middle !== null) return element("span", { class: "sign" }, number(row.value));
    const right = row.flags.includes("right");
    return element("span", { class: "sign " + (right ? "right" : "wrong") }, (right ? "\u2713 right" : "\u2715 wrong"));
  }

  function signsOf(entry) {
    const listed = runs[0].head.flags.filter((flag) => isListed(flag) && hasFlag(entry, flag));
    return (entry.flipped ? [FLIPPED, ...listed] : listed).map(labelOf).join(", ");
  }

  const nameOfRow = (row) => row.id + (row.trial ? " trial " + (row.trial + 1) : "") + (row.perturbation ? " + " + row.perturbation : "");

  function rowOf(entry) {
    const row = entry.first;
    const open = element("button", { type: "button" }, inline(nameOfRow(row)));
    open.addEventListener("click", () => openEntry(entry));
    const cells = [element("th", { scope: "row" }, open), ...entry.rows.map((one, at) => element("td", {}, verdict(runs[at], one))),
      element("td", {class: "signs"}, signsOf(entry))];
    if (hasTexts()) {
      cells.push(element("td", { class: "extra preview" }, inline(row.prompt)),
        ...entry.rows.map((one) => element("td", { class: "extra" }, inline(one ? one.answer : ""))));
    }
    const made = element("tr", { "data-key": entry.key }, ...cells);
    made.addEventListener("click", (event) => { if (!event.target.closest("button")) openEntry(entry); });
    return made;
  }

  function showRows() {
    byId("rows").replaceChildren(...found.slice(0, state.limit).map(rowOf));
    byId("more").hidden = found.length <= state.limit;
    markCurrent();
  }

  function showMore() {
    const shown = state.limit;
    state.limit += PAGE_OF_ROWS;
    byId("rows").append(...found.slice(shown, state.limit).map(rowOf));
    byId("more").hidden = found.length <= state.limit;
    markCurrent();
  }

  function showStatus() {
    const reading = state.words && hasTexts() && searched < chunks ? " (still reading texts: " + Math.floor(100 * searched / chunks) + " %)" : "";
    byId("status").textContent = counted(found.length) + " of " + counted(questions.length)
      + (questions.length < all.length ? " questions" : questions.length === 1 ? " instance" : " instances") + reading;
  }

  function markCurrent() {
    for (const row of byId("rows").children) {
      const current = state.open !== null && row.dataset.key === state.open.question.key;
      row.classList.toggle("current", current);
      if (current) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
    }
  }

  // ---- filters -------------------------------------------------------------------------------------------------------------

  function showFilters() {
    const judged = runs[0].head.middle === null;
    const flags = [...(runs.length > 1 ? [FLIPPED] : []), ...runs[0].head.flags];
    for (const flag of flags) {
      const count = questions.filter((entry) => hasFlag(entry, flag)).length;
      if (!count) continue;
      const low = flag === "wrong" && !judged, notLow = flag === "right" && !judged;
      const name = low || notLow ? SIGNS[flag][1] + " score (" + (low ? "" : "not ") + "worse than " + number(runs[0].head.middle) + ")" : labelOf(flag);
      byId("flag-filters").append(element("button", { type: "button", class: "chip", "aria-pressed": "false", "data-flag": flag,
        onclick: () => { toggle(flag); filter(); } }, name + " ", element("span", {}, counted(count))));
    }
    for (const [name, [label]] of Object.entries(ORDERS)) byId("order").append(element("option", { value: name }, label));
    byId("order").addEventListener("change", (event) => { state.order = event.target.value; filter(); });
    runs[0].head.groups.forEach(showGroup);
    if (runs[0].head.lost) showLost(runs[0]);
    byId("search").addEventListener("input", later(() => { state.words = byId("search").value.trim().toLowerCase(); filter(); }));
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
  }

  function showGroup(name, field) {
    const members = [...new Set(runs[0].rows.map((row) => row.groups[field]))].filter((member) => member !== null);
    if (members.length < 2) return;
    const select = element("select", {}, element("option", { value: "" }, "all"));
    members.forEach((member, at) => select.append(element("option", { value: String(at) }, ...shown(member).map((node) => node.textContent))));
    select.addEventListener("change", () => {
      if (select.value === "") state.groups.delete(field); else state.groups.set(field, members[Number(select.value)]);
      filter();
    });
    byId("group-filters").append(element("label", {}, inline(name), select));
  }

  function showLost(run) {
    const select = element("select", { id: "lost" }, element("option", { value: "" }, "all"));
    run.head.lost.forEach(([label], place) => select.append(element("option", { value: String(place) }, short(label))));
    select.addEventListener("change", () => { state.lost = select.value === "" ? null : nameOfLost(run, Number(select.value)); filter(); });
    byId("group-filters").append(element("label", {}, "loses points on", select));
  }

  // Returns a text on one line, cut after 90 characters, with names in place of odd characters.
  const short = (text) => shown(text.length > 90 ? text.slice(0, cut(text, 90)) + "\u2026" : text).map((node) => node.textContent).join("");

  function toggle(flag) {
    if (state.flags.has(flag)) state.flags.delete(flag); else state.flags.add(flag);
    for (const chip of byId("flag-filters").children) chip.setAttribute("aria-pressed", String(state.flags.has(chip.dataset.flag)));
  }

  function later(work) {
    let waiting = 0;
    return () => { clearTimeout(waiting); waiting = setTimeout(work, 120); };
  }

  // Lets the links of the first screen set a filter.
  function followLinks() {
    for (const link of document.querySelectorAll("a[data-filter]")) {
      link.addEventListener("click", () => {
        closeDetail();
        state.flags.clear();
        toggle(link.dataset.filter);
        filter();
      });
    }
    for (const link of document.querySelectorAll("a[data-lost]")) {
      link.addEventListener("click", () => {
        closeDetail();
        byId("lost").value = link.dataset.lost;
        byId("lost").dispatchEvent(new Event("change"));
      });
    }
  }

  // Unpacks all texts in the background, chunk after chunk, and stores them in lower case for the search.
  async function readTexts() {
    for (const run of runs) {
      for (const [name, script] of run.scripts) {
        if (name === "index") continue;
        const lines = (await unpack(script)).split("\n");
        const first = Number(name) * run.head.chunk;
        lines.forEach((line, at) => { run.rows[first + at].text = searchable(JSON.parse(line)); });
        searched += 1;
        if (state.words && (searched === chunks || searched % 8 === 0)) filter();
        await new Promise((resolve) => setTimeout(resolve));
      }
    }
  }

  function searchable(detail) {
    const parts = [detail.prompt, ...(detail.turns || []).map((turn) => contentOf(turn)), detail.answer, detail.reasoning, detail.error,
      ...(detail.references || []).map((one) => one[0]), ...(detail.criteria || []).map((one) => one[1])];
    return parts.filter(Boolean).join("\n").toLowerCase();
  }

  const contentOf = (turn) => typeof turn.content === "string" ? turn.content : JSON.stringify(turn.content, null, 1);

  // ---- one instance ----------------------------------------------------------------------------------------------------------

  async function openEntry(entry, { focus = true } = {}) {
    const moves = state.open !== null;
    state.open = entry;
    const details = await Promise.all(entry.rows.map((row, at) => row ? runs[at].detail(row) : null));
    if (state.open !== entry) return;  // the reader has opened another instance meanwhile
    byId("detail").replaceChildren(...contentsOf(entry, details));
    byId("detail").hidden = false;
    document.body.classList.add("open");
    byId("detail").scrollTop = 0;
    // The question is at the end of a prompt, after instructions and examples.
    for (const prompt of byId("detail").querySelectorAll(".prompt")) prompt.scrollTop = prompt.scrollHeight;
    writeAddress("#" + addressOf(entry.first), moves);
    while (found.includes(entry) && found.indexOf(entry) >= state.limit) showMore();
    markCurrent();
    const current = byId("rows").querySelector(".current");
    if (!moves) byId("split").scrollIntoView();
    if (current) current.scrollIntoView({ block: "nearest" });
    if (focus) byId("detail").focus({ preventScroll: true });
  }

  // The browser's Back button leads from an instance to the place before the first opened instance, not through all instances.
  function writeAddress(address, replaces) {
    if (location.hash === address) return;
    if (replaces) history.replaceState(null, "", address); else history.pushState(null, "", address);
  }

  function hideDetail() {
    state.open = null;
    byId("detail").hidden = true;
    document.body.classList.remove("open");
    markCurrent();
  }

  function closeDetail() {
    if (state.open === null) return;
    const { key } = state.open.question;
    hideDetail();
    history.replaceState(null, "", "#instances");
    const row = [...byId("rows").children].find((one) => one.dataset.key === key);
    if (row) row.querySelector("button").focus();
  }

  function addressOf(row) {
    const parts = new URLSearchParams([["i", row.id]]);
    if (row.trial) parts.set("t", String(row.trial));
    if (row.perturbation) parts.set("p", row.perturbation);
    return parts.toString();
  }

  function openAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (!asked.has("i")) {
      if (state.open !== null) hideDetail();
      const target = byId(location.hash.slice(1));
      if (target) target.scrollIntoView();
      return;
    }
    const entry = all.find(({ first }) => first.id === asked.get("i") && String(first.trial) === (asked.get("t") || "0")
      && (first.perturbation || "") === (asked.get("p") || "")) || all.find(({ first }) => first.id === asked.get("i"));
    byId("instances").scrollIntoView();
    if (entry) openEntry(entry);
    else byId("status").textContent = "There is no instance " + asked.get("i");
  }

  function move(step) {
    if (!found.length) return;
    const at = state.open === null ? -1 : found.indexOf(state.open.question);
    const next = at < 0 ? 0 : Math.min(found.length - 1, Math.max(0, at + step));
    openEntry(found[next]);
  }

  function contentsOf(entry, details) {
    const at = found.indexOf(entry.question);
    const title = element("h3", { id: "detail-title" }, "Instance ", inline(nameOfRow(entry.first)));
    const buttons = element("span", {},
      element("button", { type: "button", onclick: () => move(-1) }, "Previous"), " ",
      element("button", { type: "button", onclick: () => move(1) }, "Next"), " ",
      element("button", { type: "button", onclick: closeDetail }, "Close"));
    const place = element("span", { class: "hint" }, at < 0 ? "" : counted(at + 1) + " of " + counted(found.length));
    const bar = element("div", { class: "bar" }, title, place, buttons);
    const first = details.find(Boolean) || {};
    return [bar, ...askedParts(first), ...answers(entry, details), ...askingsOf(entry)];
  }

  function askingsOf(entry) {
    const { question } = entry;
    if (!question.askings.length) return [];
    const lines = [question, ...question.askings].map((one) => {
      const name = one === question ? "as it is" : one.first.perturbation;
      const open = element("button", { type: "button", onclick: () => openEntry(one) }, inline(name));
      return element("li", one === entry ? { "aria-current": "true" } : {}, open, " ",
        ...one.rows.map((row, at) => verdict(runs[at], row)), " ", inline(hasTexts() ? one.first.answer : ""));
    });
    return [heading("Asked " + counted(lines.length) + " times"), element("ul", { class: "askings" }, ...lines)];
  }

  const heading = (text) => element("h4", {}, text);

  function askedParts(detail) {
    const parts = [];
    if (detail.turns) detail.turns.forEach((turn) => parts.push(heading("Asked, as "), block(contentOf(turn), "prompt", "turn")) && parts[parts.length - 2].append(inline(String(turn.role))));
    else if (detail.prompt !== undefined) parts.push(heading("Prompt"), block(detail.prompt, "prompt", "prompt"));
    if (detail.media) parts.push(heading("Pictures and sounds"), mediaBox(detail.media));
    if (detail.references) {
      const list = detail.references.map(([text, correct]) => element("li", { class: "reference " + (correct ? "correct" : "") },
        correct ? "\u2713 right: " : "", ...(text.length > 300 ? [block(text, "", "reference")] : [inline(text)])));
      parts.push(heading(detail.references.length === 1 ? "Reference" : "References"), element("ul", {}, ...list));
    }
    return parts;
  }

  function answers(entry, details) {
    const sides = entry.rows.map((row, at) => {
      const parts = row ? [...otherWords(entry, row, details, at), ...answerParts(runs[at], row, details[at])]
        : [element("p", {}, "This result has no such instance.")];
      return element("section", { "aria-label": runs.length > 1 ? "Result " + letter(at) : "Answer" },
        ...(runs.length > 1 ? [element("h4", {}, element("span", { class: "letter" }, letter(at)), " ", verdict(runs[at], row))] : []), ...parts);
    });
    return [element("div", { class: runs.length > 1 ? "sides" : "" }, ...sides)];
  }

  // Returns the prompt of another program's paired question, if its words differ from those of the first result.
  function otherWords(entry, row, details, at) {
    const first = entry.rows.findIndex(Boolean);
    const textOf = (detail) => detail.turns ? detail.turns.map(contentOf).join("\n") : detail.prompt;
    if (at === first || !hasTexts() || textOf(details[at]) === textOf(details[first])) return [];
    return [element("details", {}, element("summary", {}, "Asked in other words"), block(textOf(details[at]) || "", "prompt", "prompt"))];
  }

  function answerParts(run, row, detail) {
    const parts = [];
    if (runs.length === 1) parts.push(element("h4", {}, "Result: ", verdict(run, row)));
    if (detail.error) parts.push(heading("Error"), block(detail.error, "", "error"));
    if (detail.answer !== undefined) parts.push(heading("Answer"), block(detail.answer, "answer", "answer"));
    if (detail.reasoning) {
      parts.push(element("details", {}, element("summary", {}, "Reasoning, which was not scored (" + counted(detail.reasoning.length) + " characters)"),
        block(detail.reasoning, "thought", "reasoning")));
    }
    parts.push(...criteriaParts(detail), ...judgeParts(detail), heading("Figures"), facts(run, row, detail));
    return parts;
  }

  // ---- criteria of a rubric: number, words, points, tags, verdict, points lost, judges ------------------------------------------

  const signed = (points) => (points > 0 ? "+" : "\u2212") + number(Math.abs(points)) + (Math.abs(points) === 1 ? " point" : " points");

  function criteriaParts(detail) {
    const rows = detail.criteria;
    if (!rows) return [];
    const count = (verdict) => rows.filter((row) => row[4] === verdict).length;
    const listed = ["met", "not met", "tied", "unjudged"].filter((verdict) => verdict === "met" || count(verdict)).map((verdict) => count(verdict) + " " + verdict);
    const best = rows.reduce((sum, row) => sum + Math.max(0, row[2]), 0), lost = rows.reduce((sum, row) => sum + (row[5] || 0), 0);
    return [heading("Criteria: " + listed.join(", ") + "; " + number(lost) + " points lost, of " + number(best) + " that can be won"),
      element("ol", { class: "criteria" }, ...rows.map(criterion))];
  }

  function criterion([place, words, points, tags, verdict, lost, judges]) {
    const sign = lost === null ? "?" : lost === 0 ? "\u2713" : verdict === "tied" ? "\u00bd" : "\u2715";
    const long = words !== null && words.length > 600;
    const summary = element("summary", {}, element("span", { class: "sign " + (lost === 0 ? "right" : "wrong") }, sign + " " + verdict),
      " ", element("span", { class: "points" }, signed(points) + (points < 0 ? ", unwanted" : "") + (lost ? ", costs " + number(lost) : "")),
      " ", words === null || long ? "Criterion " + place : inline(words));
    const list = element("ul", {}, ...judges.map(([judge, met, said]) => element("li", {}, element("b", {}, inline(judge)), ": ",
      met === null ? "no decision" : met ? "met" : "not met", ...(said ? [". ", inline(said)] : []))));
    const inside = [...(long ? [block(words, "", "criterion")] : []), ...(tags.length ? [element("p", { class: "tags" }, ...tags.map((tag) => element("span", {}, inline(tag))))] : []), list];
    return element("li", { value: String(place) }, element("details", lost === 0 ? {} : { open: "" }, summary, ...inside));
  }

  function judgeParts(detail) {
    const names = [...new Set([...Object.keys(detail.judges || {}), ...Object.keys(detail.marks || {})])];
    if (!names.length) return [];
    const parts = [heading("Judges")];
    for (const name of names) {
      const mark = own(detail.marks, name);
      const words = own(detail.judges, name);
      const list = element("ul", {});
      for (const [criterion, said] of Object.entries(words && typeof words === "object" ? words : {})) {
        list.append(element("li", {}, inline(criterion), ": ", ...judgement(said)));
      }
      parts.push(element("div", {}, element("b", {}, inline(name)), mark === undefined ? ": no mark" : ": " + number(mark), list));
    }
    return parts;
  }

  function judgement(said) {
    if (said === null || typeof said !== "object") return [inline(String(said))];
    const { score, explanation, ...others } = said;
    const listed = [];
    if (score !== undefined) listed.push(element("b", {}, inline(String(score))), " ");
    if (explanation !== undefined) listed.push(inline(String(explanation)));
    if (Object.keys(others).length) listed.push(" ", inline(JSON.stringify(others)));
    return listed;
  }

  function facts(run, row, detail) {
    const listed = [
      ["id", runs.length > 1 && row.pair !== undefined ? row.id : ""],
      ...Object.entries(detail.metrics || {}).map(([name, value]) => [name, number(value)]),
      ["signs", run.head.flags.filter((flag) => flag !== "right" && flag !== "wrong" && row.flags.includes(flag)).map(labelOf).join(", ")],
      ["ended because of", detail.finish_reason], ["seconds", row.latency === null ? "" : number(row.latency) + (detail.cached ? " (taken from the cache)" : "")],
      ["tokens, prompt and answer", [detail.prompt_tokens, row.tokens].map((one) => one === undefined || one === null ? "not known" : one).join(", ")],
      ["split", row.split + (detail.sub_split ? ", " + detail.sub_split : "")], ["source", detail.cluster],
      ["tells its judges what to do", (detail.injection || []).join(", ")],
      ...Object.entries(detail.categories || {}).map(([name, value]) => [name, String(value)]),
    ];
    const list = listed.filter(([, value]) => value !== undefined && value !== null && value !== "");
    return element("dl", { class: "facts" }, ...list.map(([name, value]) =>
      element("div", {}, element("dt", {}, inline(String(name))), element("dd", {}, inline(String(value))))));
  }

  // ---- keys ------------------------------------------------------------------------------------------------------------------

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const writing = event.target.closest && event.target.closest("input, select, textarea");
    if (event.key === "Escape") {
      if (writing) event.target.blur(); else closeDetail();
    } else if (!writing && event.key === "/") {
      event.preventDefault();
      closeDetail();
      byId("search").focus();
    } else if (!writing && (event.key === "j" || event.key === "k")) {
      move(event.key === "j" ? 1 : -1);
    } else if (writing && event.key === "Enter" && event.target.id === "search" && found.length) {
      event.preventDefault();
      openEntry(found[0]);
    }
  }

  // Unfolds all sections for printing, except those that are too long for paper (class `screen`).
  function printUnfolded() {
    let closed = [];
    addEventListener("beforeprint", () => {
      closed = [...document.querySelectorAll("details:not([open], .screen)")];
      closed.forEach((one) => { one.open = true; });
    });
    addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
  }

  function reportBroken(error) {
    const old = typeof DecompressionStream === "undefined";
    byId("broken").hidden = false;
    byId("broken").textContent = old
      ? "This browser is too old to unpack the instances: it takes Chrome or Edge 80, Firefox 113, Safari 16.4, or newer. Everything above is complete without."
      : "The instances cannot be unpacked: this file was cut or changed (" + error + "). Everything above is complete without.";
  }

  async function start() {
    printUnfolded();
    findScripts();
    try {
      for (const run of runs) await run.readIndex();
    } catch (error) {
      reportBroken(error);
      return;
    }
    for (const run of runs) chunks += run.scripts.size - 2;
    joinRuns();
    byId("browser").hidden = false;
    showColumns();
    showFilters();
    filter();
    followLinks();
    byId("more").addEventListener("click", showMore);
    document.addEventListener("keydown", onKey);
    addEventListener("hashchange", openAddress);
    openAddress();
    document.documentElement.dataset.ready = "index";
    if (hasTexts()) await readTexts();
    document.documentElement.dataset.ready = "all";
  }

  start().catch(reportBroken);
})();
