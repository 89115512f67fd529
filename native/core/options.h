// SPDX-License-Identifier: Apache-2.0
// Reading a caller's struct of options, which may be older or newer than the library's. Host code only.
#pragma once

#include <cstddef>
#include <cstring>

#include "core/checked.h"

namespace baracuda {

// Status 2 for NULL, which is a host array that is missing.
inline Status check_options_pointer(const void* options) { return check_host_array("options", options); }

// Copies what the caller's struct holds; fields past its size stay 0. `Struct` begins with its size in bytes.
template <typename Struct>
Status read_options(const Struct* given, Struct* options) {
  size_t size = 0;
  memcpy(&size, given, sizeof size);
  if (size < sizeof size) {
    return fail(Status::kInvalidProblem, "options->size is %zu; wanted %zu", size, sizeof(Struct));
  }
  const char* const bytes = reinterpret_cast<const char*>(given);
  for (size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return fail(Status::kInvalidProblem, "options->size is %zu; wanted %zu, or zeros beyond", size, sizeof(Struct));
  }
  *options = Struct{};
  memcpy(options, given, size < sizeof(Struct) ? size : sizeof(Struct));
  return Status::kOk;
}

}  // namespace baracuda
