// SPDX-License-Identifier: Apache-2.0
// Status codes and the thread's error text; no backend and no operator is known here.
#pragma once

#include <cstdint>

namespace baracuda {

enum class Status : int32_t {
  kOk = 0,
  kMisalignedOperand = 1,
  kInvalidProblem = 2,
  kUnsupported = 3,
  kWorkspaceTooSmall = 4,
  kInternal = 5,
};

// Starts a call: clears this thread's error text and remembers the symbol (static storage) that later texts name.
void begin_call(const char* symbol);

// The symbol of this thread's latest call.
const char* current_symbol();

// Records why the current call fails (printf style) and returns `status`, so that a check reads `return fail(...)`.
[[gnu::format(printf, 2, 3)]] Status fail(Status status, const char* format, ...);

// The text of this thread's latest failure, empty after a success.
const char* last_error();

}  // namespace baracuda
