"use strict";
// Makes the elements of a page and shows texts in them. The texts come from models, data sets and endpoints, which are not
// trusted. They enter the page through textContent only; no code here builds markup from a text. Odd characters, such as control
// characters, are shown as labels.

const MAX_SHOWN = 20000;    // the maximum number of characters that are shown before the reader presses a button
const MAX_GLYPHS = 2000;    // the maximum number of labels for odd characters in a text; each label is an element
const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Returns the record's own value. An untrusted name may be a property of every object, such as `constructor`.
const own = (record, name) => record && Object.prototype.hasOwnProperty.call(record, name) ? record[name] : undefined;
const counted = (count) => count.toLocaleString("en");
// Returns a number as text, rounded to four decimals like in core/formats.py: half away from zero, from the shortest decimal text.
const number = (value) => {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size < 1e-6 || size >= 1e15) return String(size < 1e-6 ? 0 : value);
  return String(Math.sign(value) * Math.round(`${size}e4`) / 10000);
};

// Matches odd characters: control characters except line break and tab; characters that reverse, join, hide or tag text; lone
// surrogates; and two or more variation selectors in a row, which can hide data (a single one is common in emoji).
const ODD = new RegExp(
  "(?:[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f" +
  "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb]" +
  "|[\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]|\\p{Cs}|\\p{Co}|\\p{Noncharacter_Code_Point}|[\\ufe00-\\ufe0f]{2,})", "gu");
const NAMES = {
  0: "NUL", 7: "BEL", 8: "BS", 0x0b: "VT", 0x0c: "FF", 0x0d: "CR", 0x1b: "ESC", 0x7f: "DEL", 0xad: "soft hyphen", 0x200b: "zero-width space",
  0x200c: "zero-width non-joiner", 0x200d: "zero-width joiner", 0x200e: "LRM", 0x200f: "RLM", 0x2028: "line separator",
  0x2029: "paragraph separator", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2060: "word joiner",
  0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM",
};

function nameOf(odd) {
  const code = odd.codePointAt(0);
  return NAMES[code] || "U+" + code.toString(16).toUpperCase().padStart(4, "0");
}

// Returns a text as nodes. An odd character becomes a box with a label; several equal characters in a row share a box. After
// MAX_GLYPHS boxes, the labels are plain text.
function shown(text) {
  const nodes = [];
  let at = 0, glyphs = 0, plain = "";
  ODD.lastIndex = 0;
  for (let match = ODD.exec(text); match; match = ODD.exec(text)) {
    let end = ODD.lastIndex, times = 1;
    if (match[0] === "\r" && text[end] === "\n") continue;  // the line break of Windows
    while (text.startsWith(match[0], end)) { end += match[0].length; times += 1; }
    const label = nameOf(match[0]) + (times > 1 ? " \u00d7" + times : "");
    plain += text.slice(at, match.index);
    if (glyphs < MAX_GLYPHS) {
      if (plain) nodes.push(document.createTextNode(plain));
      plain = "";
      const code = "U+" + match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      const glyph = element("span", { class: "odd", title: "A character that cannot be seen: " + code });
      glyph.textContent = label;
      nodes.push(glyph);
      glyphs += 1;
    } else {
      plain += "[" + label + "]";
    }
    at = ODD.lastIndex = end;
  }
  plain += text.slice(at);
  if (plain) nodes.push(document.createTextNode(plain));
  return nodes;
}

const inline = (text) => element("bdi", {}, ...shown(text));

// Returns an untrusted text as a block. A text with more than MAX_SHOWN characters is folded.
function block(text, kind = "", label = null) {
  const folded = text.length > MAX_SHOWN;
  const pre = element("pre", { class: "text " + kind, dir: "auto", tabindex: "0", role: "group", "aria-label": label });
  pre.append(...shown(folded ? text.slice(0, cut(text, MAX_SHOWN)) : text));
  if (!text) pre.append(element("i", {}, "(nothing)"));
  if (!folded) return pre;
  const button = element("button", { type: "button", class: "more-text" }, "Show all " + counted(text.length) + " characters");
  button.addEventListener("click", () => { pre.replaceChildren(...shown(text)); button.remove(); pre.focus(); });
  return element("div", {}, pre, button);
}

// Returns an index at which a text may be cut: `at`, or the index before it if `at` would split a surrogate pair.
function cut(text, at) {
  const code = text.charCodeAt(at - 1);
  return code >= 0xd800 && code <= 0xdbff ? at - 1 : at;
}

// Returns a box with pictures and sounds. `media` is a list of [type, SHA-256, file]. If the page does not have the data of a
// medium, the box has a line with its file.
function mediaBox(media) {
  const counts = new Map(), box = element("div", { class: "media" });
  for (const [type, sha256, file] of media) {
    const kind = String(type).split("/")[0], name = kind + " " + ((counts.get(kind) || 0) + 1);
    counts.set(kind, (counts.get(kind) || 0) + 1);
    const held = document.querySelector(`script[data-sha256="${CSS.escape(sha256)}"]`);
    if (!held) {
      box.append(element("p", { class: "medium" }, inline(name), " is not in this page: ", inline(file || "its file is not in the folder of the result")));
      continue;
    }
    const src = "data:" + held.dataset.type + ";base64," + held.textContent, isImage = held.dataset.type.startsWith("image/");
    box.append(element("figure", { class: "medium" }, element(isImage ? "img" : "audio", { src, ...(isImage ? { alt: name } : { controls: "", "aria-label": name }) }),
      element("figcaption", {}, inline(name))));
  }
  return box;
}
