"""The page of a plan: all that it shows is there, and it needs nothing from anywhere else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from plan.planning import see
from plan.walks import KERNELS, X, drawn
from tapelab import needs_extension
from textmodel import operator

from torch_ort_session.explain.page import page
from torch_ort_session.plan.memory.layout import MemoryLayout
from torch_ort_session.plan.plan import Plan

pytestmark = needs_extension

VOID = {"meta", "rect", "line", "polyline", "br"}


class Document(HTMLParser):
    """Elements with their attributes, and whether each is closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.script = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script" and not self.script:
            self.script = data

    def having(self, **wanted: str) -> list[dict[str, str | None]]:
        return [a for _, a in self.elements if all(a.get(k) == v for k, v in wanted.items())]


def planned(text: str, **feed: torch.Tensor) -> Plan:
    with operator(*KERNELS):
        return see(text, feed).laid_out(feed)


def memory_of(plan: Plan) -> MemoryLayout:
    assert plan.memory is not None
    return plan.memory


SEAMS = (
    "g (float[64, 4] x) => (float[64, 4] y) { a = Neg(x) b = Exp(a) c = tests.Cut(b) d = Exp(c) n ="
    " NonZero(d)"
    " k = Cast <to = 1> (n) s = ReduceSum(k) e = Mul(d, s) y = Exp(e) }"
)


def test_every_region_and_every_slot_is_shown() -> None:
    plan = planned(SEAMS, x=torch.ones(64, 4))
    document = Document(page(plan, "seams"))
    strip = [a for a in document.having() if a.get("class") in ("segment", "seam")]
    assert [a["class"] for a in strip] == ["segment", "seam", "segment", "seam", "segment"]
    assert [a["data-r"] for a in strip] == list("01234")
    boxes = [a for tag, a in document.elements if tag == "rect"]
    slots = memory_of(plan).slots
    assert [a["data-s"] for a in boxes] == [str(i) for i in range(len(slots))]
    named = {slots[int(a["data-s"] or 0)].name: a["class"] for a in boxes}
    assert named == {
        "a": "out",
        "b": "cross",
        "c": "land",
        "d": "cross",
        "n": "land",
        "s": "out",
        "e": "out",
    }
    lines = [a for a in document.having(**{"class": "cut"})]
    assert [a["data-r"] for a in lines] == ["1", "3"]


def test_seams_are_marked_in_words_while_they_are_few() -> None:
    text = page(planned(SEAMS, x=torch.ones(64, 4)), "seams")
    marks = re.findall(r'<span style="top:(\d+)px;(left|right):4px">(.*?)</span>', text)
    # The first one's words stand lowest, so that its line crosses no others.
    assert marks == [
        ("19", "left", "<b>tests::Cut</b> kernel declares a seam"),
        ("0", "left", "<b>NonZero</b> kernel declares a seam"),
    ]
    assert "a seam lands here" in text and "seam: runs eagerly in between" in text
    many = "".join(f" c{i} = tests.Cut(e{i}) e{i + 1} = Exp(c{i})" for i in range(7))
    text = page(planned(f"g (float[4] x) => (float[4] e7) {{ e0 = Exp(x){many} }}", x=torch.ones(4)), "many")
    assert text.count('class="seam"') == 7 and 'class="marks"' not in text


def test_keys_name_only_what_is_there() -> None:
    text = page(planned("g (float[4] x) => (float[4] y) { a = Neg(x) y = Exp(a) }", x=torch.ones(4)), "plain")
    assert "segment: recorded once" in text
    for absent in ("seam: runs eagerly", "crosses regions", "a seam lands here"):
        assert absent not in text


def test_what_the_pointer_shows_is_what_the_plan_says() -> None:
    plan = planned(SEAMS, x=torch.ones(64, 4))
    data = json.loads(Document(page(plan, "seams")).script)
    compared = "every replay compares the shape of 'c'"
    assert (
        data["regions"][1] == "seam: Cut_2 (tests::Cut)\nkernel declares a seam: it cuts\nstep 2\n" + compared
    )
    assert data["regions"][0] == "segment of 2 steps, 2 launches (steps 0 to 1)\nExp, Neg"
    assert [row[2:] for row in data["slots"]] == [
        [place.nbytes, place.offset, place.first, place.last] for place in memory_of(plan).slots
    ]
    assert data["slots"][0][:2] == ["a", "Neg"]


