// SPDX-License-Identifier: Apache-2.0
// Which instruction set the CPU kernels use. The one place that chooses; nothing else asks the processor.
#pragma once

namespace baracuda {

enum class CpuIsa { kPortable, kAvx2, kAvx512 };

// The best set that the processor has and the environment's BARACUDA_CPU_ISA (portable, avx2 or avx512: an upper bound)
// allows; read once.
CpuIsa cpu_isa();

}  // namespace baracuda
