// SPDX-License-Identifier: Apache-2.0
// Threads for CPU kernels: a range of independent tasks split over a small pool. Each task owns what it writes, so the
// split never shows in the result.
#pragma once

#include <cstdint>

namespace baracuda {

// Runs body(context, begin, end) over [0, count) in parts of at least `grain` tasks and returns when all are done.
// Serial when one part suffices, in a call from inside a body, or while another thread has the pool. Throws
// Interrupted, with some tasks undone, if the calling thread's check ends the call: a caller holds nothing that needs a
// return.
void parallel_ranges(int64_t count, int64_t grain, void (*body)(void* context, int64_t begin, int64_t end),
                     void* context);

namespace {

template <typename Body>
void parallel_for(int64_t count, int64_t grain, Body body) {
  parallel_ranges(
      count, grain,
      [](void* context, int64_t begin, int64_t end) {
        Body& each = *static_cast<Body*>(context);
        for (int64_t i = begin; i < end; ++i) each(i);
      },
      &body);
}

// Tasks per part so that a part touches about kPartElements: with fewer, waking a thread costs more than it saves
// (about 2 us against 10 GB/s).
constexpr int64_t kPartElements = 32768;
inline __attribute__((always_inline)) int64_t grain_for(int64_t elements_per_task) {
  const int64_t per_task = elements_per_task > 0 ? elements_per_task : 1;
  return per_task >= kPartElements ? 1 : kPartElements / per_task;
}

}  // namespace
}  // namespace baracuda
