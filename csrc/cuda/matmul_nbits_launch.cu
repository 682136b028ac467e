#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "launch.h"
#include "matmul_nbits.cuh"

namespace tos::cuda {

namespace {

template <int kRows, class T>
void multiply_by(int bits, const NbitsProduct<T>& args, cudaStream_t stream) {
  const Geometry g = matmul_nbits_geometry<kRows>(args);
  if (bits == 4) {
    matmul_nbits_kernel<4, kRows><<<g.grid, g.block, g.shared, stream>>>(args);
  } else {
    matmul_nbits_kernel<8, kRows><<<g.grid, g.block, g.shared, stream>>>(args);
  }
}

template <class T>
void multiply(const NbitsAddresses& weight, const NbitsRows& rows, cudaStream_t stream) {
  const NbitsProduct<T> args{nbits_weight_at<T>(weight), static_cast<const T*>(rows.x),
                             static_cast<const T*>(rows.bias), static_cast<T*>(rows.y), rows.count};
  if (rows.count == 1) {
    multiply_by<1>(weight.bits, args, stream);
  } else {
    multiply_by<kNbitsRows>(weight.bits, args, stream);
  }
}

template <class T>
void unpack(const NbitsAddresses& weight, void* out, cudaStream_t stream) {
  const NbitsWeight<T> from = nbits_weight_at<T>(weight);
  if (weight.bits == 4) {
    const Geometry g = nbits_floats_geometry<4>(from);
    nbits_floats_kernel<4><<<g.grid, g.block, g.shared, stream>>>(from, static_cast<T*>(out));
  } else {
    const Geometry g = nbits_floats_geometry<8>(from);
    nbits_floats_kernel<8><<<g.grid, g.block, g.shared, stream>>>(from, static_cast<T*>(out));
  }
}

}  // namespace

void launch_matmul_nbits(Real type, const NbitsAddresses& weight, const NbitsRows& rows,
                         cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return multiply<float>(weight, rows, stream);
    case Real::kHalf:
      return multiply<c10::Half>(weight, rows, stream);
    case Real::kBFloat16:
      return multiply<c10::BFloat16>(weight, rows, stream);
  }
}

void launch_nbits_floats(Real type, const NbitsAddresses& weight, void* out, cudaStream_t stream) {
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
