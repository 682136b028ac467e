"""Add an operator in C++ in five steps, and let torch check it: the square of relu(x), in one pass.

    python tutorials/04_add_a_native_op.py [--folder FOLDER]

It compiles one file, which takes some seconds. In the package each step has a file: see csrc/README.md.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch.utils import cpp_extension

from torch_ort_session.ops.kernel import kernel, kernels_of

# 1. The schema says what goes in, what comes out, and what is written: `Tensor(a!)` if a tensor were.
SCHEMA = "squared_relu(Tensor x) -> Tensor"

# 2. The body works on raw pointers, knows nothing of torch, and so can be tried on its own.
BODY = """
template <typename T>
void squared_relu_body(const T* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(from[i]);
    // NaN is not below zero: it stays.
    to[i] = static_cast<T>(value < 0.0f ? 0.0f : value * value);
  }
}
"""

# 3. The binding checks tensors, makes the result, and calls the body. Another device is another binding.
BINDING = f"""
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>
{BODY}
at::Tensor squared_relu(const at::Tensor& x) {{
  TORCH_CHECK_VALUE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16,
                    "squared_relu: x is ", x.scalar_type(), ", not float32 or bfloat16");
  const at::Tensor dense = x.contiguous();
  at::Tensor y = at::empty(x.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
  if (x.scalar_type() == at::kFloat) {{
    squared_relu_body(dense.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel());
  }} else {{
    squared_relu_body(dense.const_data_ptr<at::BFloat16>(), y.mutable_data_ptr<at::BFloat16>(), x.numel());
  }}
  return y;
}}

TORCH_LIBRARY(tutorial, m) {{ m.def("{SCHEMA}"); }}
TORCH_LIBRARY_IMPL(tutorial, CPU, m) {{ m.impl("squared_relu", &squared_relu); }}
"""


# 4. What torch cannot know: the result where there is no data, and the gradient.
def shape(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def keep(ctx: object, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)  # type: ignore[attr-defined]


def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
    return 2 * torch.relu(x) * grad


# 5. The operator of a model: plain torch is the reference, and what runs where the native op cannot.
def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).square()


@kernel("SquaredRelu", domain="tutorial", since=(1,))
def squared_relu(x: torch.Tensor) -> torch.Tensor:
    """The square of what is above zero.

    Args:
        x: Floats of any shape.
    """
    if x.is_cpu and x.dtype in (torch.float32, torch.bfloat16):
        return torch.ops.tutorial.squared_relu(x)
    return plain(x)


def build(folder: Path) -> None:
    source = folder / "squared_relu.cpp"
    source.write_text(BINDING, encoding="utf-8")
    cpp_extension.load(
        name="tutorial_squared_relu",
        sources=[str(source)],
        extra_cflags=["-O2", "-g0", "-Wall"],
        build_directory=str(folder),
        is_python_module=False,
    )
    torch.library.register_fake("tutorial::squared_relu", shape)
    torch.library.register_autograd("tutorial::squared_relu", backward, setup_context=keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to build; a second run there compiles nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print("compiling ...", flush=True)
        build(folder)
    op = torch.ops.tutorial.squared_relu.default
    print(f"registered  {op._schema}")
    (served,) = kernels_of(squared_relu)
    print(f"serves      {served.domain}::{served.op}, revision {served.since[0]}")

    print("\nBeside plain torch:")
    for x in (
        torch.randn(3, 50),
        torch.randn(6, 4).t(),
        torch.randn(2, 0),
        torch.tensor(float("nan")),
        torch.randn(1000).to(torch.bfloat16),
        torch.randn(5, dtype=torch.float64),
    ):
        torch.testing.assert_close(squared_relu(x), plain(x), equal_nan=True)
        print(f"  {x.dtype!s:15} {tuple(x.shape)!s:9} agrees")

    print("\nWhat torch.library.opcheck says:")
    for name, told in torch.library.opcheck(op, (torch.randn(3, 4, requires_grad=True),)).items():
        print(f"  {name:42} {told}")

    x = torch.randn(8, dtype=torch.float32, requires_grad=True)
    (ours,) = torch.autograd.grad(squared_relu(x).sum(), x)
    (theirs,) = torch.autograd.grad(plain(x).sum(), x)
    torch.testing.assert_close(ours, theirs)
    print("\nIts gradient is that of plain torch.")


if __name__ == "__main__":
    main()
