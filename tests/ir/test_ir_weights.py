"""Every element type, from every place where a file may keep its data."""

from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import torch
from ir.irmodels import external, fault, value, with_weight, write
from onnx import TensorProto, helper, numpy_helper

from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.packed import packed_bytes
from torch_ort_session.ir.save import tensor_proto
from torch_ort_session.ir.text import dump
from torch_ort_session.ir.types import ElementType

NUMBERS = [e for e in ElementType if e not in (ElementType.UNDEFINED, ElementType.STRING)]
BY_NAME = pytest.mark.parametrize("element", NUMBERS, ids=lambda e: e.name)


def patterns(element: ElementType, count: int) -> bytes:
    """Random bits that are valid elements; no NaN, so that values compare."""
    rng = np.random.default_rng(int(element))
    if not count:
        return b""
    if element is ElementType.BOOL:
        return rng.integers(0, 2, count, dtype=np.uint8).tobytes()
    if element.is_packed:
        spare = packed_bytes(count, element) * 8 - count * element.bits
        data = bytearray(rng.bytes(packed_bytes(count, element)))
        data[-1] &= 0xFF >> spare
        return bytes(data)
    dtype = element.torch_dtype
    assert dtype is not None
    if dtype.is_floating_point or dtype.is_complex:
        numbers = torch.tensor(rng.uniform(0.25, 100, 2 * count))
        if dtype.is_complex:
            return torch.complex(numbers[:count], numbers[count:]).to(dtype).numpy().tobytes()
        return numbers[:count].to(torch.float32).to(dtype).view(torch.uint8).numpy().tobytes()
    return rng.bytes(count * dtype.itemsize)


def tensor_of(element: ElementType, dims: tuple[int, ...]) -> TensorProto:
    proto = TensorProto(name="w", data_type=int(element), dims=dims)
    proto.raw_data = patterns(element, math.prod(dims))
    return proto


def numbers(array: np.ndarray) -> torch.Tensor:
    """What onnx itself reads, as float64 or complex128 or int."""
    if array.dtype.kind == "c":
        return torch.from_numpy(array.astype(np.complex128))
    if array.dtype.kind in "biu":
        return torch.from_numpy(array.astype(np.uint64 if array.dtype == np.uint64 else np.int64))
    return torch.from_numpy(array.astype(np.float64))


def check(weight, proto: TensorProto) -> None:
    element = ElementType(proto.data_type)
    assert weight.element is element
    assert weight.data.dtype is element.torch_dtype
    assert weight.shape == tuple(proto.dims)
    array = numpy_helper.to_array(proto)
    expected = numbers(array)
    data = weight.data
    found = data.to(torch.float32).double() if data.dtype.is_floating_point else data
    if data.dtype is torch.float64:
        found = data
    torch.testing.assert_close(found.to(expected.dtype), expected, rtol=0, atol=0)


@BY_NAME
@pytest.mark.parametrize("dims", [(3, 5), (), (0, 4), (7,)], ids=str)
def test_raw(element, dims, tmp_path):
    proto = tensor_of(element, dims)
    model = with_weight(proto)
    check(load_model(model).graph.initializers["w"], proto)
    check(load_model(model.SerializeToString()).graph.initializers["w"], proto)
    check(load_model(write(model, tmp_path / "m.onnx")).graph.initializers["w"], proto)


@BY_NAME
def test_typed_fields(element):
    raw = tensor_of(element, (3, 5))
    proto = TensorProto(name="w", data_type=int(element), dims=(3, 5))
    dtype = element.torch_dtype
    data = torch.frombuffer(bytearray(raw.raw_data), dtype=torch.uint8)
    if element.bits == 6:
        bits = int.from_bytes(raw.raw_data, "little")
        proto.int32_data.extend(bits >> (6 * i) & 63 for i in range(15))
    elif element.is_packed or dtype.itemsize == 1:
        proto.int32_data.extend((data.view(torch.int8) if dtype is torch.int8 else data).tolist())
    elif dtype.is_complex:
        field = proto.float_data if dtype is torch.complex64 else proto.double_data
        field.extend(torch.view_as_real(data.view(dtype)).reshape(-1).tolist())
    elif dtype in (torch.float16, torch.bfloat16):
        proto.int32_data.extend(data.view(torch.uint16).tolist())
    else:
        name = {
            torch.float32: "float_data",
            torch.float64: "double_data",
            torch.int64: "int64_data",
            torch.uint32: "uint64_data",
            torch.uint64: "uint64_data",
        }.get(dtype, "int32_data")
        getattr(proto, name).extend(data.view(dtype).tolist())
    check(load_model(with_weight(proto)).graph.initializers["w"], raw)


