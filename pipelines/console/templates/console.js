"use strict";
// Refreshes the page in place: what did not change stays, and with it focus, scrolling and what is unfolded.
(() => {
  const root = document.documentElement;
  const alarm = document.getElementById("unreachable");

  function renewAttributes(old, now) {
    for (const { name } of [...old.attributes]) {
      if (!now.hasAttribute(name) && !(old.tagName === "DETAILS" && name === "open")) old.removeAttribute(name);
    }
    for (const { name, value } of now.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  }

  function renew(old, now) {
    if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName) {
      old.replaceWith(document.adoptNode(now));
    } else if (old.nodeType === Node.ELEMENT_NODE) {
      renewAttributes(old, now);
      renewChildren(old, now);
    } else if (old.data !== now.data) {
      old.data = now.data;
    }
  }

  function renewChildren(old, now) {
    const named = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
    let at = old.firstChild;
    for (const wanted of [...now.childNodes]) {
      const same = wanted.id ? named.get(wanted.id) : at && !at.id && at.nodeName === wanted.nodeName ? at : null;
      if (!same) {
        old.insertBefore(document.adoptNode(wanted), at);
        continue;
      }
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      renew(same, wanted);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  async function ask() {
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(answer.statusText);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const focused = document.activeElement;
      document.title = page.title;
      root.dataset.every = page.documentElement.dataset.every;
      renew(document.getElementById("main"), page.getElementById("main"));
      if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
      alarm.hidden = true;
    } catch {
      alarm.hidden = false;
    }
    askLater();
  }

  function askLater() {
    setTimeout(ask, Number(root.dataset.every) * 1000);
  }

  askLater();
})();
