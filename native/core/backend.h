// SPDX-License-Identifier: Apache-2.0
// What a backend must provide to the shared sources: a launch scope, scratch memory, what the library-wide functions
// answer. No CUDA type here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace baracuda {

// A CUstream or cudaStream_t; NULL is the legacy default stream. The CPU backend knows NULL alone.
using Stream = void*;

// Everything that a backend needs while an operator launches, undone on leaving: on CUDA the stream's device is
// current, on the CPU the stream is NULL.
class LaunchScope {
 public:
  LaunchScope() = default;
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;
  ~LaunchScope();
  Status enter(Stream stream);

 private:
  bool entered_ = false;
};

// Scratch for callers that pass no workspace: the library's stream-ordered pool on CUDA, the heap on the CPU.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();
  Status acquire(size_t bytes, Stream stream);
  Status release();
  void* pointer() const { return pointer_; }

 private:
  void* pointer_ = nullptr;
  Stream stream_ = nullptr;
};

const char* backend_name();

// How many threads a call may use, its caller's own included.
int32_t cpu_threads();

// The instruction set of the library's own code on the CPU: "avx512", "avx2" or "portable".
const char* cpu_isa_name();

// Sets what the calling thread's long calls ask whether they are to end early; NULL for nothing.
using InterruptCheck = int32_t(void* context);
void set_interrupt_check(InterruptCheck* function, void* context);

}  // namespace baracuda