@BY_NAME
@pytest.mark.parametrize("offset", [0, 4096, 3])
def test_external(element, offset, tmp_path):
    inline = tensor_of(element, (3, 5))
    (tmp_path / "w.bin").write_bytes(b"\xff" * offset + inline.raw_data + b"\xff" * 5)
    proto = external("w", "w.bin", (3, 5), int(element), offset=offset, length=len(inline.raw_data))
    model = with_weight(proto)
    for source, base in (
        (write(model, tmp_path / "m.onnx"), None),
        (model, tmp_path),
        (model.SerializeToString(), tmp_path),
    ):
        check(load_model(source, base_dir=base).graph.initializers["w"], inline)


@BY_NAME
def test_back_to_a_message(element):
    if element.bits == 6:
        with pytest.raises(NotImplementedError):
            tensor_proto(load_model(with_weight(tensor_of(element, (15,)))).graph.initializers["w"])
        return
    proto = tensor_of(element, (3, 5))
    weight = load_model(with_weight(proto)).graph.initializers["w"]
    assert tensor_proto(weight).raw_data == proto.raw_data


@pytest.mark.parametrize("element", [e for e in NUMBERS if e.is_packed], ids=lambda e: e.name)
def test_every_code_of_a_packed_type(element):
    count = 1 << element.bits
    bits = sum(code << (code * element.bits) for code in range(count))
    proto = TensorProto(name="w", data_type=int(element), dims=(count,))
    proto.raw_data = bits.to_bytes(packed_bytes(count, element), "little")
    weight = load_model(with_weight(proto)).graph.initializers["w"]
    check(weight, proto)
    assert len(set(weight.data.view(torch.uint8).tolist())) == count


def test_strings():
    proto = helper.make_tensor("w", TensorProto.STRING, [2, 2], [b"a", "\u00e9".encode(), b"", b"\xff"])
    data = load_model(with_weight(proto)).graph.initializers["w"].data
    assert isinstance(data, np.ndarray) and data.dtype == np.object_
    assert data.tolist() == [["a", "\u00e9"], ["", "\udcff"]]
    back = tensor_proto(load_model(with_weight(proto)).graph.initializers["w"])
    assert list(back.string_data) == list(proto.string_data)


def test_sign_extended_patterns_of_narrow_types():
    proto = TensorProto(name="w", data_type=TensorProto.FLOAT16, dims=(2,), int32_data=[-16384, 0xC000])
    assert load_model(with_weight(proto)).graph.initializers["w"].data.tolist() == [-2.0, -2.0]


def test_bool_bytes_other_than_0_and_1_are_true():
    proto = TensorProto(name="w", data_type=TensorProto.BOOL, dims=(3,), raw_data=b"\x02\x00\xff")
    data = load_model(with_weight(proto)).graph.initializers["w"].data
    assert data.view(torch.uint8).tolist() == [1, 0, 1]


def test_a_weight_is_a_private_view_of_the_file(tmp_path):
    """Aligned data is mapped; writing to it reaches neither the file nor another load of it."""
    array = np.arange(1 << 16, dtype=np.float32)
    array.tofile(tmp_path / "w.bin")
    path = write(with_weight(external("w", "w.bin", array.shape)), tmp_path / "m.onnx")
    first, second = (load_model(path).graph.initializers["w"].data for _ in range(2))
    first.fill_(-1)
    assert torch.equal(second, torch.from_numpy(array))
    assert np.array_equal(np.fromfile(tmp_path / "w.bin", dtype=np.float32), array)


