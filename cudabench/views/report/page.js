"use strict";
(() => {
  const held = [...document.querySelectorAll("script.cudabench-results")];
  const files = held.map((each) => JSON.parse(each.textContent));
  const SVG = "http://www.w3.org/2000/svg";
  let ids = 0;

  // Values from a file are shown as text or numbers, never as markup. Control codes are shown as escape sequences.
  const visible = (text) => String(text).replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (code) => "\\u" + code.charCodeAt(0).toString(16).padStart(4, "0"));
  const make = (name, properties = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
    element.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
    return element;
  };
  const draw = (name, properties) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
    return element;
  };
  const resultOf = (words) => {
    const [run, at] = words.split(" ").map(Number);
    return files[run].results[at];
  };
  const triple = (index) => `(${index.join(", ")})`;
  const slider = (label, most, change) => {
    const input = make("input", { type: "range", min: 0, max: most, value: 0, id: `control-${++ids}` });
    const output = make("output", { for: input.id });
    input.addEventListener("input", () => change());
    return { input, output, whole: make("label", { for: input.id }, label, input, output) };
  };
  const button = (label, act) => {
    const element = make("button", { type: "button" }, label);
    element.addEventListener("click", act);
    return element;
  };

  // Shows the machine instructions of a source line under this line.
  const foldCode = (table) => {
    const result = resultOf(table.dataset.code);
    const lines = new Map((result.lines || []).filter((line) => !line.file).map((line) => [line.line, line]));
    const wide = table.querySelectorAll("thead th").length;
    const box = table.parentElement;
    if (wide > 3) {
      const choose = make("select", { id: `control-${++ids}` });
      table.querySelectorAll("thead th").forEach((head, at) => { if (at && at < wide - 1) choose.append(make("option", { value: at }, head.textContent)); });
      choose.addEventListener("change", () => { box.dataset.heat = choose.value; });
      box.dataset.heat = choose.value;
      box.before(make("div", { class: "controls narrow" }, make("label", { for: choose.id }, "Heat", choose)));
    }
    for (const cell of table.querySelectorAll("[data-line]")) {
      const line = lines.get(Number(cell.dataset.line));
      if (!line || !line.code || !line.code.length) continue;
      const fold = make("button", { type: "button", "aria-expanded": "false", "aria-label": `Machine code of line ${line.line}`, title: `${line.instructions} machine instructions` }, `${line.line} +`);
      fold.addEventListener("click", () => {
        const row = cell.parentElement;
        if (fold.getAttribute("aria-expanded") === "true") {
          row.nextElementSibling.remove();
        } else {
          const more = line.instructions - line.code.length;
          const text = line.code.join("\n") + (more > 0 ? `\n… ${more} more` : "");
          row.after(make("tr", { class: "machine" }, make("td"), ...Array.from({ length: wide - 2 }, () => make("td")), make("td", {}, make("pre", {}, text))));
        }
        const open = fold.getAttribute("aria-expanded") !== "true";
        fold.setAttribute("aria-expanded", String(open));
        fold.textContent = `${line.line} ${open ? "−" : "+"}`;
      });
      cell.replaceChildren(fold);
    }
  };

  // Draws, pass by pass, which lane each bank of shared memory serves.
  const banks = (place) => {
    const result = resultOf(place.dataset.banks);
    const requests = result.banks;
    let timer = null;
    const choose = make("select", { id: `control-${++ids}` });
    requests.forEach((request, at) => choose.append(make("option", { value: at },
      `line ${request.line}: ${request.op} ${request.array || ""}, ${request.passes.length} pass${request.passes.length > 1 ? "es" : ""}`)));
    const rows = make("div", { class: "bankrow", "aria-hidden": "true" });
    const told = make("p", { class: "told", "aria-live": "polite" });
    const pass = slider("Pass", 0, () => show());
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
    const play = button("Play", () => {
      if (timer) return stop();
      if (Number(pass.input.value) >= Number(pass.input.max)) pass.input.value = 0;
      play.textContent = "Stop";
      show();
      timer = setInterval(() => {
        if (Number(pass.input.value) >= Number(pass.input.max)) return stop();
        pass.input.value = Number(pass.input.value) + 1;
        show();
      }, 450);
    });
    const show = () => {
      const request = requests[Number(choose.value)];
      const now = Number(pass.input.value);
      const cells = [];
      request.passes[0].forEach((_, bank) => {
        const served = request.passes[now][bank];
        const was = request.passes.slice(0, now).some((row) => row[bank].length);
        cells.push(make("span", {}, String(bank)), make("span", { class: `cell${served.length ? " now" : was ? " was" : ""}` },
          served.length ? `${served[0]}${served.length > 1 ? "+" : ""}` : ""));
      });
      // Each column is a bank: above, the number of the bank; below, the lane that the bank serves.
      rows.replaceChildren(...[0, 1].flatMap((half) => {
        const columns = matchMedia("(max-width: 40rem)").matches ? 16 : 32;
        if (columns === 32 && half) return [];
        const mine = cells.slice(half * 2 * columns, (half + 1) * 2 * columns);
        return [...mine.filter((_, at) => at % 2 === 0), ...mine.filter((_, at) => at % 2 === 1)];
      }));
      const busy = request.passes[now].flatMap((lanes, bank) => (lanes.length ? [bank] : []));
      pass.output.textContent = `${now + 1} of ${request.passes.length}`;
      const who = busy.length === 1
        ? `bank ${busy[0]} serves lane${request.passes[now][busy[0]].length > 1 ? "s" : ""} ${request.passes[now][busy[0]].join(", ")}; 31 banks are idle`
        : `${busy.length} banks serve ${busy.reduce((sum, bank) => sum + request.passes[now][bank].length, 0)} lanes; ${32 - busy.length} are idle`;
      told.textContent = visible(`Pass ${now + 1} of ${request.passes.length}, where ${request.ideal} would do: ${who}. `
        + `${request.op} of ${request.array || "shared memory"}, ${request.bytes} bytes a lane, by warp ${request.warp} of block ${triple(request.block)}.`);
    };
    choose.addEventListener("change", () => {
      stop();
      pass.input.max = requests[Number(choose.value)].passes.length - 1;
      pass.input.value = 0;
      pass.whole.hidden = play.hidden = pass.input.max === "0";
      show();
    });
    place.replaceChildren(make("div", { class: "picture" }, make("h4", {}, "Banks of shared memory"),
      make("p", { class: "quiet" }, "Each bank serves one word a pass; the number in it is the lane that it serves, + where the word goes to several."),
      make("div", { class: "controls" }, make("label", { for: choose.id }, "Request", choose), pass.whole, play), rows, told));
    // The request with the worst bank conflict is shown first.
    choose.value = requests.reduce((worst, request, at) =>
      (request.passes.length - request.ideal > requests[worst].passes.length - requests[worst].ideal ? at : worst), 0);
    choose.dispatchEvent(new Event("change"));
    matchMedia("(max-width: 40rem)").addEventListener("change", show);
  };

  // Draws, step by step, which array element each thread reads or writes.
  const MOST = 64; // at most this many rows and columns of an array are drawn
  const steps = (place) => {
    const result = resultOf(place.dataset.steps);
    const list = result.steps;
    const [bx, by] = result.block;
    const lanesOf = (step) => step.warps.flatMap((warp) => warp.runs.flatMap(([lane, lanes, element, stride]) =>
      Array.from({ length: lanes }, (_, k) => {
        const linear = warp.warp * 32 + lane + k;
        return { key: `${warp.block}:${linear}`, block: warp.block, linear, element: element + k * stride };
      })));
    const moves = list.map(lanesOf);
    const threads = [...new Map(moves.flat().map((move) => [move.key, move])).values()]
      .sort((a, b) => a.block[2] - b.block[2] || a.block[1] - b.block[1] || a.block[0] - b.block[0] || a.linear - b.linear);
    if (!threads.length) return;
    const index = (linear) => [linear % bx, Math.floor(linear / bx) % by, Math.floor(linear / (bx * by))];
    const arrays = new Map();
    list.forEach((step, at) => {
      const columns = step.shape.length > 1 ? step.shape[step.shape.length - 1] : 32;
      const key = `${step.space} ${step.array}`;
      const array = arrays.get(key) || { name: step.array, space: step.space, shape: step.shape, columns, top: Infinity, left: Infinity, bottom: 0, right: 0 };
      for (const move of moves[at]) {
        const last = move.element + step.each - 1;
        array.top = Math.min(array.top, Math.floor(move.element / columns));
        array.bottom = Math.max(array.bottom, Math.floor(last / columns));
        array.left = Math.min(array.left, move.element % columns);
        array.right = Math.max(array.right, last % columns);
      }
      arrays.set(key, array);
    });
    for (const array of arrays.values()) {
      const rows = array.shape.length > 1 ? array.shape.slice(0, -1).reduce((a, b) => a * b, 1) : Math.ceil(array.shape[0] / 32);
      // A small array is shown whole; of a large array, only the part that threads access is shown.
      if (rows <= MOST && array.columns <= MOST) { array.top = array.left = 0; array.bottom = rows - 1; array.right = array.columns - 1; }
      array.cut = array.bottom - array.top >= MOST || array.right - array.left >= MOST;
      array.bottom = Math.min(array.bottom, array.top + MOST - 1);
      array.right = Math.min(array.right, array.left + MOST - 1);
      const wide = array.right - array.left + 1;
      const high = array.bottom - array.top + 1;
      const cell = Math.max(5, Math.min(16, Math.floor(340 / Math.max(wide, high))));
      array.svg = draw("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide * cell, height: high * cell, "aria-hidden": "true" });
      array.cells = new Map();
      for (let y = 0; y < high; y++) {
        for (let x = 0; x < wide; x++) {
          const element = (array.top + y) * array.columns + array.left + x;
          const rect = draw("rect", { class: "el", x, y, width: 1, height: 1 });
          array.cells.set(element, rect);
          array.svg.append(rect);
        }
      }
      const part = array.top || array.left || array.cut ? `, rows ${array.top} to ${array.bottom}, columns ${array.left} to ${array.right}` : "";
      array.box = make("div", { class: "array" }, make("h5", {}, `${array.name}[${array.shape.join("][")}] in ${array.space} memory${part}`), array.svg);
    }
    const told = make("p", { class: "told", "aria-live": "polite" });
    const position = (step, element) => {
      const at = [];
      for (let d = step.shape.length - 1; d > 0; d--) { at.unshift(element % step.shape[d]); element = Math.floor(element / step.shape[d]); }
      return [element, ...at];
    };
    const show = () => {
      const now = Number(time.input.value);
      const me = threads[Number(who.input.value)];
      const step = list[now];
      for (const array of arrays.values()) {
        array.box.classList.toggle("active", array === arrays.get(`${step.space} ${step.array}`));
        for (const rect of array.cells.values()) rect.setAttribute("class", "el");
      }
      for (let at = 0; at <= now; at++) {
        const cells = arrays.get(`${list[at].space} ${list[at].array}`).cells;
        for (const move of moves[at]) {
          for (let k = 0; k < list[at].each; k++) {
            const rect = cells.get(move.element + k);
            if (rect) rect.setAttribute("class", at < now ? "el was" : move.key === me.key ? "el me" : "el on");
          }
        }
      }
      const mine = moves[now].find((move) => move.key === me.key);
      time.output.textContent = `${now + 1} of ${list.length}`;
      who.output.textContent = `${Number(who.input.value) + 1} of ${threads.length}`;
      const verb = step.op === "load" ? "reads" : step.op === "store" ? "writes" : "updates";
      const each = step.each > 1 ? ` and the ${step.each - 1} behind it` : "";
      told.textContent = visible(`Line ${step.line}: ${moves[now].length} threads ${verb.slice(0, -1)} ${step.array}. Thread ${triple(index(me.linear))} of block ${triple(me.block)} `
        + (mine ? `${verb} ${step.array}[${position(step, mine.element).join(", ")}]${each}.` : "takes no part."));
    };
    const time = slider("Time", list.length - 1, () => show());
    const who = slider("Thread", threads.length - 1, () => show());
    place.replaceChildren(make("div", { class: "picture" }, make("h4", {}, "Threads and elements"),
      make("p", { class: "quiet" }, "Blue: the element of the chosen thread; orange: those of the other threads in this step; pale: of earlier steps."),
      make("div", { class: "controls" }, time.whole, who.whole),
      make("div", { class: "arrays" }, ...[...arrays.values()].map((array) => array.box)), told));
    show();
  };

  // The drawings of a section are made when the section is opened for the first time.
  const open = (details) => {
    if (!details.open || details.dataset.drawn) return;
    details.dataset.drawn = "yes";
    details.querySelectorAll("[data-code]").forEach(foldCode);
    details.querySelectorAll("[data-banks]").forEach(banks);
    details.querySelectorAll("[data-steps]").forEach(steps);
  };
  const kernels = [...document.querySelectorAll("details.kernel")];
  kernels.forEach((details) => { details.addEventListener("toggle", () => open(details)); open(details); });
  const all = (state) => kernels.forEach((details) => { details.open = state; open(details); });
  document.getElementById("unfold")?.addEventListener("click", () => all(true));
  document.getElementById("fold")?.addEventListener("click", () => all(false));
  addEventListener("beforeprint", () => all(true));
  const follow = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.matches("details.kernel")) { target.open = true; open(target); target.scrollIntoView(); }
  };
  addEventListener("hashchange", follow);
  follow();
  for (const save of document.querySelectorAll("[data-save]")) {
    save.addEventListener("click", () => {
      const url = URL.createObjectURL(new Blob([held[Number(save.dataset.save)].textContent], { type: "application/json" }));
      const link = make("a", { href: url, download: "results.json" });
      link.click();
      URL.revokeObjectURL(url);
    });
  }
  document.documentElement.classList.add("live");
})();
