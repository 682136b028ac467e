"""Bad data on a device is noted in one word and told once."""

from torch_ort_session.runtime.validation.validator import (
    Deferral,
    Ticket,
    Together,
    ValidationScope,
    ValidationWord,
    counts_routes,
    met_bad_data,
    routes_of,
    validation_for,
    validation_scope,
    word_for,
)
from torch_ort_session.runtime.validation.word import FLAGS, Fault, write_latched

__all__ = [
    "FLAGS",
    "Deferral",
    "Fault",
    "Ticket",
    "Together",
    "ValidationScope",
    "ValidationWord",
    "counts_routes",
    "met_bad_data",
    "routes_of",
    "validation_for",
    "validation_scope",
    "word_for",
    "write_latched",
]
