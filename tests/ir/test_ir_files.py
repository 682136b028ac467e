"""Files: what may be opened, external data, what a file that is no model is."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from google.protobuf import json_format, text_format
from ir.irmodels import external, fault, floats, lines, model_of, with_weight, write
from onnx import ModelProto, TensorProto, numpy_helper, printer
from onnx.helper import make_node

from torch_ort_session.ir.load import load_model
from torch_ort_session.options import Limits

DATA = np.arange(1, 9, dtype=np.float32)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Relative paths keep the temporary folder out of pinned messages."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(text: str, folder: Path) -> str:
    return text.replace(str(folder), "TMP").replace(os.path.realpath(folder), "TMP")


def stored(path: str = "w.bin", model: str = "m.onnx", **entries) -> str:
    write(with_weight(external("w", path, (4,), **entries)), Path(model))
    return model


def weight(path, **kwargs) -> torch.Tensor:
    return load_model(path, **kwargs).graph.initializers["w"].data


def test_paths_of_every_kind(here):
    write(model_of([make_node("Neg", ["x"], ["y"])]), here / "m.onnx")
    for path in ("m.onnx", here / "m.onnx", os.fsencode(here / "m.onnx").decode(), Path("m.onnx")):
        assert load_model(path).source == str(path)


def test_bytes_of_every_kind(here):
    data = with_weight(numpy_helper.from_array(np.arange(100_000), "w")).SerializeToString()
    for source in (data, bytearray(data), memoryview(data), memoryview(data).cast("b")):
        model = load_model(source)
        assert model.source == "<bytes>"
        found = model.graph.initializers["w"].data
        found += 1  # The weight does not share the caller's memory.
        assert torch.equal(found, torch.arange(1, 100_001))
    assert data == with_weight(numpy_helper.from_array(np.arange(100_000), "w")).SerializeToString()


@pytest.mark.parametrize("where", ["w.bin", "sub/w.bin", "./w.bin", "sub//w.bin"])
def test_external_data_beside_the_model(here, where):
    (here / "sub").mkdir()
    DATA.tofile(here / where)
    assert weight(stored(where)).tolist() == [1, 2, 3, 4]
    assert weight(stored(where, offset=16)).tolist() == [5, 6, 7, 8]
    assert weight(stored(where, offset=8, length=16)).tolist() == [3, 4, 5, 6]


def test_a_base_dir_replaces_the_models_folder(here):
    (here / "data").mkdir()
    DATA.tofile(here / "data" / "w.bin")
    path = stored()
    assert weight(path, base_dir="data").tolist() == [1, 2, 3, 4]
    assert weight(Path(path).read_bytes(), base_dir=here / "data").tolist() == [1, 2, 3, 4]


def hub(root: Path, outside: bytes | None = None) -> Path:
    """The layout of the Hugging Face cache: a snapshot of links to blobs."""
    blobs, snapshot = root / "hub" / "blobs", root / "hub" / "snapshots" / "rev" / "onnx"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    write(with_weight(external("w", "model.onnx_data", (4,))), blobs / "aaa")
    DATA.tofile(blobs / "bbb")
    (snapshot / "model.onnx").symlink_to("../../../blobs/aaa")
    (snapshot / "model.onnx_data").symlink_to("../../../blobs/bbb")
    return snapshot / "model.onnx"


def test_the_hugging_face_cache_works(here, monkeypatch):
    path = hub(here)
    assert weight(path).tolist() == [1, 2, 3, 4]
    monkeypatch.chdir(path.parent)
    assert weight("model.onnx").tolist() == [1, 2, 3, 4]
    # As bytes, base_dir is the snapshot, and the blobs are not in it.
    assert "leads out of the model's folder" in fault(path.read_bytes(), base_dir=path.parent)


def test_escapes(here):
    (here / "secret").mkdir()
    (here / "in").mkdir()
    DATA.tofile(here / "secret" / "w.bin")
    DATA.tofile(here / "in" / "real.bin")
    os.chdir("in")
    (here / "in" / "link.bin").symlink_to("../secret/w.bin")
    (here / "in" / "dir").symlink_to("../secret")
    (here / "in" / "chain.bin").symlink_to("link.bin")
    (here / "in" / "inside.bin").symlink_to("real.bin")
    os.link(here / "secret" / "w.bin", here / "in" / "hard.bin")
    places = [
        "../secret/w.bin",
        "dir/../../secret/w.bin",
        "..\\secret\\w.bin",
        str(here / "secret" / "w.bin"),
        "C:\\secret\\w.bin",
        "link.bin",
        "chain.bin",
        "dir/w.bin",
        "hard.bin",
        "",
        "w\0.bin",
        "nothing.bin",
        ".",
    ]
    texts = [shown(fault(stored(place)), here) for place in places]
    assert_expected_inline(
        lines(*texts),
        """\
