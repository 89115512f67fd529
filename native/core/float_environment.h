// SPDX-License-Identifier: Apache-2.0
// The float environment of all that the library computes on the host, kernels and scalars alike: round to nearest,
// subnormals kept, no traps.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace baracuda {
namespace {

#if defined(__x86_64__)
// All exceptions masked, round to nearest, flush-to-zero and denormals-are-zero off.
constexpr uint32_t kDefaultMxcsr = 0x1f80;

inline uint32_t read_float_environment() { return _mm_getcsr(); }
inline void write_float_environment(uint32_t mode) { _mm_setcsr(mode); }
#else
constexpr uint32_t kDefaultMxcsr = 0;

inline uint32_t read_float_environment() { return 0; }
inline void write_float_environment(uint32_t) {}
#endif

// Sets the environment for a scope and restores the caller's: a framework's flush-to-zero mode leaks into its threads'
// calls otherwise.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment() : saved_(read_float_environment()) { write_float_environment(kDefaultMxcsr); }
  ~ScopedFloatEnvironment() { write_float_environment(saved_); }
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace
}  // namespace baracuda
