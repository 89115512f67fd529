// SPDX-License-Identifier: Apache-2.0
// The launches of bicubic samples, which are compiled beside the others.
#pragma once

#include <cstddef>

#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {

template <class Buffers>
Status launch_cubic(const RuledProblem& problem, const Buffers& buffers, void* workspace, Stream stream);

// Scratch of the backward for elements of so many bytes.
size_t cubic_bytes(const RuledProblem& problem, size_t compute_bytes);

}  // namespace baracuda::grid_sample