external data of initializer 'w': the location '../secret/w.bin' leads out of the folder by '..';
    external data must be a relative path to a file beside the model
external data of initializer 'w': the location 'dir/../../secret/w.bin' leads out of the folder by
    '..'; external data must be a relative path to a file beside the model
external data of initializer 'w': the location '..\\\\secret\\\\w.bin' leads out of the folder by '..';
    external data must be a relative path to a file beside the model
external data of initializer 'w': the location 'TMP/secret/w.bin' is an absolute path; external data
    must be a relative path to a file beside the model
external data of initializer 'w': the location 'C:\\\\secret\\\\w.bin' is an absolute path; external
    data must be a relative path to a file beside the model
external data of initializer 'w': the location 'link.bin' is a link that leads out of the model's
    folder, to 'TMP/secret/w.bin'; copy that file beside the model if it is meant
external data of initializer 'w': the location 'chain.bin' is a link that leads out of the model's
    folder, to 'TMP/secret/w.bin'; copy that file beside the model if it is meant
external data of initializer 'w': the location 'dir/w.bin' is a link that leads out of the model's
    folder, to 'TMP/secret/w.bin'; copy that file beside the model if it is meant
external data of initializer 'w': 'TMP/in/hard.bin' has 2 names (hard links), so it may be a file
    from outside of the model's folder: copy it, or pass Limits(hard_links=True) for a model you
    trust
external data of initializer 'w': it has no location: the file is damaged
external data of initializer 'w': the name 'w\\x00.bin' holds a NUL character: the file is damaged
external data of initializer 'w': there is no file 'nothing.bin' in 'TMP/in': fetch the data file
    that belongs to the model and put it there
external data of initializer 'w': 'TMP/in' is a directory, a model needs a regular file; it holds
    'm.onnx': pass that path""",
    )
    assert weight(stored("inside.bin")).tolist() == [1, 2, 3, 4]
    assert weight(stored("hard.bin"), limits=Limits(hard_links=True)).tolist() == [1, 2, 3, 4]


def test_faults_of_external_data(here):
    DATA.tofile(here / "w.bin")
    twice = external("w", "w.bin", (4,))
    twice.external_data.add(key="location", value="w.bin")
    both = external("w", "w.bin", (4,))
    both.raw_data = DATA[:4].tobytes()
    strings = external("w", "w.bin", (4,), TensorProto.STRING)
    texts = [
        fault(stored(offset=20)),
        fault(stored(offset=1 << 60)),
        fault(stored(offset=-4)),
        fault(stored(offset="4.0")),
        fault(stored(offset="1_6")),
        fault(stored(offset="9" * 5000)),
        fault(stored(length=12)),
        fault(stored(length="")),
        fault(with_weight(external("w", "w.bin", (4,)))),
        fault(with_weight(external("w", "w.bin", (4,))).SerializeToString()),
        fault(with_weight(twice), base_dir=here),
        fault(with_weight(both), base_dir=here),
        fault(with_weight(strings), base_dir=here),
        fault(with_weight(external("w", "w.bin", (1 << 30, 1 << 30))), base_dir=here),
        fault(stored(), limits=Limits(file_bytes=1000, elements=2)),
    ]
    assert_expected_inline(
        lines(*texts),
        """\
external data of initializer 'w': 16 bytes at offset 20 run past the end of 'w.bin', which has 32
    bytes: the data file is truncated or belongs to another model
external data of initializer 'w': 16 bytes at offset 1152921504606846976 run past the end of
    'w.bin', which has 32 bytes: the data file is truncated or belongs to another model
external data of initializer 'w': its offset is '-4', not a number of bytes: the file is damaged
external data of initializer 'w': its offset is '4.0', not a number of bytes: the file is damaged
external data of initializer 'w': its offset is '1_6', not a number of bytes: the file is damaged
external data of initializer 'w': its offset is '9999999999999999999999999999999999999999', not a
    number of bytes: the file is damaged
