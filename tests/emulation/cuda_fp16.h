// SPDX-License-Identifier: Apache-2.0
// Stands in for CUDA's header of the same name: away from CUDA's compiler 16-bit numbers are converted by their bits.
#pragma once
