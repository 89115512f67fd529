// SPDX-License-Identifier: Apache-2.0
// Interpolation on the CPU: which path a call takes. Threads own rows of what they write. Compiled once per instruction
// set.
//
//   forward path   calls               code
//   antialias      antialiased modes   antialias.h
//   linear         the linear mode     forward.h
//   cubic          the cubic mode      cubic.h
//   nearest        the others          forward.h
//
//   backward path  calls               code
//   zeros          without an output   here
//   antialias      antialiased modes   antialias.h
//   linear         the linear mode     backward.h
//   cubic          the cubic mode      cubic.h
//   nearest        the others          backward.h
#include "core/cpu_launch.h"
#include "core/cpu_zeros.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/interpolate/cpu/antialias.h"
#include "ops/interpolate/cpu/backward.h"
#include "ops/interpolate/cpu/cubic.h"
#include "ops/interpolate/cpu/forward.h"

namespace baracuda::interpolate {
namespace {

template <typename T>
using Forward = baracuda::Request<Problem, ForwardBuffers<T>>;
template <typename T>
using Backward = baracuda::Request<Problem, BackwardBuffers<T>>;

// The workspace: the calling thread's arrays.
template <class Arrays>
struct Scratch {
  WorkspaceLayout layout;
  TaskScratch<Arrays> arrays;
  explicit Scratch(void* workspace) : arrays(layout, workspace) {}
};

template <typename T>
struct AntialiasPath {
  static const char* name() { return "antialias"; }
  const Forward<T>& call;
  bool can() const { return call.p.is_antialiased(); }
  Status enqueue() const {
    const FilterScratch<T> scratch(call.p, call.workspace, false);
    filter_planes<T>(call.p, scratch, call.b.input, call.b.output);
    return Status::kOk;
  }
};

template <typename T>
struct LinearPath {
  static const char* name() { return "linear"; }
  const Forward<T>& call;
  bool can() const { return call.p.is_linear; }
  Status enqueue() const {
    const Scratch<ForwardArrays<T>> scratch(call.workspace);
    interpolate_linear(call.p, call.b, scratch.arrays);
    return Status::kOk;
  }
};

template <typename T>
struct CubicPath {
  static const char* name() { return "cubic"; }
  const Forward<T>& call;
  bool can() const { return call.p.is_cubic; }
  Status enqueue() const {
    const Scratch<CubicForwardArrays<T>> scratch(call.workspace);
    interpolate_cubic(call.p, call.b, scratch.arrays);
    return Status::kOk;
  }
};

template <typename T>
struct NearestPath {
  static const char* name() { return "nearest"; }
  const Forward<T>& call;
  Status enqueue() const {
    const Scratch<ForwardArrays<T>> scratch(call.workspace);
    interpolate_nearest(call.p, call.b, scratch.arrays);
    return Status::kOk;
  }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  return Paths<AntialiasPath<T>, LinearPath<T>, CubicPath<T>, NearestPath<T>>::enqueue(
      Forward<T>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  if (p.is_antialiased()) return FilterScratch<T>(p, nullptr, false).layout.bytes();
  if (p.is_cubic) return Scratch<CubicForwardArrays<T>>(nullptr).layout.bytes();
  return Scratch<ForwardArrays<T>>(nullptr).layout.bytes();
}

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Backward<T>& call;
  bool can() const { return call.p.output_numel == 0; }
  Status enqueue() const { return write_zeros(call.b.grad_input, call.p.input_numel); }
};

template <typename T>
struct AntialiasBackwardPath {
  static const char* name() { return "antialias"; }
  const Backward<T>& call;
  bool can() const { return call.p.is_antialiased(); }
  Status enqueue() const {
    const FilterScratch<T> scratch(call.p, call.workspace, true);
    filter_planes<T>(call.p, scratch, call.b.grad_output, call.b.grad_input);
    return Status::kOk;
  }
};

template <typename T>
struct LinearBackwardPath {
  static const char* name() { return "linear"; }
  const Backward<T>& call;
  bool can() const { return call.p.is_linear; }
  Status enqueue() const {
    const Scratch<BackwardArrays<T>> scratch(call.workspace);
    sum_all<T, true>(call.p, call.b, scratch.arrays);
    return Status::kOk;
  }
};

template <typename T>
struct CubicBackwardPath {
  static const char* name() { return "cubic"; }
  const Backward<T>& call;
  bool can() const { return call.p.is_cubic; }
  Status enqueue() const {
    const Scratch<CubicBackwardArrays<T>> scratch(call.workspace);
    sum_cubic(call.p, call.b, scratch.arrays);
    return Status::kOk;
  }
};

template <typename T>
struct NearestBackwardPath {
  static const char* name() { return "nearest"; }
  const Backward<T>& call;
  Status enqueue() const {
    const Scratch<BackwardArrays<T>> scratch(call.workspace);
    sum_all<T, false>(call.p, call.b, scratch.arrays);
    return Status::kOk;
  }
};

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  using BackwardPaths = Paths<ZerosPath<T>, AntialiasBackwardPath<T>, LinearBackwardPath<T>, CubicBackwardPath<T>,
                              NearestBackwardPath<T>>;
  return BackwardPaths::enqueue(Backward<T>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  if (p.is_antialiased()) return FilterScratch<T>(p, nullptr, true).layout.bytes();
  if (p.is_cubic) return Scratch<CubicBackwardArrays<T>>(nullptr).layout.bytes();
  return Scratch<BackwardArrays<T>>(nullptr).layout.bytes();
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::interpolate