external data of initializer 'w': its length is 12 bytes, its dims and type need 16: the file is
    damaged
external data of initializer 'w': its length is '', not a number of bytes: the file is damaged
external data of initializer 'w': the data lies in the file 'w.bin', and a model that does not come
    from a path has no folder: pass base_dir=
external data of initializer 'w': the data lies in the file 'w.bin', and a model that does not come
    from a path has no folder: pass base_dir=
external data of initializer 'w': its key 'location' is given twice: the file is damaged
initializer 'w': it has data in external and raw_data, one is allowed: the file is damaged
initializer 'w': a string tensor keeps its data in string_data, not in external
initializer 'w': dims [1073741824, 1073741824] have more than 1099511627776 elements: the file is
    damaged, or pass Limits(elements=...)
initializer 'w': dims [4] have more than 2 elements: the file is damaged, or pass
    Limits(elements=...)""",
    )
    assert "the limit is 8" in fault(
        with_weight(external("w", "w.bin", (4,))), base_dir=here, limits=Limits(file_bytes=8)
    )


def test_faults_of_tensors():
    def text(**fields):
        return fault(with_weight(TensorProto(name="w", **fields)))

    texts = [
        text(data_type=1, dims=[3], raw_data=b"1234"),
        text(data_type=1, dims=[3]),
        text(data_type=1, dims=[3], float_data=[1]),
        text(data_type=1, dims=[1], int32_data=[1]),
        text(data_type=1, dims=[1], raw_data=b"1234", float_data=[1]),
        text(data_type=1, dims=[-1], raw_data=b"1234"),
        text(data_type=1, dims=[1 << 62, 1 << 62]),
        text(data_type=1, dims=[0, 1 << 62]),
        text(data_type=1, dims=[1] * 65, raw_data=b"1234"),
        text(data_type=0, dims=[1], raw_data=b"1234"),
        text(dims=[1], raw_data=b"1234"),
        text(data_type=77, dims=[1], raw_data=b"1234"),
        text(data_type=3, dims=[1], int32_data=[256]),
        text(data_type=12, dims=[1], uint64_data=[1 << 32]),
        text(data_type=14, dims=[1], float_data=[1]),
        text(data_type=22, dims=[3], int32_data=[1]),
        text(data_type=22, dims=[3], raw_data=b"1"),
        text(data_type=8, dims=[1], raw_data=b"a"),
        text(data_type=8, dims=[2], string_data=[b"a"]),
        text(data_type=1, dims=[1], raw_data=b"1234", segment=TensorProto.Segment(begin=0, end=1)),
    ]
    assert_expected_inline(
        lines(*texts),
        """\
initializer 'w': raw_data has 4 bytes, its dims and type need 12: the file is damaged
initializer 'w': it has no data, its dims [3] need 3 elements
initializer 'w': float_data has 1 entries, its dims and type need 3
initializer 'w': a float32 tensor keeps its data in float_data, not in int32_data
initializer 'w': it has data in raw_data and float_data, one is allowed: the file is damaged
initializer 'w': dim -1 is negative: the file is damaged
initializer 'w': dims [4611686018427387904, 4611686018427387904] have more than 1099511627776
    elements: the file is damaged, or pass Limits(elements=...)
initializer 'w': dims [0, 4611686018427387904] have more than 1099511627776 elements: the file is
    damaged, or pass Limits(elements=...)
initializer 'w': rank 65 is more than torch's 64
initializer 'w': it has no element type: the file is damaged
initializer 'w': it has no element type: the file is damaged
initializer 'w': element type 77 is none of ONNX: the file is damaged or newer than this package
initializer 'w': the entry 256 does not fit int8: the file is damaged
initializer 'w': the entry 4294967296 does not fit uint32: the file is damaged
initializer 'w': float_data has 1 entries, its dims and type need 2
initializer 'w': int32_data has 1 entries, its dims and type need 2
initializer 'w': raw_data has 1 bytes, its dims and type need 2: the file is damaged
initializer 'w': a string tensor keeps its data in string_data, not in raw_data
initializer 'w': string_data has 1 entries, its dims need 2
initializer 'w': it is stored in segments, which is not supported: save the model anew""",
    )


def test_what_is_no_regular_file(here):
    (here / "folder").mkdir()
    (here / "models").mkdir()
    (here / "models" / "b.onnx").touch()
    (here / "models" / "a.onnx").touch()
    (here / "empty.onnx").touch()
    (here / "dangling").symlink_to("nowhere")
    (here / "loop").symlink_to("loop")
    os.mkfifo(here / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    paths = [
        "none.onnx",
        "folder",
        "models",
        "empty.onnx",
        "dangling",
        "loop",
        "pipe",
        "socket",
        "/dev/zero",
        "a\0b",
    ]
    texts = [shown(fault(path), here) for path in paths]
    server.close()
    assert_expected_inline(
        lines(*texts),
        """\
