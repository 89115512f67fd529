// SPDX-License-Identifier: Apache-2.0
// What generated argument blocks say of a tensor: whether the operator has it, and what for.
#pragma once

namespace baracuda {

enum class Role { kNone, kInput, kOutput };

}  // namespace baracuda
