"""``torch-ort-session plan``: what would be recorded, what runs in between and why, and where memory lies."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch_ort_session
from torch_ort_session.cli.common import add_json, add_model, print_json, waiting
from torch_ort_session.cli.feeds import add_feeds, make_feed
from torch_ort_session.explain.explain import explain, facts
from torch_ort_session.explain.page import page
from torch_ort_session.ir.text import byte_size


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "plan", help="show the segments, the seams and why they are, and the memory of runs on a feed"
    )
    add_model(parser)
    add_feeds(parser)
    parser.add_argument("--device", default="cpu", help="torch device (default cpu)")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write one page that shows it all, which needs no network, to this file",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Load, run once, show the plan."""
    with waiting(f"loading {args.model}"):
        session = torch_ort_session.load(args.model, device=args.device)
    feed = make_feed(session.inputs, args)
    with waiting(f"running {args.model} once"):
        plan = session.plan(feed)
    if args.html is not None:
        text = page(plan, Path(args.model).name)
        Path(args.html).write_text(text, encoding="utf-8")
    if args.json:
        print_json({"model": args.model, **facts(plan)})
        return 0
    print(explain(plan, title=args.model))
    if args.html is not None:
        print(f"\n{args.html}: {byte_size(len(text.encode()))}")
    return 0