file 'none.onnx': there is no file 'none.onnx' (working directory 'TMP')
file 'folder': 'folder' is a directory, a model needs a regular file
file 'models': 'models' is a directory, a model needs a regular file; it holds 'a.onnx': pass that
    path
file 'empty.onnx': it is empty: fetch or export the model again
file 'dangling': there is no file 'dangling' (working directory 'TMP')
file 'loop': 'loop' cannot be opened: Too many levels of symbolic links
file 'pipe': 'pipe' is a named pipe, a model needs a regular file
file 'socket': 'socket' is a socket, a model needs a regular file
file '/dev/zero': '/dev/zero' is a character device, a model needs a regular file
file 'a\\x00b': the path 'a\\x00b' holds a NUL character""",
    )
    assert "a named pipe" in fault(stored("pipe")) and "a directory" in fault(stored("folder"))


def test_a_file_that_may_not_be_read(here, monkeypatch):
    """Root may read everything, so the refusal is made up."""
    path = stored()

    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert fault(path) == "file 'm.onnx': 'm.onnx' cannot be opened: Permission denied"


def test_likely_causes(here):
    model = model_of([make_node("Neg", ["x"], ["y"])], weights=[floats("w", 1, 2)])
    torch.save({"a": torch.ones(2)}, here / "net.pt")
    files = {
        "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        "zip": (here / "net.pt").read_bytes(),
        "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(50),
        "ort": b"\x1c\0\0\0ORTM" + bytes(100),
        "tflite": b"\x1c\0\0\0TFL3" + bytes(100),
        "gguf": b"GGUF\x03\0\0\0" + bytes(50),
        "safetensors": (60).to_bytes(8, "little") + b'{"a":{"dtype":"F32"}}' + b" " * 60,
        "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(50),
        "pickle": b"\x80\x02}q\x00.",
        "gzip": b"\x1f\x8b\x08\0" + bytes(20),
        "html": b"<!DOCTYPE html><html><body>404</body></html>",
        "textproto": text_format.MessageToString(model).encode(),
        "json": json.dumps(json_format.MessageToDict(model), indent=1).encode(),
        "syntax": printer.to_text(model).encode(),
        "noise": bytes(range(255, 0, -1)),
        "empty": b"",
        "cut": model.SerializeToString()[:-10],
        "no graph": ModelProto(ir_version=8, producer_name="p").SerializeToString(),
    }
    texts = [f"{name}: {fault(data)}" for name, data in files.items()]
    assert_expected_inline(
        lines(*texts),
        """\
lfs: model bytes: it is a Git LFS pointer, the model itself was not fetched: run `git lfs pull`
zip: model bytes: it is a zip archive, perhaps a PyTorch checkpoint: unpack it, or export with
    torch.onnx.export
png: model bytes: it is an image or a document, no model: check the path
ort: model bytes: it is a model in ORT format (.ort), which only onnxruntime reads: use the .onnx it
    was made from
tflite: model bytes: it is a TensorFlow Lite model: convert it to ONNX, for example with tf2onnx
gguf: model bytes: it is a GGUF model: export the original model to ONNX
safetensors: model bytes: it is a safetensors file, which holds weights and no graph: export the
    model to ONNX
hdf5: model bytes: it is an HDF5 file, perhaps a Keras model: convert it to ONNX, for example with
    tf2onnx
pickle: model bytes: it is a Python pickle, perhaps a PyTorch checkpoint: export with
    torch.onnx.export
gzip: model bytes: it is a compressed file: unpack it first
html: model bytes: it is a web page, perhaps an error page saved by a download: fetch the model
    again
textproto: model bytes: it is a protobuf text file: convert it with onnx.save(onnx.load(path,
    format="textproto"), ...)
