// SPDX-License-Identifier: Apache-2.0
// Stands in for the header of the same name in native/.
#pragma once

#include <cstdint>
#include <cstring>

namespace baracuda {
namespace {

inline uint4 begin_load(const uint4* from) { return *from; }
inline uint4 begin_load_if(const uint4* from, bool reads) { return reads ? *from : uint4{}; }
template <typename T>
inline void begin_word_if(T* word, const char* from, bool reads) {
  if (reads) memcpy(word, from, sizeof *word);
}
inline uint32_t lanes_with_equal_bit(uint32_t digit, uint32_t bit) {
  const uint32_t lanes = __ballot_sync(0xffffffffu, (digit & bit) != 0);
  return (digit & bit) != 0 ? lanes : ~lanes;
}
inline uint32_t and_of_three(uint32_t a, uint32_t b, uint32_t c) { return a & b & c; }
template <int kThreads>
inline void meet_from_anywhere() {
  __syncthreads();
}
// An estimate, as a GPU's is: not the nearest number.
inline float inverse_estimate(float x) { return std::nextafter(1.0f / x, 0.0f); }

}  // namespace
}  // namespace baracuda
