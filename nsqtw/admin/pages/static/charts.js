// Charts of a page, drawn by uPlot from the numbers in its elements: data-times and data-values, JSON.

const charts = new Map(); // element: { chart, numbers }

const MINUTES = [1, 2, 5, 10, 15, 30, 60];
// Distances of the marks on the axis of numbers: 0.001, 0.002, 0.005, 0.01, ...
const DISTANCES = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => Number(`${digit}e${power - 3}`))).flat();
const WHOLE_DISTANCES = DISTANCES.filter((distance) => distance >= 1);
const UNITS = ["", "k", "M", "G", "T"];

/** Returns a number with three digits, 1.23M, as the server writes it; with `isTick` without zeros at the end. */
export function short(value, isTick = false) {
  let [size, unit] = [Math.abs(value), 0];
  while (size >= 999.5 && unit < UNITS.length - 1) [size, unit] = [size / 1000, unit + 1];
  const digits = unit === 0 && Number.isInteger(value) ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  const text = size.toFixed(digits);
  return (value < 0 ? "-" : "") + (isTick ? String(Number(text)) : text) + UNITS[unit];
}

function colourOf(element) {
  return getComputedStyle(element).color;
}

function numbersOf(element) {
  return [JSON.parse(element.dataset.times), ...JSON.parse(element.dataset.values)];
}

function options(element) {
  const items = [...element.closest("figure").querySelectorAll(".legend li")];
  const axis = {
    stroke: () => colourOf(element),
    grid: { stroke: () => getComputedStyle(element).borderTopColor, width: 1 },
    ticks: { show: false },
    font: `12px ${getComputedStyle(element).fontFamily}`,
  };
  return {
    width: Math.max(element.clientWidth, 100),
    height: Math.max(element.clientHeight, 80),
    legend: { show: false },
    cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
    padding: [8, 20, 0, 0],
    scales: {
      x: { range: (_chart, _first, last) => [last - Number(element.dataset.span), last] },
      y: { range: (_chart, _low, high) => [0, high > 0 ? high * 1.1 : 1] },
    },
    axes: [
      { ...axis, space: 60, size: 28, incrs: MINUTES.map((minutes) => minutes * 60), values: "{HH}:{mm}" },
      { ...axis, space: 36, size: 48, incrs: distances, values: (_chart, ticks) => ticks.map((tick) => short(tick, true)) },
    ],
    series: [
      {},
      ...items.map((item) => ({
        label: item.textContent,
        stroke: () => colourOf(item.querySelector("i")),
        width: 1.75,
        points: { show: false },
      })),
    ],
    hooks: { setCursor: [(chart) => tell(chart, items)] },
  };
}

/** Returns the distances of the marks that fit the numbers: whole ones for whole numbers. */
function distances(chart) {
  const isWhole = chart.data.slice(1).every((values) => values.every((value) => value === null || Number.isInteger(value)));
  return isWhole ? WHOLE_DISTANCES : DISTANCES;
}

/** Shows the values under the cursor in the legend, or the newest ones. */
function tell(chart, items) {
  const index = chart.cursor.idx ?? chart.data[0].length - 1;
  items.forEach((item, number) => {
    const value = chart.data[number + 1][index];
    item.querySelector("b").textContent = value === null || value === undefined ? "–" : short(value);
  });
}

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    charts.get(target)?.chart.setSize({ width: Math.max(target.clientWidth, 100), height: Math.max(target.clientHeight, 80) });
  }
});

/** Draws the charts below `root`, and draws those again whose numbers changed; with `always` all of them. */
export function drawCharts(root, always = false) {
  for (const element of charts.keys()) {
    if (element.isConnected) continue;
    resized.unobserve(element);
    charts.get(element).chart.destroy();
    charts.delete(element);
  }
  for (const element of root.querySelectorAll("[data-times]")) {
    const numbers = element.dataset.times + element.dataset.values;
    const known = charts.get(element);
    if (!known) {
      const chart = new uPlot(options(element), numbersOf(element), element);
      element.setAttribute("data-drawn", "");
      charts.set(element, { chart, numbers });
      resized.observe(element);
      tell(chart, [...element.closest("figure").querySelectorAll(".legend li")]);
    } else if (known.numbers !== numbers || always) {
      known.numbers = numbers;
      known.chart.setData(numbersOf(element));
      tell(known.chart, [...element.closest("figure").querySelectorAll(".legend li")]);
    }
  }
}
