"""The layout of pages: what breaks, is clipped or is left empty at some width of the window."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.browser import Window
from tests.browser.cluster import BrowserCluster

TABLET = {"width": 768, "height": 1024}
PATHS = ("/", "/topics/orders", "/topics/orders/billing", "/nodes", "/nodes/{node}")
_LINES = "all => all.map((each) => [each.textContent, each.getClientRects().length])"
_BACKGROUNDS = "(all) => all.map((each) => getComputedStyle(each).backgroundColor)"
# A chart with the values 1 and 1, the last one at a full minute, in a span of ten minutes or an hour.
_DRAW = """async ([url, seconds, first]) => {
  const { drawCharts } = await import(url);
  const plot = document.querySelector("#plot-levels");
  document.querySelector("#live").removeAttribute("id"); // no figures of the server
  plot.dataset.span = seconds;
  plot.dataset.times = JSON.stringify([6e8 - first, 6e8]);
  plot.dataset.values = "[[1,1],[1,1]]";
  drawCharts(document);
  await new Promise((done) => setTimeout(done, 200));
  const canvas = plot.querySelector("canvas");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = (x, y) => pixels[4 * (y * canvas.width + x) + 3] > 0;
  const rows = [...Array(canvas.height).keys()];
  const edge = rows.filter((y) => y > canvas.height - 28 && (seen(canvas.width - 1, y) || seen(canvas.width - 2, y)));
  // How much is drawn in a column: horizontal lines, and the line of the values.
  const drawn = (part) => {
    const x = Math.round(48 + part * (canvas.width - 68));
    return rows.filter((y) => y < canvas.height - 28 && seen(x, y)).length;
  };
  return { edge: edge.length, left: drawn(0.23), right: drawn(0.83) };
}"""


@pytest.mark.parametrize("path", PATHS)
def test_an_address_is_on_one_line_at_the_width_of_a_tablet(path: str, shown: Window, cluster: BrowserCluster) -> None:
    shown.page.set_viewport_size(TABLET)
    shown.go(path.format(node=cluster.names[0]))
    addresses = shown.page.locator(".address").evaluate_all(_LINES)
    assert [text for text, lines in addresses if lines > 1] == []
    assert addresses or path == "/nodes/{node}"
    assert shown.overflow() <= 0


def test_the_place_of_a_missing_tile_is_as_light_as_a_tile(shown: Window) -> None:
    shown.page.set_viewport_size(TABLET)
    shown.go("/")
    (behind,) = shown.page.locator("#figures").evaluate_all(_BACKGROUNDS)
    assert behind == shown.page.locator("#list, .panel").evaluate_all(_BACKGROUNDS)[0]


def _drawn(shown: Window, seconds: int, first: int) -> dict[str, Any]:
    shown.go("/")
    script = next(url for url in shown.page.locator("script[src]").evaluate_all("all => all.map((each) => each.src)"))
    drawn: dict[str, Any] = shown.page.evaluate(_DRAW, [script.rpartition("/")[0] + "/charts.js", seconds, first])
    return drawn


def test_labels_of_a_chart_are_whole(shown: Window) -> None:
    assert _drawn(shown, 600, 600)["edge"] == 0


def test_a_chart_of_an_hour_shows_an_hour(shown: Window) -> None:
    whole, half = _drawn(shown, 3600, 3600), _drawn(shown, 3600, 1800)
    assert whole["left"] == whole["right"] == half["right"] > half["left"]
