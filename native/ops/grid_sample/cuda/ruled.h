// SPDX-License-Identifier: Apache-2.0
// The launches of samples that follow a rule, which are compiled beside those that do not.
#pragma once

#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {

template <class Buffers>
Status launch_ruled(const RuledProblem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::grid_sample
