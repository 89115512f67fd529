// SPDX-License-Identifier: Apache-2.0
// The check of each thread, and when it is asked.
#include "core/cpu_interrupt.h"

#include <ctime>

#include "core/backend.h"
#include "core/float_environment.h"
#include "core/status.h"

namespace baracuda {
namespace {

// A check may have to wait for an interpreter's lock (5 ms in CPython), so it must stay rare; a person waits no longer.
constexpr int64_t kNanosecondsBetween = 100'000'000;

struct Check {
  InterruptCheck* function;
  void* context;
  int64_t next;  // when the present call may ask; 0 before it has looked at the clock
  bool is_inside;
};
thread_local Check check{nullptr, nullptr, 0, false};

// Ticks of a few milliseconds, which are enough here: the exact clock takes several times as long to read.
int64_t coarse_nanoseconds() {
#if defined(CLOCK_MONOTONIC_COARSE)
  constexpr clockid_t kClock = CLOCK_MONOTONIC_COARSE;
#else
  constexpr clockid_t kClock = CLOCK_MONOTONIC;
#endif
  timespec now{};
  clock_gettime(kClock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

void set_interrupt_check(InterruptCheck* function, void* context) {
  check.function = function;
  check.context = context;
}

void begin_interruptible_call() {
  if (!check.is_inside) check.next = 0;
}

bool has_interrupt_check() { return check.function != nullptr && !check.is_inside; }

bool is_interrupted() {
  Check& mine = check;
  const int64_t now = coarse_nanoseconds();
  if (mine.next == 0) mine.next = now + kNanosecondsBetween;
  if (now < mine.next) return false;
  // The check may call the library itself, which must leave this call's name, empty text and float environment.
  const char* const symbol = current_symbol();
  mine.is_inside = true;
  const bool ends = mine.function(mine.context) != 0;
  mine.is_inside = false;
  begin_call(symbol);
  write_float_environment(kDefaultMxcsr);
  mine.next = coarse_nanoseconds() + kNanosecondsBetween;
  return ends;
}

}  // namespace baracuda