def test_large_weights_are_cut_out_of_the_file(tmp_path):
    """Every place where a large tensor may stand: initializer, attribute, body, sparse, function."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((300, 400)).astype(np.float32) for name in "abcde"}
    tensors = {name: numpy_helper.from_array(array, name) for name, array in arrays.items()}
    body = helper.make_graph(
        [helper.make_node("Constant", [], ["inner"], value=tensors["b"])], "body", [], [value("inner")]
    )
    body.initializer.append(tensors["c"])
    flat = helper.make_tensor("d", TensorProto.FLOAT, [120000], arrays["d"].tobytes(), raw=True)
    where = numpy_helper.from_array(np.arange(120000, dtype=np.int64), "where")
    call = helper.make_node("F", [], ["e_out"], domain="local")
    function = helper.make_function(
        "local",
        "F",
        [],
        ["o"],
        [helper.make_node("Constant", [], ["o"], value=tensors["e"])],
        [helper.make_opsetid("", 21)],
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["b_out"], then_branch=body, else_branch=body), call],
        "g",
        [value("flag", TensorProto.BOOL, ())],
        [value("b_out"), value("e_out")],
        [tensors["a"]],
        sparse_initializer=[helper.make_sparse_tensor(flat, where, [300, 400])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], functions=[function])
    for source in (write(model, tmp_path / "m.onnx"), model.SerializeToString(), model):
        loaded = load_model(source).graph
        branch = loaded.nodes[0].attributes["then_branch"]
        constant = next(node for node in loaded.nodes if node.op == "Constant")
        for name, weight in (
            ("a", loaded.initializers["a"]),
            ("b", branch.nodes[0].attributes["value"]),
            ("c", branch.initializers["c"]),
            ("d", loaded.initializers["d"]),
            ("e", constant.attributes["value"]),
        ):
            assert torch.equal(weight.data, torch.from_numpy(arrays[name])), name


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize(
    "element",
    [TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT8E5M2, TensorProto.INT4, TensorProto.BOOL],
)
def test_sparse(element, linear):
    values = helper.make_tensor("w", element, [2], [1, 1])
    dims, where = ([2], [2, 3]) if linear else ([2, 2], [0, 2, 1, 0])
    indices = helper.make_tensor("i", TensorProto.INT64, dims, where)
    model = with_weight(helper.make_tensor("unused", TensorProto.FLOAT, [1], [0]))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    weight = load_model(model).graph.initializers["w"]
    assert weight.data.to(torch.float32).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert weight.element == element


def test_faults_of_sparse_tensors():
    def text(indices, dims=(2, 3), count=2, kind=TensorProto.INT64, shape=None):
        values = helper.make_tensor("w", TensorProto.FLOAT, [count], [1] * count)
        where = helper.make_tensor("i", kind, shape or [len(indices)], indices)
        model = with_weight(helper.make_tensor("unused", TensorProto.FLOAT, [1], [0]))
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, where, dims))
        return fault(model)

    assert "index 6 lies outside of dims [2, 3]" in text([1, 6])
    assert "index -1 lies outside" in text([-1, 1])
    assert "index 3 lies outside" in text([0, 3, 1, 0], shape=[2, 2])
    assert "given twice" in text([1, 1])
    assert "fit neither [2] nor [2, 2]" in text([1, 2, 3])
    assert "int32 indices" in text([1, 2], kind=TensorProto.INT32)
    assert "made dense it needs 2199023255552 bytes" in text([1, 2], dims=(1 << 20, 1 << 19))
    assert text([1, 6]).startswith("sparse initializer 'w': ")


def test_types_that_onnx_knows_are_all_known_here():
    assert {e.name: int(e) for e in ElementType} == dict(onnx.TensorProto.DataType.items())


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_models_are_copied_and_pickled(tmp_path, again):
    """Also what is mapped: the copy does not need the file."""
    array = np.arange(1 << 16, dtype=np.float32)
    array.tofile(tmp_path / "w.bin")
    model = load_model(write(with_weight(external("w", "w.bin", array.shape)), tmp_path / "m.onnx"))
    found = again(model)
    (tmp_path / "w.bin").unlink()
    assert dump(found.graph) == dump(model.graph)
    assert torch.equal(found.graph.initializers["w"].data, torch.from_numpy(array))


def test_models_load_in_threads(tmp_path):
    array = np.arange(1 << 17, dtype=np.float32)
    path = write(with_weight(numpy_helper.from_array(array, "w")), tmp_path / "m.onnx")
    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(load_model, [path] * 32))
    assert all(np.array_equal(model.graph.initializers["w"].data, array) for model in models)
