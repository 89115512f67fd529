// SPDX-License-Identifier: Apache-2.0
// Which path the calling thread's latest call took. How one is chosen stands in paths.h.
#include "core/paths.h"

namespace baracuda {
namespace {

thread_local const char* path_of_call = "";

}  // namespace

void record_path(const char* name) { path_of_call = name; }

const char* last_path() { return path_of_call; }

}  // namespace baracuda
