// SPDX-License-Identifier: Apache-2.0
// What CUDA kernels of all families say of a warp.
#pragma once

namespace baracuda {
namespace {

// All lanes, where an instruction asks which ones take part.
constexpr unsigned kFullWarp = 0xffffffffu;

}  // namespace
}  // namespace baracuda
