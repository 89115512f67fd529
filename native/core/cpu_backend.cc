// SPDX-License-Identifier: Apache-2.0
// The CPU's side of core/backend.h.
#include <cstdlib>

#include "core/backend.h"
#include "core/entry.h"
#include "core/integer_math.h"

namespace baracuda {

Status LaunchScope::enter(Stream stream) {
  if (stream != nullptr) {
    return fail(Status::kUnsupported, "stream is %p; the CPU backend takes NULL alone", stream);
  }
  return Status::kOk;
}

LaunchScope::~LaunchScope() = default;

Status Scratch::acquire(size_t bytes, Stream stream) {
  stream_ = stream;
  const size_t rounded = groups_of(bytes, kWorkspaceAlignment) * kWorkspaceAlignment;
  pointer_ = rounded < bytes ? nullptr : std::aligned_alloc(kWorkspaceAlignment, rounded);
  if (pointer_ != nullptr) return Status::kOk;
  return fail(Status::kInternal, "no memory for %zu bytes of scratch", bytes);
}

Status Scratch::release() {
  std::free(pointer_);
  pointer_ = nullptr;
  return Status::kOk;
}

Scratch::~Scratch() { std::free(pointer_); }

const char* backend_name() { return "cpu"; }

}  // namespace baracuda
