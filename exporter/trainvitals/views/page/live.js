// Refreshes the page once a second while it is visible; without this script, the page is static.
"use strict";
(() => {
  const INTERVAL_MS = 1000, LONGEST_PAUSE_MS = 15000, PATIENCE_MS = 8000, SPOKEN_AFTER = 2;
  const live = document.getElementById("live");
  const notice = document.getElementById("notice");
  const version = document.getElementById("head").dataset.version;
  let tag = null, failures = 0, timer = 0, answered = new Date(), isPaused = false, isAsking = false;

  const parse = (text) => new DOMParser().parseFromString(text, "text/html").body;

  // Changes only what differs, so that focus, selection and scroll position are kept.
  function adapt(from, to) {
    if (from.isEqualNode(to)) return;
    for (const { name } of [...from.attributes])
      if (!to.hasAttribute(name) && !isKept(from, name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes)
      if (from.getAttribute(name) !== value && !isKept(from, name)) from.setAttribute(name, value);
    adaptChildren(from, to);
  }

  // The user decides whether a section is folded.
  const isKept = (element, name) => element.tagName === "DETAILS" && name === "open";

  const isAlike = (one, other) =>
    one.nodeType === other.nodeType && one.nodeName === other.nodeName && !one.id && !other.id;

  function adaptChildren(from, to) {
    const known = new Map([...from.children].filter((each) => each.id).map((each) => [each.id, each]));
    const wanted = new Set([...to.children].map((each) => each.id));
    let at = from.firstChild;
    for (const each of [...to.childNodes]) {
      while (at && at.id && !wanted.has(at.id)) at = remove(at);
      // Remove an element without an id instead of moving one that has an id.
      while (at && each.id && !at.id && known.has(each.id)) at = remove(at);
      const match = each.id ? known.get(each.id) : at && isAlike(at, each) ? at : null;
      if (!match) from.insertBefore(document.importNode(each, true), at);
      else {
        if (match === at) at = at.nextSibling;
        else from.insertBefore(match, at);
        if (each.nodeType === Node.ELEMENT_NODE) adapt(match, each);
        else if (match.nodeValue !== each.nodeValue) match.nodeValue = each.nodeValue;
      }
    }
    while (at) at = remove(at);
  }

  function remove(node) {
    const next = node.nextSibling;
    node.remove();
    return next;
  }

  function show(text) {
    const fresh = document.createElement("div");
    fresh.append(...parse(text).childNodes);
    const head = fresh.querySelector("#head");
    if (!head) throw new Error("no page");
    if (head.dataset.version !== version) return location.reload();
    const focused = document.activeElement;
    adaptChildren(live, fresh);
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    document.title = head.dataset.title;
  }

  async function ask() {
    if (isAsking) return;
    isAsking = true;
    clearTimeout(timer);
    try {
      const answer = await fetch("live", {
        headers: tag ? { "If-None-Match": tag } : {},
        cache: "no-store",
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      if (answer.status === 200) {
        show(await answer.text());
        tag = answer.headers.get("ETag");
      } else if (answer.status !== 304) throw new Error(`it answers ${answer.status}`);
      recover();
    } catch (error) {
      complain(error);
    }
    isAsking = false;
    plan();
  }

  function recover() {
    failures = 0;
    answered = new Date();
    document.body.classList.remove("stale");
    if (!isPaused) notice.textContent = "";
  }

  function complain() {
    failures += 1;
    if (failures < SPOKEN_AFTER) return;
    document.body.classList.add("stale");
    const words = `no answer since ${answered.toLocaleTimeString()}; the page goes on as soon as there is one`;
    if (notice.textContent !== words) notice.textContent = words;
  }

  function plan() {
    clearTimeout(timer);
    const isRunning = !isPaused && document.visibilityState === "visible";
    document.body.classList.toggle("running", isRunning && failures < SPOKEN_AFTER);
    const pause = Math.min(LONGEST_PAUSE_MS, INTERVAL_MS * 2 ** Math.max(0, failures - 1));
    if (isRunning) timer = setTimeout(ask, pause);
  }

  function wake() {
    if (!isPaused && document.visibilityState === "visible") ask();
    else plan();
  }

  function addPause() {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "pause";
    button.textContent = "Pause";
    button.addEventListener("click", () => {
      isPaused = !isPaused;
      button.textContent = isPaused ? "Go on" : "Pause";
      notice.textContent = isPaused ? "paused: the page stays as it is" : "";
      wake();
    });
    live.before(button);
  }

  addPause();
  document.addEventListener("visibilitychange", wake);
  window.addEventListener("online", wake);
  plan();
})();
