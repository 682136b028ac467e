// What the kernels' bindings call: each function launches on a stream, and neither waits nor allocates.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/cache_appended/cache_appended.h"
#include "attention/gqa_decode/gqa_decode.h"
#include "attention/rotary/head_strides.h"
#include "core/real.h"
#include "core/word.h"
#include "elementwise/activate/activations.h"
#include "elementwise/chain/chain.h"
#include "index/check_index/check_index.h"
#include "linear/weights/nbits_weight.h"
#include "sampling/sample_token/sample_token.h"

namespace tos::cuda {

// Integers of so many bytes; those that are unsigned have one.
enum class Integer : int { kInt8 = 1, kInt16 = 2, kInt32 = 4, kInt64 = 8, kUint8 = 0 };

// What the kernels were compiled for, as nvcc writes it: "(800,900)".
const char* compiled_architectures();

// Where a kernel reports bad data, and as what; `word` may be nullptr.
struct Report {
  word::Flag flag;
  int32_t node;
  int32_t* word;
};

// Numbers that are checked, at least one, and where they go.
struct CheckedValues {
  Integer type;
  const void* from;
  int64_t* to;
  int64_t count;
};

// See check_index.cuh.
void launch_check_index(const CheckedValues& values, Wrapping rule, const Report& report,
                        cudaStream_t stream);
void launch_check_range(const CheckedValues& values, Within rule, const Report& report, cudaStream_t stream);

// Addresses of rows of one type; see SkipRmsNorm in skip_rms_norm.cuh.
struct RowNorm {
  const void* x;
  const void* skip;
  const void* bias;
  const void* gamma;
  void* total;
  void* y;
  float* inverse;
  int64_t rows;
  int64_t width;
  float epsilon;
};

// There is at least one row of at least one element.
void launch_skip_rms_norm(Real type, const RowNorm& norm, cudaStream_t stream);

// Addresses of heads of one type; see Rotary in rotary.cuh.
struct TurnedHeads {
  const void* x;
  const void* cos;
  const void* sin;
  const int64_t* positions;
  void* y;
  HeadStrides from;
  HeadStrides to;
  int64_t tokens;
  int64_t length;
  int64_t heads;
  int64_t size;
  int64_t half;
  int64_t limit;
  bool counted;
  bool interleaved;
};

// There is at least one feature. `word` may be nullptr.
void launch_rotary(Real type, const TurnedHeads& heads, int32_t node, int32_t* word, cudaStream_t stream);

// What the kernels of a step write for one another: the place of each sample, and for each query and part of
// the cache the greatest score, the sum of weights and the weighted values.
struct GqaScratch {
  int64_t* places;
  float* most;
  float* sum;
  float* total;
};

constexpr int64_t kGqaWidestHead = 256;

// See gqa_decode.cuh. There is at least one sample, and a head is no wider than kGqaWidestHead.
int64_t gqa_parts_of(const GqaDecode& step);
void launch_gqa_decode(Real type, const GqaDecode& step, const GqaScratch& scratch, const Report& report,
                       cudaStream_t stream);

// Addresses of a row, of a weight of the same type whose rows, or whose columns where it is `turned`, lie
// `stride` apart, and of the sums of `parts` of its rows where there are several; see gemv.cuh.
struct GemvAddresses {
  const void* x;
  const void* weight;
  const void* bias;
  void* y;
  float* sums;
  int64_t rows;
  int64_t columns;
  int64_t stride;
  bool turned;
};

// In how many parts the rows of a weight that is not turned are multiplied.
int64_t gemv_parts_of(Real type, const GemvAddresses& from);
// There is at least one column.
void launch_gemv(Real type, const GemvAddresses& from, cudaStream_t stream);

// Rows that are multiplied by a weight of a few bits, at least one; `bias` may be nullptr.
struct NbitsRows {
  const void* x;
  const void* bias;
  Real bias_type;
  void* y;
  int64_t count;
};

// See matmul_nbits.cuh. The weight has at least one row and one column.
void launch_matmul_nbits(Real type, const NbitsWeight& weight, const NbitsRows& rows, cudaStream_t stream);
void launch_nbits_floats(Real type, const NbitsWeight& weight, void* out, cudaStream_t stream);

// Addresses of rows and of what is made of them, of one type, and of the expert of each row; see
// ExpertRoutes in expert_rows.cuh.
struct ExpertAddresses {
  const void* x;
  const int64_t* experts;
  const void* bias;
  Real bias_type;
  void* y;
  int64_t routes;
  int64_t columns;
  int64_t rows;
  int64_t count;
};

// There is at least one element of `y`, and an expert. The weights of all experts lie one behind the other.
void launch_expert_rows(Real type, const ExpertAddresses& routes, const void* weight, cudaStream_t stream);
void launch_expert_rows_nbits(Real type, const ExpertAddresses& routes, const NbitsWeight& weight,
                              cudaStream_t stream);

// See cache_appended.cuh.
void launch_cache_append(const CacheAppend* caches, int64_t count, const int32_t* word, cudaStream_t stream);

// Addresses of rows of one type; see Activate in activate.cuh.
// There is at least one row of at least one element.
void launch_activate(Real type, const ActivateRows& rows, cudaStream_t stream);

// A chain of elementwise steps, and where its inputs, of one type, and its result lie; see
// elementwise_chain.cuh.
struct ChainedElements {
  ChainProgram program;
  ChainInput<int64_t> inputs[kChainInputs];
  void* out;
  int64_t count;
};

// There is at least one element.
void launch_elementwise_chain(Real type, const ChainedElements& chain, cudaStream_t stream);

// See sample_token.cuh. There is at least one row.
void launch_sample_token(Real type, const void* scores, int64_t* state, int64_t* token, int64_t rows,
                         int64_t size, const SampleRules& rules, cudaStream_t stream);

}  // namespace tos::cuda
