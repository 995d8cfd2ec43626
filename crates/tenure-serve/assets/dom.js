// Elements without markup: text is always a text node.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** Sets a text only if it differs: the browser then has nothing to lay out. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A bar that shrinks to nothing in the time that is left, without a script. */
export function shrink(fill, left, full) {
  const share = full > 0 ? Math.min(1, Math.max(0, left / full)) : 0;
  fill.style.transition = "none";
  fill.style.transform = `scaleX(${share})`;
  if (left > 0) {
    fill.getBoundingClientRect();
    fill.style.transition = `transform ${left}ms linear`;
    fill.style.transform = "scaleX(0)";
  }
}