json: model bytes: it is JSON: convert a model in JSON with onnx.save(onnx.load(path,
    format="json"), ...)
syntax: model bytes: it is a model in ONNX's text syntax: convert it with onnx.parser.parse_model
    and onnx.save
noise: model bytes: it cannot be parsed as an ONNX model (Error parsing message with type
    'onnx.ModelProto': Wire format was corrupt): the file is truncated, damaged or no model
empty: model bytes: it is empty: fetch or export the model again
cut: model bytes: it cannot be parsed as an ONNX model (Error parsing message with type
    'onnx.ModelProto': Wire format was corrupt): the file is truncated, damaged or no model
no graph: model bytes: it holds no graph: the file is truncated, or no ONNX model""",
    )
    # A file says the same as its bytes.
    (here / "f").write_bytes(files["lfs"])
    assert fault("f") == "file 'f': " + fault(files["lfs"]).removeprefix("model bytes: ")


def test_large_files_name_the_byte(here):
    """From 256 KiB on the message is walked before it is parsed."""
    model = with_weight(numpy_helper.from_array(np.zeros(1 << 17, dtype=np.float32), "w"))
    data = model.SerializeToString()
    texts = [
        fault(data[: len(data) // 2]),
        fault(data[:-1]),
        fault(b"\x3a\xff\xff\xff" + bytes(1 << 19)),
        fault(bytes([0x3B]) * (1 << 19)),
    ]
    assert_expected_inline(
        lines(*texts),
        """\
model bytes / byte 9: a field of 524319 bytes runs past the end of the file by 262163 bytes: the
    file is truncated or damaged; fetch it again
model bytes / byte 524332: a field of 4 bytes runs past the end of the file by 1 bytes: the file is
    truncated or damaged; fetch it again
model bytes / byte 0: a field of 2097151 bytes runs past the end of the file by 1572864 bytes: the
    file is truncated or damaged; fetch it again
model bytes / byte 0: wire type 3 of field 7 does not occur in a model: the file is damaged or no
    ONNX model""",
    )


def test_files_of_more_than_2_gib(here):
    """More than a parser of protobuf takes; the weight is a hole in the file and is mapped, not read."""
    size = (1 << 31) + 12
    weight = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[size]).SerializeToString()
    weight += b"\x4a" + varint(size)
    graph = with_weight(TensorProto(name="v", data_type=TensorProto.UINT8)).graph
    del graph.initializer[:]
    graph.output[0].name = "w"
    head = graph.SerializeToString() + b"\x2a" + varint(len(weight) + size) + weight
    data = ModelProto(ir_version=10).SerializeToString() + b"\x3a" + varint(len(head) + size) + head
    with open("big.onnx", "wb") as file:
        file.write(data)
        file.seek(size - 3, os.SEEK_CUR)
        file.write(b"end")
    found = load_model("big.onnx").graph.initializers["w"].data
    assert found.shape == (size,) and bytes(found[-4:].tolist()) == b"\0end"


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def test_nothing_stays_open(here):
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("needs /proc")
    DATA.tofile(here / "w.bin")
    path = stored()
    before = len(list(folder.iterdir()))
    models = [load_model(path) for _ in range(5)]
    for _ in range(5):
        fault(stored("nothing.bin", "bad.onnx"))
    # A map keeps a descriptor of its own, one a model.
    assert len(list(folder.iterdir())) <= before + len(models)
    del models
    assert len(list(folder.iterdir())) == before


def test_a_pipe_never_blocks(here):
    os.mkfifo(here / "pipe")
    done = threading.Event()

    def work() -> None:
        fault("pipe")
        done.set()

    threading.Thread(target=work, daemon=True).start()
    assert done.wait(10)


def test_no_file_outside_is_opened(here):
    """An audit hook sees every file that Python opens."""
    (here / "in").mkdir()
    (here / "canary.bin").write_bytes(DATA.tobytes())
    (here / "in" / "link.bin").symlink_to("../canary.bin")
    opened: list[str] = []
    active = True

    def hook(event: str, args: tuple[object, ...]) -> None:
        if active and event == "open":
            opened.append(str(args[0]))

    sys.addaudithook(hook)
    os.chdir("in")
    for place in ("../canary.bin", str(here / "canary.bin"), "link.bin"):
        fault(stored(place))
    active = False
    assert any("m.onnx" in name for name in opened)
    assert not any("canary" in name or "link" in name for name in opened)
