// SPDX-License-Identifier: Apache-2.0
// grid_sample on CUDA: which path a call takes; the paths themselves stand in paths.cuh. The words of this family stand
// in native/ops/grid_sample/README.md.
//
//   forward path    calls                                               code
//   planes          small images, enough channels, 32 bits or fewer     forward/planes.cuh
//   samples         all                                                 forward/samples.cuh, packets.cuh
//
//   backward path   calls                                               code
//   zeros           no pixels or no samples                             memsets
//   narrow tiles    at most four channels                               backward/narrow.cuh
//   sparse tiles    few samples a tile                                  backward/sparse.cuh
//   tiles           all whose samples and blocks 32 bits can count      backward/tiles.cuh
//   crowded tiles   all                                                 backward/lists.cuh, crowded.cuh
//
// Samples that follow another rule, or are all of one image, take the same paths, with the gradient to the grid alone
// before the tiles ("slopes", backward/slopes.cuh). Their kernels are compiled in ruled.cu. Bicubic samples have paths
// of their own: cubic.cu.
//
// The backward by tiles begins with backward/bins.cuh, which lists each tile's samples and, for "tiles", lays gradients
// of scattered ones side by side, and ends as crowded tiles does, for the tiles that turn out to be crowded.
#include "ops/grid_sample/cuda/cubic.h"
#include "ops/grid_sample/cuda/paths.cuh"
#include "ops/grid_sample/cuda/ruled.h"

namespace baracuda::grid_sample {
namespace {

template <class Buffers>
Status run(const RuledProblem& p, const Buffers& b, void* workspace, Stream stream) {
  if (p.is_cubic()) return launch_cubic(p, b, workspace, stream);
  return p.is_plain() ? run_paths(static_cast<const Problem&>(p), b, workspace, stream)
                      : launch_ruled(p, b, workspace, stream);
}

template <typename T>
size_t bytes_of(const RuledProblem&, const ForwardBuffers<T>*) {
  return 0;
}

template <typename T>
size_t bytes_of(const RuledProblem& p, const BackwardBuffers<T>*) {
  if (p.is_cubic()) return cubic_bytes(p, sizeof(Compute<T>));
  if (!p.has_grad_input()) return 0;
  const BackwardBuffers<T> none{};
  const Request<Problem, BackwardBuffers<T>> request{p, none, nullptr};
  const DeviceTraits any{};  // the size is the same on every device
  return decltype(backward_paths<T, Problem>())::choose(BackwardRequest<T, Problem>{request, any},
                                                       [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_GRID_SAMPLE)

}  // namespace baracuda::grid_sample
