"""The CPU's recorder: it writes the ATen calls of a body on a native tape.

It refuses what no tape can repeat.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ort_session.plan.memory import PlaceKind
from torch_ort_session.runtime.recorders.api import Diverged, Finished, RecordingStats, Refused, Shared, Use
from torch_ort_session.runtime.recorders.tape.aten import (
    OpCall,
    OpTraits,
    out_variants,
    scratch_of,
    traits_of,
)
from torch_ort_session.runtime.recorders.tape.memory import Life, Notes, Part, Reuse, alike, lay_out
from torch_ort_session.runtime.recorders.tape.native import NativeModule, NativeTape
from torch_ort_session.runtime.recorders.tape.prepack import ONEDNN, TRANSPOSED, Prepacked


class TapeRecording:
    """Recorded calls on the CPU; see :class:`~.api.Recording`. Lives as long as its capture.

    Args:
        native: The compiled extension.
        tape: The calls.
        notes: What is known of them.
        blank: Keys of storages that no call wrote.
        views: Calls that made views.
        poison: Fill every slot with 0xFF after its last reader.
    """

    def __init__(
        self,
        native: NativeModule,
        tape: NativeTape,
        notes: Notes,
        blank: Iterable[int],
        views: int,
        *,
        poison: bool,
    ) -> None:
        self._native = native
        self._tape = tape
        self._poison = poison
        self._blank = frozenset(blank)
        self._notes = notes
        self._stats = RecordingStats(calls=len(tape), views=views)
        self._block: torch.Tensor | None = None

    @property
    def stats(self) -> RecordingStats:
        """Its calls and views."""
        return self._stats

    def finish_all(
        self,
        regions: Sequence[TapeRecording | None],
        shared: Sequence[Shared],
        block: Callable[[int], torch.Tensor],
    ) -> Finished:
        """Lay out the recordings of one capture together; see :meth:`~.api.Recording.finish_all`."""
        bases: list[int] = []
        length = 0
        for stage in regions:
            bases.append(length)
            length += max(1, 0 if stage is None else len(stage._tape))
        bases.append(length)
        read = [one.tensor for one in shared if one.use is not Use.INPUT]
        lives = []
        for one in shared:
            use = Use.HELD if one.use is Use.INPUT and self._poison else one.use
            start = None if one.start is None else bases[one.start]
            lives.append(Life(one.tensor, use, start, bases[one.stop]))
        recordings = [stage for stage in regions if stage is not None]
        for recording in recordings:
            recording._check(read)
        parts = [
            Part(base, stage._tape, stage._notes)
            for base, stage in zip(bases, regions, strict=False)
            if stage is not None
        ]
        saved = [one.tensor for one in shared if one.stop == len(regions)]
        memory, stats, layout, evidence = lay_out(
            self._native, parts, lives, bases, block, saved, poison=self._poison
        )
        for recording in recordings:
            recording._block = memory
        calls = sum(recording.stats.calls for recording in recordings)
        views = sum(recording.stats.views for recording in recordings)
        donated = frozenset(place.storage for place in layout.of(PlaceKind.GIVEN))
        return Finished(replace(stats, calls=calls, views=views), donated, layout, evidence)

    def donate(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Move results' bytes into new tensors; see :meth:`~.api.Recording.donate`."""
        return self._native.give(results)

    def replay(self, word: torch.Tensor | None = None) -> bool:
        """Make every call again, without Python; see :meth:`~.api.Recording.replay`."""
        try:
            outcome = self._tape.replay(word)
        except Exception as error:
            position = self._tape.position
            if position < len(self._tape):
                error.add_note(f"in a replay, at call {position} ({self._tape.name(position)})")
            raise
        if outcome is None:
            return False
        if outcome is True:
            return True
        call, op, what = outcome
        raise Diverged(op, call, what)

    def close(self) -> None:
        """Give up calls, tensors and slots."""
        self._tape.close()
        self._block = None

    def _check(self, keep: list[torch.Tensor]) -> None:
        if not self._blank.isdisjoint(self._native.storage_keys(keep)):
            raise Refused("a result lies in memory that no recorded call wrote")


_READS = frozenset(
    (
        *("numpy", "tolist", "item", "is_nonzero", "__array__", "__dlpack__", "__repr__", "__format__"),
        *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__"),
        *("data_ptr", "storage", "untyped_storage", "typed_storage", "__reduce_ex__", "__deepcopy__"),
    )
)
"""Methods that read data, or lay it open, without a call that the dispatcher sees."""

BLANK = "it reads memory that no recorded call wrote"

_CONSTRUCTORS = frozenset({"tensor", "as_tensor", "asarray", "new_tensor"})
"""Functions that read the tensors within a list out of the dispatcher's sight."""

