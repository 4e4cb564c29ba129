// Elements and shapes. Texts only ever become text nodes.

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Numbers as small bars up and down from a middle line: one path, however many there are.
function bars(numbers, greatest, { x, y, width, height }) {
  const step = width / numbers.length;
  const thick = Math.max(step * 0.72, 0.5);
  const middle = y + height / 2;
  return numbers
    .map((number, i) => {
      const size = Math.max(-1, Math.min(1, number / greatest)) * (height / 2);
      const long = Math.max(Math.abs(size), 0.4);
      const top = size > 0 ? middle - long : middle;
      return `M${(x + i * step).toFixed(1)} ${top.toFixed(1)}h${thick.toFixed(2)}v${long.toFixed(1)}h-${thick.toFixed(2)}z`;
    })
    .join("");
}

// The same as a picture of its own, with its numbers as its name.
function strip({ numbers, decimals }, greatest, className) {
  const size = { x: 0, y: 0, width: numbers.length * 6, height: 20 };
  return shape(
    "svg",
    {
      class: `strip ${className}`,
      viewBox: `0 0 ${size.width} ${size.height}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": numbers.map((number) => decimal(number, decimals)).join(", "),
    },
    shape("path", { class: "middle", d: `M0 10H${size.width}` }),
    shape("path", { class: "bars", d: bars(numbers, greatest, size) }),
  );
}

const rectangle = (x, y, width, height) =>
  `M${x.toFixed(1)} ${y.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h-${width.toFixed(1)}z`;
