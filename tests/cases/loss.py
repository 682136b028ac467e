"""Cases of NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

import itertools

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")


def picked(log_prob, target, weight, ignore_index, reduction):
    channels_last = np.moveaxis(log_prob, 1, -1)
    safe = np.where(target == ignore_index, 0, target).astype(np.int64)
    loss = -np.take_along_axis(channels_last, safe[..., None], -1)[..., 0]
    counted = np.ones(target.shape) if weight is None else weight.astype(np.float64)[safe]
    counted = np.where(target == ignore_index, 0, counted)
    loss = np.where(counted == 0, 0, loss * counted)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / counted.sum()


def nll(x, target, weight=None, ignore_index=None, reduction="mean"):
    return np.asarray(picked(x.astype(np.float64), target, weight, ignore_index, reduction)).astype(x.dtype)


def cross_entropy(x, target, weight=None, ignore_index=None, reduction="mean"):
    wide = x.astype(np.float64)
    wide = wide - wide.max(1, keepdims=True)
    log_prob = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    loss = np.asarray(picked(log_prob, target, weight, ignore_index, reduction)).astype(x.dtype)
    return loss, log_prob.astype(x.dtype)


def first(oracle):
    return lambda *inputs, **attrs: oracle(*inputs, **attrs)[0]


def cases():
    for op, oracle in (("NegativeLogLikelihoodLoss", nll), ("SoftmaxCrossEntropyLoss", first(cross_entropy))):
        newest = 22 if op == "NegativeLogLikelihoodLoss" else 13
        for shape, reduction, weighted, ignore in itertools.product(
            ((4, 3), (2, 3, 5), (2, 3, 2, 4)), ("mean", "sum", "none"), (False, True), (None, 1, -100)
        ):
            classes = np.arange(int(np.prod(shape[:1] + shape[2:]))).reshape(shape[:1] + shape[2:]) % 3
            if ignore == -100:
                classes = np.where(classes == 2, -100, classes)
            inputs = [t(*shape, low=-3, high=0), const(classes, "int64")]
            attrs = {"reduction": reduction} | ({} if ignore is None else {"ignore_index": ignore})
            yield OpCase(
                op,
                [*inputs, const([0.5, 2.0, 0.25])] if weighted else inputs,
                attrs,
                oracle=oracle,
                grad=len(shape) == 3,
                id=f"{len(shape)}d_{reduction}_{weighted}_{ignore}",
            )
        data = [t(4, 3, low=-3, high=0), const([0, 2, 1, 1], "int32"), const([0.5, 2.0, 0.25])]
        yield OpCase(op, data, dtypes=FLOATS, opset=newest, oracle=oracle, id="dtypes")
        yield OpCase(op, data, opsets=(12, 13), oracle=oracle, id="older")
        yield OpCase(
            op,
            [t(0, 3), const(np.zeros(0), "int64")],
            {"reduction": "none"},
            oracle=lambda x, y, reduction: np.zeros(0, x.dtype),
            id="empty",
        )
        yield OpCase(
            op,
            [const([[0.0, -np.inf], [0.0, 0.0]]), const([1, 0], "int64")],
            {"reduction": "sum", "ignore_index": 1},
            oracle=lambda x, y, reduction, ignore_index, o=op: np.array(
                0.0 if o.startswith("N") else np.log(2), x.dtype
            ),
            id="ignored_infinity",
        )


CASES: tuple[OpCase, ...] = (
    *cases(),
    OpCase(
        "SoftmaxCrossEntropyLoss",
        [t(2, 3, 4, low=-3, high=3), t(2, 4, low=0, high=3, dtype="int64")],
        {"reduction": "none"},
        dtypes=FLOATS,
        outputs=2,
        oracle=cross_entropy,
        grad=True,
        id="log_prob",
    ),
)
