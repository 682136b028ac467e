#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "attention/gqa_decode/gqa_decode.cuh"
#include "attention/gqa_decode/gqa_decode_launch.h"

namespace tos::cuda {

namespace {

template <class T, class S, int kEach>
void attend_wide(const GqaDecode& step, const GqaParts& parts, cudaStream_t stream) {
  const Geometry g = gqa_attend_geometry(step, parts.parts);
  gqa_attend_kernel<T, S, kEach><<<g.grid, g.block, g.shared, stream>>>(step, parts);
}

template <class T, class S>
void attend(const GqaDecode& step, const GqaParts& parts, cudaStream_t stream) {
  const int64_t lanes = blocks_for(step.width, kWarp);
  if (lanes <= 2) {
    attend_wide<T, S, 2>(step, parts, stream);
  } else if (lanes <= 4) {
    attend_wide<T, S, 4>(step, parts, stream);
  } else {
    attend_wide<T, S, 8>(step, parts, stream);
  }
}

template <class T>
void launch(const GqaDecode& step, const GqaParts& parts, cudaStream_t stream) {
  const Geometry renew = gqa_renew_geometry(step), combine = gqa_combine_geometry(step);
  gqa_renew_kernel<T><<<renew.grid, renew.block, renew.shared, stream>>>(step, parts);
  switch (step.held) {
    case GqaHeld::kReals:
      attend<T, T>(step, parts, stream);
      break;
    case GqaHeld::kBytes:
      attend<T, int8_t>(step, parts, stream);
      break;
    case GqaHeld::kNibbles:
      attend<T, GqaNibbles>(step, parts, stream);
      break;
  }
  gqa_combine_kernel<T><<<combine.grid, combine.block, combine.shared, stream>>>(step, parts);
}

}  // namespace

int64_t gqa_parts_of(const GqaDecode& step) { return gqa_parts(step); }

void launch_gqa_decode(Real type, const GqaDecode& step, const GqaScratch& scratch, const Report& report,
                       cudaStream_t stream) {
  const GqaParts parts{scratch.places,  scratch.row_max, scratch.sum, scratch.total,
                       gqa_parts(step), report.node,     report.word};
  switch (type) {
    case Real::kFloat:
      return launch<float>(step, parts, stream);
    case Real::kHalf:
      return launch<c10::Half>(step, parts, stream);
    case Real::kBFloat16:
      return launch<c10::BFloat16>(step, parts, stream);
  }
}

}  // namespace tos::cuda
