// SPDX-License-Identifier: Apache-2.0
// Maximum unpooling on the CPU. Threads own what they write. Compiled once per instruction set.
//
//   direction   path       what a task is
//   forward     planes     a plane of output, into which its elements go in their order, so that the last stays
//   backward    elements   some elements of grad_input, each of which reads its place
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "ops/max_unpool/launch.h"

namespace baracuda::max_unpool {
namespace {

template <typename T>
Status put_planes(const Problem& p, const ForwardBuffers<T>& b) {
  parallel_for(p.planes, grain_for(p.plane_places + 4 * p.plane_inputs), [&](int64_t plane) {
    T* const output = b.output + plane * p.plane_places;
    const T* const input = b.input + plane * p.plane_inputs;
    const int64_t* const indices = b.indices + plane * p.plane_inputs;
    for (int64_t place = 0; place < p.plane_places; ++place) output[place] = T{};
    for (int64_t i = 0; i < p.plane_inputs; ++i) {
      const int64_t place = indices[i];
      if (place >= 0 && place < p.plane_places) output[place] = input[i];
    }
  });
  return Status::kOk;
}

template <typename T>
Status take_elements(const Problem& p, const BackwardBuffers<T>& b) {
  const int64_t tasks = ceil_div(p.input_numel, kPartElements);
  parallel_for(tasks, 1, [&](int64_t task) {
    const int64_t end = at_most((task + 1) * kPartElements, p.input_numel);
    int64_t i = task * kPartElements, plane = i / p.plane_inputs;
    while (i < end) {
      const T* const gradient = b.grad_output + plane * p.plane_places;
      for (const int64_t last = at_most((plane + 1) * p.plane_inputs, end); i < last; ++i) {
        const int64_t place = b.indices[i];
        b.grad_input[i] = place >= 0 && place < p.plane_places ? gradient[place] : T{};
      }
      ++plane;
    }
  });
  return Status::kOk;
}

template <typename T>
struct PlanesPath {
  static const char* name() { return "planes"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const { return put_planes(call.p, call.b); }
};

template <typename T>
struct ElementsPath {
  static const char* name() { return "elements"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  Status enqueue() const { return take_elements(call.p, call.b); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  return Paths<PlanesPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, workspace});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  return Paths<ElementsPath<T>>::enqueue(Request<Problem, BackwardBuffers<T>>{p, b, workspace});
}

template <class Buffers>
size_t bytes_of(const Problem&, const Buffers*) {
  return 0;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::max_unpool
