#include "linear/matmul_nbits/matmul_nbits.cuh"
#include "linear/matmul_nbits/matmul_nbits_launch.h"

namespace tos::cuda {

namespace {

template <int kBits, int kRows, class T>
void multiply_by(const NbitsProduct<T>& args, cudaStream_t stream) {
  const Geometry g = matmul_nbits_geometry<kRows>(args);
  matmul_nbits_kernel<kBits, kRows><<<g.grid, g.block, g.shared, stream>>>(args);
}

template <int kRows, class T>
void multiply_rows(const NbitsProduct<T>& args, cudaStream_t stream) {
  switch (args.weight.bits) {
    case 2:
      return multiply_by<2, kRows>(args, stream);
    case 4:
      return multiply_by<4, kRows>(args, stream);
    default:
      return multiply_by<8, kRows>(args, stream);
  }
}

template <class T>
void multiply(const NbitsWeight& weight, const NbitsRows& rows, cudaStream_t stream) {
  const NbitsProduct<T> args{weight,         static_cast<const T*>(rows.x), rows.bias,
                             rows.bias_type, static_cast<T*>(rows.y),       rows.count};
  if (rows.count == 1) {
    multiply_rows<1>(args, stream);
  } else {
    multiply_rows<kNbitsRows>(args, stream);
  }
}

template <class T>
void unpack(const NbitsWeight& weight, void* out, cudaStream_t stream) {
  const Geometry g = nbits_floats_geometry(weight);
  T* to = static_cast<T*>(out);
  switch (weight.bits) {
    case 2:
      return nbits_floats_kernel<2><<<g.grid, g.block, g.shared, stream>>>(weight, to);
    case 4:
      return nbits_floats_kernel<4><<<g.grid, g.block, g.shared, stream>>>(weight, to);
    default:
      return nbits_floats_kernel<8><<<g.grid, g.block, g.shared, stream>>>(weight, to);
  }
}

}  // namespace

void launch_matmul_nbits(Real type, const NbitsWeight& weight, const NbitsRows& rows, cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return multiply<float>(weight, rows, stream);
    case Real::kHalf:
      return multiply<c10::Half>(weight, rows, stream);
    case Real::kBFloat16:
      return multiply<c10::BFloat16>(weight, rows, stream);
  }
}

void launch_nbits_floats(Real type, const NbitsWeight& weight, void* out, cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return unpack<float>(weight, out, stream);
    case Real::kHalf:
      return unpack<c10::Half>(weight, out, stream);
    case Real::kBFloat16:
      return unpack<c10::BFloat16>(weight, out, stream);
  }
}

}  // namespace tos::cuda
