// SPDX-License-Identifier: Apache-2.0
// Zeros in device memory, for counters before they count and for results that nothing adds to.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/status.h"

namespace baracuda {

// Any memory, by the driver. No kernel may be launched early behind it.
Status enqueue_zeros(void* memory, size_t bytes, Stream stream);

// An array of the workspace, up to the end of its last 16 bytes, by a kernel: the next kernel may be launched early and
// do what needs no zeros beside it. For the first launch of a call, which must not overlap what the caller enqueued.
Status enqueue_zeros_early(void* array, size_t bytes, Stream stream);

}  // namespace baracuda
