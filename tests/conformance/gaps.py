"""Tests of ONNX's suite that do not pass, with reasons; an entry that starts to pass fails the build."""

from __future__ import annotations

import enum


class Gap(enum.Enum):
    """Why a test does not pass."""

    GENERATOR = "the expected values were drawn by numpy's generator after it had drawn the inputs"
    SUITE = "the suite's own comparison calls len() on a 0-d array inside of a sequence; the result is right"
    ROUNDING = "values near 0 of sums to 54 are compared to 1e-7; both results are 1.5e-6 from float64"
    HALF = "the expected values round to float16 after each step of the formula; ours are closer to float64"


GAPS: dict[str, Gap] = {
    "test_attention_4d_causal_fp16_expanded_cpu": Gap.HALF,
    "test_bernoulli_cpu": Gap.GENERATOR,
    "test_bernoulli_double_cpu": Gap.GENERATOR,
    "test_bernoulli_double_expanded_cpu": Gap.GENERATOR,
    "test_bernoulli_expanded_cpu": Gap.GENERATOR,
    "test_bernoulli_seed_cpu": Gap.GENERATOR,
    "test_bernoulli_seed_expanded_cpu": Gap.GENERATOR,
    "test_dft_inverse_cpu": Gap.ROUNDING,
    "test_dft_inverse_opset19_cpu": Gap.ROUNDING,
    "test_loop16_seq_none_cpu": Gap.SUITE,
}
