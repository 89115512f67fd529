// SPDX-License-Identifier: Apache-2.0
// The thread-local error text.
#include "core/status.h"

#include <cstdarg>
#include <cstdio>

namespace baracuda {
namespace {

// Longest texts (a CUDA message with both library versions) stay below 400 characters; longer ones are cut.
constexpr int kTextBytes = 768;

thread_local char text[kTextBytes];
thread_local const char* symbol_of_call = "";

}  // namespace

void begin_call(const char* symbol) {
  symbol_of_call = symbol;
  text[0] = '\0';
}

const char* current_symbol() { return symbol_of_call; }

Status fail(Status status, const char* format, ...) {
  int used = std::snprintf(text, kTextBytes, "%s: ", symbol_of_call);
  if (used < 0 || used >= kTextBytes) used = 0;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + used, static_cast<size_t>(kTextBytes - used), format, arguments);
  va_end(arguments);
  return status;
}

const char* last_error() { return text; }

}  // namespace baracuda
