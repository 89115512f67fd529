// SPDX-License-Identifier: Apache-2.0
// grid_sample_3d on the CPU: which path a call takes. Compiled once per instruction set.
//
//   forward path      calls                                                code
//   nearest samples   mode nearest; 31 bits count a volume's voxels, one   nearest.h
//                     or more
//   samples           all                                                  samples.h
//
//   backward path     calls                                                code
//   zeros             no voxels or no samples, or slopes that are all 0    here
//   slopes            the gradient to the grid alone                       slopes.h
//   planes            mode nearest, 32-bit or 64-bit elements, planes      nearest.h
//                     that a cache holds and enough of them
//   lists             32 bits count a volume's taps                        lists.h, slopes.h
//   long lists        all                                                  lists.h, slopes.h
#include <type_traits>

#include "core/checked.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/paths.h"
#include "ops/grid_sample_3d/cpu/lists.h"
#include "ops/grid_sample_3d/cpu/nearest.h"
#include "ops/grid_sample_3d/cpu/samples.h"
#include "ops/grid_sample_3d/cpu/slopes.h"
#include "ops/grid_sample_3d/launch.h"

namespace baracuda::grid_sample_3d {
namespace {

template <typename T>
struct NearestSamplesPath {
  static const char* name() { return "nearest samples"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const { return call.p.rule.mode == Mode::kNearest && grid_sample::fits_gather(call.p.voxels); }
  Status enqueue() const { return grid_sample::sample_nearest(call.p, call.b); }
};

template <typename T>
struct SamplesPath {
  static const char* name() { return "samples"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const { return sample_all(call.p, call.b); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void*) {
  return Paths<NearestSamplesPath<T>, SamplesPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, nullptr});
}

template <typename T>
size_t bytes_of(const Problem&, const ForwardBuffers<T>*) {
  return 0;
}

template <typename T>
using BackwardRequest = Request<Problem, BackwardBuffers<T>>;

// Of the two gradients those that are asked for.
template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const BackwardRequest<T>& call;
  bool can() const {
    const Problem& p = call.p;
    return p.input_numel == 0 || p.samples == 0 || (!p.has_slopes() && !p.has_grad_input());
  }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const Problem& p = call.p;
    BARACUDA_RETURN_IF_FAILED(write_zeros(call.b.grad_input, p.has_grad_input() ? p.input_numel : 0));
    return write_zeros(call.b.grad_grid, p.has_grad_grid() ? p.grid_numel : 0);
  }
};

template <typename T>
struct SlopesPath {
  static const char* name() { return "slopes"; }
  const BackwardRequest<T>& call;
  bool can() const { return !call.p.has_grad_input(); }
  size_t bytes() const { return 0; }
  Status enqueue() const { return sum_slopes(call.p, call.b); }
};

template <typename T>
struct PlanesPath {
  static const char* name() { return "planes"; }
  const BackwardRequest<T>& call;
  bool can() const {
    return std::is_same_v<T, Compute<T>> && call.p.rule.mode == Mode::kNearest &&
           grid_sample::fits_scatter(call.p, sizeof(T));
  }
  size_t bytes() const { return grid_sample::ScatterLists(call.p, sizeof(T), nullptr).layout.bytes(); }
  Status enqueue() const {
    if constexpr (std::is_same_v<T, Compute<T>>) grid_sample::scatter_nearest(call.p, call.b, call.workspace);
    return write_zeros(call.b.grad_grid, call.p.has_grad_grid() ? call.p.grid_numel : 0);
  }
};

template <typename T, typename Index>
struct AnyListsPath {
  const BackwardRequest<T>& call;
  size_t bytes() const { return Lists<Compute<T>, Index>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const {
    const Problem& p = call.p;
    const BackwardBuffers<T>& b = call.b;
    if (p.has_grad_grid() && p.has_slopes()) BARACUDA_RETURN_IF_FAILED(sum_slopes(p, b));
    if (p.has_grad_grid() && !p.has_slopes()) BARACUDA_RETURN_IF_FAILED(write_zeros(b.grad_grid, p.grid_numel));
    return sum_all_lists<T, Index>(p, b, call.workspace);
  }
};

template <typename T>
struct ListsPath : AnyListsPath<T, uint32_t> {
  static const char* name() { return "lists"; }
  bool can() const { return fits_narrow_index(this->call.p); }
};

template <typename T>
struct LongListsPath : AnyListsPath<T, int64_t> {
  static const char* name() { return "long lists"; }
};

template <typename T>
using BackwardPaths = Paths<ZerosPath<T>, SlopesPath<T>, PlanesPath<T>, ListsPath<T>, LongListsPath<T>>;

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  return BackwardPaths<T>::enqueue(BackwardRequest<T>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  const BackwardBuffers<T> none{};
  return BackwardPaths<T>::choose(BackwardRequest<T>{p, none, nullptr}, [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::grid_sample_3d
