// How lanes are loaded from floats of any type. Included once by each file of kernels, behind its lanes:
// everything is local to that file.
namespace {

// a * b + c
template <typename L>
L fused(const L& a, const L& b, const L& c) {
  return a.times_plus(b, c);
}

float real_at(Real type, const void* from, int64_t at) {
  if (type == Real::kFloat) return static_cast<const float*>(from)[at];
  const uint16_t bits = static_cast<const uint16_t*>(from)[at];
  return type == Real::kHalf ? real_of_half(bits) : real_of_bfloat(bits);
}

template <typename L>
L load_reals(Real type, const void* from, int64_t at) {
  if (type == Real::kFloat) return L::load(static_cast<const float*>(from) + at);
  const uint16_t* bits = static_cast<const uint16_t*>(from) + at;
  return type == Real::kHalf ? L::load_half(bits) : L::load_bfloat(bits);
}

}  // namespace