_HOST_ARGUMENTS = {
    "tensor_split": 1,
    "ctc_loss": 2,
    "lstm": 1,
    "gru": 2,
    "rnn_tanh": 2,
    "rnn_relu": 2,
}
"""Composite functions that read the argument at that place on the host when it is a tensor."""


class TapeRecorder:
    """Records on the CPU.

    Args:
        native: The compiled extension.
        poison: Fill every slot with 0xFF after its last reader, so that a late read shows.
        packing: Packs the weights of convolutions.
    """

    def __init__(
        self, native: NativeModule, *, poison: bool = False, packing: Prepacked | None = None
    ) -> None:
        self._native, self._poison, self._packing = native, poison, packing or Prepacked()

    def record(self, body: Callable[[], None]) -> TapeRecording:
        """Run ``body`` without gradients and record its calls; see :class:`~.api.Recorder`."""
        tape = self._native.Tape()
        writer = _Writer(self._native, tape, self._packing)
        try:
            with _recording_modes(), _Reads(writer), writer:
                body()
        except Exception as error:
            tape.close()
            refusal = writer.refusal
            if refusal is None or refusal is error:
                raise
            raise Refused(refusal.reason, refusal.op) from error
        if writer.refusal is not None:
            tape.close()
            raise writer.refusal
        if not tape.settled():
            tape.close()
            raise Refused("a storage was resized after it was made")
        return TapeRecording(
            self._native, tape, writer.notes(), writer.blank, writer.views, poison=self._poison
        )


@contextlib.contextmanager
def _recording_modes() -> Iterator[None]:
    """No gradients, no inference mode, and no autocast cache; the caller's are back afterwards."""
    cached = torch.is_autocast_cache_enabled()
    # The cache would hand a tensor of the recording to an eager call, or the other way round.
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        # Inference mode would hand composite ops over whole, with the reads inside them unseen.
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)


