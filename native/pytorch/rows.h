// SPDX-License-Identifier: Apache-2.0
// The kernels of operators that add whole rows by an index; native/pytorch/operators.cc enters them in its table.
#pragma once

#include "pytorch/operators.h"

namespace baracuda::pytorch {

bool embedding_dense_backward(const FunctionTable& functions, const Argument* arguments, Argument* results);
bool scatter_add(const FunctionTable& functions, const Argument* arguments, Argument* results);
bool scatter_add_in_place(const FunctionTable& functions, const Argument* arguments, Argument* results);
bool scatter_reduce(const FunctionTable& functions, const Argument* arguments, Argument* results);
bool scatter_reduce_in_place(const FunctionTable& functions, const Argument* arguments, Argument* results);

}  // namespace baracuda::pytorch
