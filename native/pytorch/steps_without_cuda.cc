// SPDX-License-Identifier: Apache-2.0
// The steps on a GPU in a build without CUDA: never.
#include "pytorch/steps.h"

namespace baracuda::pytorch::cuda {

bool is_ready(int32_t, void*) { return false; }
bool screen(const Index&, void*) { return false; }
bool place(const ElementIndex&, int32_t*, void*) { return false; }
bool put_last(const ElementIndex&, int32_t, const void*, void*, unsigned long long*, void*) { return false; }
bool put_in_lines(const LineIndex&, int32_t, const void*, void*, void*) { return false; }
bool widen(int32_t, const void*, float*, int64_t, void*) { return false; }
bool count(const Index&, int32_t*, void*) { return false; }
bool finish(int32_t, const Finish&, void*) { return false; }
bool has_counted(int32_t) { return false; }
int64_t take_dropped(int32_t) { return -1; }

}  // namespace baracuda::pytorch::cuda
