"use strict";
// Reads the document that the page carries: a legend that shows and hides policies or services, and values under the pointer.
(() => {
  const result = JSON.parse(document.getElementById("result").textContent);
  const edges = result.edges_s;

  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      for (const line of document.querySelectorAll(`[data-policy="${button.dataset.name}"]`)) {
        line.classList.toggle("off", !shown);
      }
    });
  }

  // A page of a time of day says when its first edge was.
  const clock = (seconds) => {
    if (result.begins_at_s != null) {
      return new Date((result.begins_at_s + seconds) * 1000).toISOString().slice(11, 19);
    }
    const whole = Math.round(seconds);
    return `${String(Math.floor(whole / 60)).padStart(2, "0")}:${String(whole % 60).padStart(2, "0")}`;
  };

  const cursors = [...document.querySelectorAll("svg.panel")].map((svg) => [svg, svg.querySelector(".cursor")]);
  const readout = Object.assign(document.createElement("div"), { className: "readout", hidden: true });

  const hide = () => {
    readout.hidden = true;
    for (const [, cursor] of cursors) cursor.setAttribute("visibility", "hidden");
  };

  const show = (svg, event) => {
    const box = svg.getBoundingClientRect();
    const { left, right, key, factor } = svg.dataset;
    const share = ((event.clientX - box.left) / box.width * svg.viewBox.baseVal.width - left) / (right - left);
    if (share < 0 || share >= 1) return hide();
    const time = share * edges[edges.length - 1];
    const at = edges.findIndex((edge) => edge > time) - 1;
    for (const [other, cursor] of cursors) {
      const x = Number(other.dataset.left) + share * (other.dataset.right - other.dataset.left);
      cursor.setAttribute("transform", `translate(${x} 0)`);
      cursor.setAttribute("visibility", "visible");
    }
    const rows = (result.policies ?? result.services).filter((policy) => key in policy.timeline).map((policy) => {
      const value = policy.timeline[key]?.[at];
      const text = value == null ? "–" : (value * factor).toLocaleString("en", { maximumSignificantDigits: 4 });
      return `${policy.name}: ${text}`;
    });
    readout.textContent = [`${clock(edges[at])} to ${clock(edges[at + 1])}`, ...rows].join("\n");
    readout.hidden = false;
    svg.parentElement.append(readout);
    readout.style.left = share < 0.6 ? `${event.clientX - box.left + 14}px` : "";
    readout.style.right = share < 0.6 ? "" : `${box.right - event.clientX + 14}px`;
  };

  for (const [svg] of cursors) {
    svg.addEventListener("pointermove", (event) => show(svg, event));
    svg.addEventListener("pointerleave", hide);
  }
})();
