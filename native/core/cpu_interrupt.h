// SPDX-License-Identifier: Apache-2.0
// Ending a long call early: the check that a thread has set is asked between parts of the calls that it makes. Only
// cpu_parallel.cc asks, and only cpu_launch.h catches.
#pragma once

namespace baracuda {

// Thrown by parallel_ranges on the calling thread, so that nothing reads what was never computed.
struct Interrupted {};

// A new call of this thread: its time begins with the first question.
void begin_interruptible_call();

// Whether this thread has set a check, and is not inside it.
bool has_interrupt_check();

// Asks the check if the call has run long enough since it was asked last: whether the call is to end.
bool is_interrupted();

}  // namespace baracuda
