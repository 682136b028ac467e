#include "index/check_index/check_index.cuh"
#include "index/check_index/check_index_launch.h"

namespace tos::cuda {

namespace {

template <class Value, class Rule>
void launch(const CheckedValues& values, Rule rule, const Report& report, cudaStream_t stream) {
  const Geometry g = check_index_geometry(values.count);
  check_kernel<<<g.grid, g.block, g.shared, stream>>>(static_cast<const Value*>(values.from), values.to,
                                                      values.count, rule, report.flag, report.node,
                                                      report.word);
}

template <class Rule>
void launch_check(const CheckedValues& values, Rule rule, const Report& report, cudaStream_t stream) {
  switch (values.type) {
    case Integer::kInt8:
      return launch<int8_t>(values, rule, report, stream);
    case Integer::kInt16:
      return launch<int16_t>(values, rule, report, stream);
    case Integer::kInt32:
      return launch<int32_t>(values, rule, report, stream);
    case Integer::kInt64:
      return launch<int64_t>(values, rule, report, stream);
    case Integer::kUint8:
      return launch<uint8_t>(values, rule, report, stream);
  }
}

}  // namespace

void launch_check_index(const CheckedValues& values, Wrapping rule, const Report& report,
                        cudaStream_t stream) {
  launch_check(values, rule, report, stream);
}

void launch_check_range(const CheckedValues& values, Within rule, const Report& report, cudaStream_t stream) {
  launch_check(values, rule, report, stream);
}

}  // namespace tos::cuda
