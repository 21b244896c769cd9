// The form of a rater. This script follows shown_texts.js. The browser stores the ratings in its localStorage. The rater downloads
// or copies them as CSV; the page sends nothing.
(() => {
  const sheet = JSON.parse(byId("sheet").textContent);
  const PLACE = "eval-factory-sheet " + sheet.sheet + " " + sheet.rater;
  const COLUMNS = ["sheet", "rater", "item", "number", "rating", "comment"];
  const labels = new Set(sheet.choices.map((one) => one.label));
  const codes = new Set(sheet.items.map((one) => one.code));
  const given = new Map();     // code -> array of labels; undefined for a question without a rating
  const comments = new Map();  // code -> text
  let at = 0, marked = 0, saves = true, kept = true;

  // ---- storage in the browser ----------------------------------------------------------------------------------------------

  function restore() {
    let found = null;
    try {
      const text = localStorage.getItem(PLACE);
      found = text === null ? null : JSON.parse(text);
    } catch { saves = false; }
    if (!found || typeof found !== "object") return;
    for (const [code, ratings] of Object.entries(found.ratings || {})) {
      if (codes.has(code) && Array.isArray(ratings)) given.set(code, ratings.map((one) => labels.has(one) ? one : undefined));
    }
    for (const [code, text] of Object.entries(found.comments || {})) {
      if (codes.has(code) && typeof text === "string") comments.set(code, text);
    }
    const place = sheet.items.findIndex((one) => one.code === found.at);
    if (place >= 0) at = place;
    if (given.size) say("Your ratings of before are here again.");
  }

  function save() {
    const ratings = Object.fromEntries([...given].map(([code, all]) => [code, Array.from(all, (one) => one === undefined ? null : one)]));
    try {
      localStorage.setItem(PLACE, JSON.stringify({ ratings, comments: Object.fromEntries(comments), at: sheet.items[at].code }));
      saves = kept = true;
    } catch {
      saves = kept = false;
    }
    byId("lost").textContent = saves ? "" :
      "This browser does not keep what you enter: download the CSV before you close this page.";
  }

  function say(text) { byId("status").textContent = text; }

  // ---- the answer that is shown --------------------------------------------------------------------------------------------

  const current = () => sheet.items[at];
  const ratingsOf = (item) => given.get(item.code) || [];
  const isRated = (item) => item.questions.every((_, number) => ratingsOf(item)[number] !== undefined);

  function heading(text) { return element("h3", {}, text); }

  function show(place, { focus = true } = {}) {
    at = place;
    const item = current(), texts = byId("texts");
    byId("title").textContent = "Answer " + counted(at + 1) + " of " + counted(sheet.items.length) + ": " + item.code;
    texts.replaceChildren();
    if (item.turns.length === 1) texts.append(heading("Question"), block(item.turns[0][1], "prompt", "Question"));
    else for (const [role, text] of item.turns) texts.append(element("h3", {}, inline(role)), block(text, "prompt", "Turn of " + role));
    if (item.media) texts.append(mediaBox(item.media));
    texts.append(heading("Answer"), block(item.answer, "answer", "Answer"));
    item.references.forEach((text) => texts.append(heading("Reference"), block(text, "reference", "Reference")));
    byId("asked").replaceChildren(...item.questions.map(asked));
    byId("comment").value = comments.get(item.code) || "";
    byId("before").disabled = at === 0;
    byId("next").disabled = at === sheet.items.length - 1;
    const open = item.questions.findIndex((_, number) => ratingsOf(item)[number] === undefined);
    mark(open < 0 ? 0 : open);
    tell();
    if (focus) { byId("title").focus(); byId("item").scrollIntoView(); }
  }

  function asked(name, number) {
    const choices = element("div", { class: "choices" });
    for (const choice of sheet.choices) {
      const input = element("input", { type: "radio", name: "q" + number, value: choice.label });
      input.checked = ratingsOf(current())[number] === choice.label;
      input.addEventListener("change", () => rate(number, choice.label));
      const label = element("label", {}, input, element("span", {}, choice.label));
      if (choice.key && choice.key !== choice.label) label.append(element("kbd", { "aria-hidden": "true" }, choice.key));
      choices.append(label);
    }
    const field = element("fieldset", { class: "asked", "data-number": number }, element("legend", {}, inline(name)), choices);
    field.addEventListener("focusin", () => mark(number));
    return field;
  }

  function fields() { return [...document.querySelectorAll(".asked")]; }

  function mark(number) {
    marked = number;
    fields().forEach((one, place) => one.classList.toggle("marked", place === number));
  }

  function rate(number, label) {
    const item = current(), all = ratingsOf(item).slice();
    all[number] = label;
    given.set(item.code, all);
    save();
    tell();
    say((item.questions.length > 1 ? "Question " + (number + 1) + ": " : "") + label + (kept ? ", kept." : ", not kept."));
  }

  // Gives the rating of a pressed key to the marked question, and moves to the next question without a rating. After the last
  // question, the focus moves to the button for the next answer.
  function rateByKey(label) {
    const number = marked, field = fields()[number];
    const input = [...field.querySelectorAll("input")].find((one) => one.value === label);
    input.checked = true;
    rate(number, label);
    const open = current().questions.findIndex((_, place) => place > number && ratingsOf(current())[place] === undefined);
    if (open >= 0) { mark(open); fields()[open].querySelector("input").focus(); }
    else (at < sheet.items.length - 1 ? byId("next") : byId("download")).focus();
  }

  function tell() {
    const done = sheet.items.filter(isRated).length;
    byId("progress").value = done;
    byId("rated").textContent = counted(done) + " of " + counted(sheet.items.length);
    byId("csv").value = csv();
  }

  function go(place) {
    if (place < 0 || place >= sheet.items.length) return;
    show(place);
    save();
  }

  function goToOpen() {
    const places = sheet.items.map((_, step) => (at + 1 + step) % sheet.items.length);
    const place = places.find((one) => !isRated(sheet.items[one]));
    if (place === undefined) say("Every answer is rated.");
    else go(place);
  }

  function clear() {
    given.delete(current().code);
    save();
    show(at);
    say("The ratings of this answer are cleared.");
  }

  // ---- CSV -----------------------------------------------------------------------------------------------------------------

  // Returns a text as a cell of the CSV. A spreadsheet would run a text that begins like a formula.
  function cell(text) {
    const line = text.replace(/\s*[\r\n]+\s*/g, " \u23ce ").replace(/\t/g, " ").replace(/(^|;)([\s"']*)(?=[=+\-@|%\uff1d\uff0b\uff0d\uff20])/g, "$1'$2");
    return /[",;\s]/.test(line) ? '"' + line.replace(/"/g, '""') + '"' : line;
  }

  function csv() {
    const rows = [COLUMNS];
    for (const item of sheet.items) {
      let comment = comments.get(item.code) || "";  // only the first row of an answer has its comment
      item.questions.forEach((_, number) => {
        const rating = ratingsOf(item)[number];
        if (rating === undefined) return;
        rows.push([sheet.sheet, sheet.rater, item.code, String(number + 1), rating, comment]);
        comment = "";
      });
    }
    return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  function download() {
    const url = URL.createObjectURL(new Blob(["\ufeff" + csv()], { type: "text/csv" }));
    const link = element("a", { href: url, download: "ratings_" + sheet.sheet + "_" + sheet.rater + ".csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
    kept = true;
    say("The CSV is in your downloads: send it back.");
  }

  // ---- keys ----------------------------------------------------------------------------------------------------------------

  const KEYS = { n: () => go(at + 1), p: () => go(at - 1), u: goToOpen, d: download };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "TEXTAREA") return;
    const choice = sheet.choices.find((one) => one.key && one.key === event.key);
    if (choice) { event.preventDefault(); rateByKey(choice.label); }
    else if (Object.hasOwn(KEYS, event.key)) { event.preventDefault(); KEYS[event.key](); }
  });
  byId("asked").addEventListener("submit", (event) => event.preventDefault());
  byId("comment").addEventListener("input", () => { comments.set(current().code, byId("comment").value); kept = false; save(); tell(); });
  for (const [id, does] of Object.entries({ next: KEYS.n, before: KEYS.p, open: goToOpen, clear, download })) {
    byId(id).addEventListener("click", does);
  }
  window.addEventListener("beforeunload", (event) => { if (!kept && given.size) event.preventDefault(); });

  restore();
  show(at, { focus: false });
  save();
})();