class _Reads(TorchFunctionMode):
    """A refusal of what reads data out of the dispatcher's sight."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__()
        self.writer = writer

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READS:
            raise self.writer.refuse("it reads data on the host", f"Tensor.{name}")
        if name in _CONSTRUCTORS and any(isinstance(a, (list, tuple)) and _tensors(a) for a in args):
            raise self.writer.refuse("it reads the tensors in a list on the host", f"torch.{name}")
        place = _HOST_ARGUMENTS.get(name)
        if place is not None and len(args) > place and isinstance(args[place], torch.Tensor):
            raise self.writer.refuse("it reads a tensor on the host", f"torch.{name}")
        if name == "__set__" and func == _SET_DATA:
            raise self.writer.refuse("it changes a tensor's storage", "Tensor.data")
        return func(*args, **(kwargs or {}))


_SET_DATA: Any = vars(torch._C.TensorBase)["data"].__set__


class _Writer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The writer of calls on a tape while they take place. Lives as long as the recorded body runs.

    Attributes:
        refusal: The first thing that could not be recorded. It stays even when the body swallows it.
        views: Calls so far that made views.
        blank: Storages that were allocated and that no call has written yet.
        reuses: Calls whose result may take the place of an argument: the call, its result's storage, theirs.
        scratch: Calls that take bytes for themselves, with how many.
    """

    def __init__(self, native: NativeModule, tape: NativeTape, packing: Prepacked) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.native, self.packing = native, packing
        self.tape = tape
        self.refusal: Refused | None = None
        self.views = 0
        self.blank: set[int] = set()
        self.reuses: list[Reuse] = []
        self.scratch: list[tuple[int, int]] = []

    def notes(self) -> Notes:
        """Notes on calls that the layout of the tape's memory hangs on."""
        return Notes(tuple(self.reuses), tuple(self.scratch))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping it would import the compiler and wrap every call, and nothing compiles here.
        return False

    def refuse(self, reason: str, op: object) -> Refused:
        """The refusal to raise, which is noted."""
        refusal = Refused(reason, str(op))
        if self.refusal is None:
            self.refusal = refusal
        return refusal

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        traits = traits_of(func)
        full = traits.full(args, kwargs)
        inputs = _tensors(full)
        reason = traits.refusal or _objection(traits, full, inputs)
        if reason:
            raise self.refuse(reason, func)
        output = func(*args, **kwargs)
        listed = _results(output)
        results = [r for r in listed if r is not None]
        reason = self._write(traits, full, inputs, listed, results)
        if reason:
            raise self.refuse(reason, func)
        return output

    def _write(
        self,
        traits: OpTraits,
        full: list[Any],
        inputs: list[torch.Tensor],
        listed: list[torch.Tensor | None],
        results: list[torch.Tensor],
    ) -> str:
        """Write a call that took place; gives the reason why it cannot be."""
        if any(r.device.type != "cpu" or r.is_quantized for r in results):
            return "its result is not a plain tensor on the CPU"
        keys = self.native.storage_keys(results)
        if 0 in keys:
            return "its result is opaque"
        held = set(self.native.storage_keys(inputs))
        aliases = sum(key in held for key in keys)
        if 0 < aliases < len(keys):
            return "some of its results alias an input and some do not"
        if aliases and not traits.writes:
            if not traits.views:
                return "its result aliases an input, which its schema does not say"
            self.views += 1
            return ""
        fresh = bool(results) and not aliases
        if fresh:
            if any(n != keys.count(k) for n, k in zip(self.native.holders(results), keys, strict=True)):
                return "it keeps its result's memory, or shares it with others"
            self.tape.own(results)
        if traits.uninitialised:
            self.blank.update(key for key, r in zip(keys, results, strict=True) if r.numel())
            return ""
        if self.blank and self._reads_blank(traits, full, inputs):
            return BLANK
        if not inputs and fresh and traits.dtype >= 0 and full[traits.dtype] is None:
            # Else the default dtype at replay would decide.
            full[traits.dtype] = results[0].dtype
        self._add(traits, full, listed, results, fresh)
        return ""

    def _reads_blank(self, traits: OpTraits, full: list[Any], inputs: list[torch.Tensor]) -> bool:
        """Whether a call reads what was allocated and filled, if at all, out of the dispatcher's sight."""
        unread = [argument for place, argument in enumerate(full) if place in traits.unread]
        passed = set(self.native.storage_keys(_tensors(unread))) if unread else set()
        if any(key in self.blank and key not in passed for key in self.native.storage_keys(inputs)):
            return True
        if traits.writes:
            self.blank -= passed
        return False

    def _note_reuse(self, full: list[Any], result: torch.Tensor) -> None:
        """Note that a pointwise call may write its result over an argument of the same form."""
        inputs = _tensors(full)
        keys = self.native.storage_keys(inputs)
        # A call that reads an argument's memory in another form as well would read what it has written.
        other = {key for key, tensor in zip(keys, inputs, strict=True) if not alike(tensor, result)}
        old = tuple(key for key in keys if key not in other)
        if old:
            self.reuses.append(Reuse(len(self.tape), self.native.storage_keys([result])[0], old))

    def _add(
        self,
        traits: OpTraits,
        full: list[Any],
        listed: list[torch.Tensor | None],
        results: list[torch.Tensor],
        fresh: bool,
    ) -> None:
        name, overload = traits.name
        calls: Sequence[OpCall] = ()
        if name == "aten::convolution":
            calls = self.packing.into(full, results[0])
        elif name == ONEDNN:
            calls = self.packing.summed(full, results[0])
        elif name == TRANSPOSED:
            full = self.packing.transposed(full, results[0])
        elif fresh:
            calls = out_variants(traits.name, full, results)
        lazy = (
            any(t.is_conj() or t.is_neg() for t in (*results, *_tensors(full[:1])))
            if traits.copies
            else False
        )
        if calls:
            if traits.pointwise and len(calls) == 1:
                self._note_reuse(full, results[0])
            for written, how, arguments in calls:
                self._write_in_place(written, how, arguments)
        elif fresh and traits.copies and not lazy:
            self.tape.add("aten::copy_", "", [results[0], full[0], False], [])
        elif fresh and traits.into is not None and len(results) == len(listed):
            into = traits.into
            if traits.pointwise and len(results) == 1:
                self._note_reuse(full, results[0])
            self._write_in_place(into.name, into.overload, [*full, *into.more, *results])
        else:
            self.tape.add(name, overload, full, listed if fresh else [])

    def _write_in_place(self, name: str, overload: str, arguments: list[Any]) -> None:
        """Append a call that writes into its arguments."""
        if nbytes := scratch_of(name, arguments):
            self.scratch.append((len(self.tape), nbytes))
        self.tape.add(name, overload, arguments, [])


def _objection(traits: OpTraits, full: list[Any], inputs: list[torch.Tensor]) -> str:
    """Why this call of an op cannot be recorded though others can."""
    if any(t.device.type != "cpu" for t in inputs):
        return "it takes a tensor of another device"
    if traits.masks and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in full[1]):
        return "its result's shape depends on a mask"
    if traits.random and not _still(traits, full):
        return "it draws random numbers"
    return ""


def _still(traits: OpTraits, full: list[Any]) -> bool:
    """Whether the arguments of an op that may drop out elements say that none is."""
    named = {name: value for (name, _), value in zip(traits.arguments, full, strict=True)}
    if "generator" in named:
        return False
    return named.get("dropout_p") == 0 or ("p" in named and named.get("train") is False)


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors += _tensors(value)
    return tensors


def _results(output: Any) -> list[torch.Tensor | None]:
    """A call's results in the order in which the dispatcher's stack holds them, lists opened."""
    if isinstance(output, (list, tuple)):
        return [tensor for part in output for tensor in _results(part)]
    return [output if isinstance(output, torch.Tensor) else None]
