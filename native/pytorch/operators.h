// SPDX-License-Identifier: Apache-2.0
// PyTorch's operators that have a kernel here: what each is called, what its arguments are, and how a call is tried.
#pragma once

#include <cstdint>

#include "pytorch/tensor.h"

namespace baracuda::pytorch {

// One of an operator's C functions for one device and dtype.
struct Functions {
  void* run = nullptr;
  void* workspace_size = nullptr;
};
constexpr int32_t kMostSymbols = 4;
using FunctionTable = Functions[kMostSymbols][kDevices][kDtypes];

struct Operator {
  const char* name;
  const char* symbols[kMostSymbols];
  // A letter for each argument: T tensor, L list of numbers, S string, n number or truth value. No list of tensors: on
  // its way here PyTorch empties it, though its caller goes on to use it.
  const char* arguments;
  int32_t results;
  // Answers true with the results in `results`, or false, having changed nothing.
  bool (*attempt)(const FunctionTable& functions, const Argument* arguments, Argument* results);
};

constexpr int32_t kMostResults = 2;
extern const Operator kOperators[];
extern const int32_t kOperatorCount;

}  // namespace baracuda::pytorch