def test_every_seam_is_in_the_table_with_its_reason() -> None:
    text = page(planned(SEAMS, x=torch.ones(64, 4)), "seams")
    for words in (
        "Cut_2",
        "tests::Cut",
        "it cuts<br>every replay compares the shape of &#x27;c&#x27;",
        "NonZero_4",
        "the size of the output depends on the data<br>every replay compares the shape of &#x27;n&#x27;",
    ):
        assert f"<td>{words}</td>" in text or f'<td class="op">{words}</td>' in text
    assert "There is no seam" not in text


@pytest.mark.parametrize("seed", range(12))
def test_boxes_lie_within_the_drawing(seed: int) -> None:
    seen = drawn(seed)
    plan = seen.laid_out({"x": X, "c": torch.tensor(True)}) if seen.plan().segments else seen.plan()
    for box in (a for tag, a in Document(page(plan, "drawn")).elements if tag == "rect"):
        x, y, width, height = (float(box[key] or "nan") for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + width <= 1216
        assert 0 <= y <= y + height <= 380
        assert min(width, height) > 0


def test_nothing_is_fetched() -> None:
    text = page(planned(SEAMS, x=torch.ones(64, 4)), "seams")
    assert not re.search(
        r"https?:|//[a-z]|@import|url\(|<link|<img|<iframe|\bsrc=|\bhref=|fetch\(|XMLHttp", text
    )
    sources = [a for _, a in Document(text).elements if "src" in a or "href" in a]
    assert sources == []


def test_names_cannot_break_the_page() -> None:
    plan = planned(SEAMS, x=torch.ones(64, 4))
    evil = '</script><script>alert("1")</script>&amp;'
    names = tuple(evil if name == "a" else name for name in plan.steps.names)
    items = tuple(
        replace(step, node=replace(step.node, name=evil)) if step.node.op == "Cut" else step
        for step in plan.steps.items
    )
    memory = memory_of(plan)
    places = tuple(place._replace(name=evil) if place.name == "a" else place for place in memory.places)
    steps = replace(plan.steps, names=names, items=items)
    text = page(replace(plan, steps=steps, memory=replace(memory, places=places)), evil)
    document = Document(text)
    assert [tag for tag, _ in document.elements].count("script") == 2
    assert json.loads(document.script)["slots"][0][0] == evil
    assert "<script>alert" not in text


def test_plans_that_have_little_to_show() -> None:
    plain = planned("g (float[2] x) => (float[2] y) { y = Neg(x) }", x=torch.ones(2))
    assert "There is no seam: a replay is one launch." in page(plain, "plain")
    assert "It is empty: nothing needs a slot." in page(plain, "plain")
    nothing = see("g (float[2] x) => (float[2] x) { y = Neg(x) }", {"x": torch.ones(2)}).plan()
    text = page(nothing, "nothing")
    assert "Nothing runs: every output is a constant or an input." in text
    assert "There is no seam" not in text


def test_a_plan_without_slots() -> None:
    plan = see("g (float[2] x) => (float[2] y) { y = Neg(x) }", {"x": torch.ones(2)}).plan()
    text = page(plan, "warm")
    Document(text)
    assert "There is none: laid out when the segments are recorded." in text
    text = page(replace(plan, failure="capture is off"), "off")
    assert "There is none: nothing is recorded: capture is off." in text


def test_a_plan_whose_memory_the_device_keeps() -> None:
    plan = see("g (float[2] x) => (float[2] y) { y = Neg(x) }", {"x": torch.ones(2)}).plan()
    text = page(replace(plan, memory=MemoryLayout(1, (0, 1), pool=1 << 21)), "pool")
    Document(text)
    assert "There is none: the device&#x27;s allocator keeps a pool for the graphs." in text.replace(
        "'s a", "&#x27;s a"
    )
    assert '<td>graph pool</td><td class="n">2.1 MB</td>' in text
    assert "<rect" not in text and "<td>arena</td>" not in text


def test_a_model_of_thousands_of_steps_stays_under_two_megabytes() -> None:
    long = "a_name_as_long_as_exporters_write_them/layers.11/self_attn/projection/output"
    made = ["x"]
    nodes = []
    for number in range(3600):
        made.append(f'"{long}_{number}"'.strip('"').replace("/", "_").replace(".", "_"))
        op = "tests.Cut" if number % 9 == 8 else "tests.Into"
        nodes.append(f"{made[-1]} = {op}({made[-2]})")
    plan = planned(
        f"g (float[64, 4] x) => (float[64, 4] {made[-1]}) {{ {' '.join(nodes)} }}", x=torch.ones(64, 4)
    )
    assert len(plan.seams) == 400
    text = page(plan, "long")
    assert len(text.encode()) < 2_000_000
    Document(text)
