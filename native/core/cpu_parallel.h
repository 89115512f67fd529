// SPDX-License-Identifier: Apache-2.0
// Threads for CPU kernels: a range of independent tasks split over a small pool. Each task owns what it writes, so the
// split never shows in the result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/workspace.h"

namespace baracuda {

// Runs body(context, begin, end) over [0, count) in parts of at least `grain` tasks and returns when all are done.
// Serial when one part suffices, in a call from inside a body, or while another thread has the pool. Throws
// Interrupted, with some tasks undone, if the calling thread's check ends the call: a caller holds nothing that needs a
// return.
void parallel_ranges(int64_t count, int64_t grain, void (*body)(void* context, int64_t begin, int64_t end),
                     void* context);

// Room for a task's arrays on the pool's threads, whose stacks are ours.
constexpr size_t kWorkerScratch = 160 * 1024;

// That room on a pool's thread, aligned to kScratchAlignment; NULL on every other thread.
void* worker_scratch();
constexpr size_t kScratchAlignment = 64;

namespace {

// A task's arrays that are too large for a caller's stack. The pool's threads have room of their own; the calling
// thread's stand in the call's workspace, which is therefore the same for any number of threads. A body that holds them
// runs no other body that does.
template <typename Arrays>
class TaskScratch {
  static_assert(sizeof(Arrays) <= kWorkerScratch && alignof(Arrays) <= kScratchAlignment);

 public:
  TaskScratch(WorkspaceLayout& layout, void* workspace)
      : callers_(workspace_array<char>(workspace, layout.reserve<char>(sizeof(Arrays) + kScratchAlignment - 16))) {}

  // Arrays of the running thread, which hold anything.
  Arrays& mine() const {
    if (void* const workers = worker_scratch()) return *static_cast<Arrays*>(workers);
    const uintptr_t end = reinterpret_cast<uintptr_t>(callers_) + kScratchAlignment - 1;
    return *reinterpret_cast<Arrays*>(end - end % kScratchAlignment);
  }

 private:
  char* callers_;
};

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
