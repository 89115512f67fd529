// SPDX-License-Identifier: Apache-2.0
// grid_sample on the CPU: which path a call takes. Compiled once per instruction set. The words of this family stand in
// native/ops/grid_sample/README.md.
//
//   forward path        calls                                                  code
//   cubic samples       mode bicubic                                           cubic.h
//   nearest samples     mode nearest; 31 bits count an image's pixels, one or     nearest.h
//                       more
//   samples             all                                                    samples.h
//
//   backward path       calls                                                  code
//   zeros               no pixels or no samples, or slopes that are all 0      here
//   cubic slopes        mode bicubic, the gradient to the grid alone           cubic.h
//   cubic lists         mode bicubic; 32 bits count an image's taps            cubic.h
//   long cubic lists    mode bicubic                                           cubic.h
//   slopes              the gradient to the grid alone                         slopes.h
//   planes              mode nearest, 32-bit or 64-bit elements, planes        nearest.h
//                       that a cache holds and enough of them
//   narrow tiles        at most four channels; 32 bits count an image's taps   gradients.h, tiles.h
//   tiles               32 bits count an image's taps                          gradients.h, tiles.h
//   long narrow tiles   at most four channels                                  gradients.h, tiles.h
//   long tiles          all                                                    gradients.h, tiles.h
#include <type_traits>

#include "core/checked.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/paths.h"
#include "ops/grid_sample/cpu/cubic.h"
#include "ops/grid_sample/cpu/gradients.h"
#include "ops/grid_sample/cpu/nearest.h"
#include "ops/grid_sample/cpu/samples.h"
#include "ops/grid_sample/cpu/slopes.h"
#include "ops/grid_sample/cpu/tiles.h"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

template <typename T>
struct CubicSamplesPath {
  static const char* name() { return "cubic samples"; }
  const Request<RuledProblem, ForwardBuffers<T>>& call;
  bool can() const { return call.p.is_cubic(); }
  Status enqueue() const { return sample_cubic(call.p, call.b); }
};

template <typename T>
struct NearestSamplesPath {
  static const char* name() { return "nearest samples"; }
  const Request<RuledProblem, ForwardBuffers<T>>& call;
  bool can() const { return call.p.rule.mode == Mode::kNearest && fits_gather(call.p.pixels); }
  Status enqueue() const { return sample_nearest(call.p, call.b); }
};

template <typename T>
struct SamplesPath {
  static const char* name() { return "samples"; }
  const Request<RuledProblem, ForwardBuffers<T>>& call;
  Status enqueue() const { return sample_all(call.p, call.b); }
};

template <typename T>
Status run(const RuledProblem& p, const ForwardBuffers<T>& b, void*) {
  return Paths<CubicSamplesPath<T>, NearestSamplesPath<T>, SamplesPath<T>>::enqueue(
      Request<RuledProblem, ForwardBuffers<T>>{p, b, nullptr});
}

template <typename T>
size_t bytes_of(const RuledProblem&, const ForwardBuffers<T>*) {
  return 0;
}

// A pixel's or sample's channels that lie side by side in scratch: one cache line, or 4 for an image of few channels.
template <typename C>
constexpr int kWideLanes = 64 / static_cast<int>(sizeof(C));
constexpr int kFewLanes = 4;

// The backward's workspace: what a group of images shares, then the calling thread's arrays.
template <typename C, typename Index, int kLanes>
struct BackwardScratch {
  Partition cut;
  Storage<C, Index> storage;
  TaskScratch<TileArrays<C, kLanes>> arrays;

  BackwardScratch(const Problem& p, void* workspace)
      : cut(p, kLanes), storage(p, cut, kLanes, workspace), arrays(storage.layout, workspace) {}
  size_t bytes() const { return storage.layout.bytes(); }
};

// The backward: groups of images that share the scratch, and in each group rounds of channels.
template <typename T, typename Index, int kLanes>
Status sum_all(const RuledProblem& p, const BackwardBuffers<T>& b, void* workspace) {
  using C = Compute<T>;
  const BackwardScratch<C, Index, kLanes> scratch(p, workspace);
  const Partition& cut = scratch.cut;
  const Storage<C, Index>& storage = scratch.storage;
  for (int64_t first = 0; first < p.n; first += cut.images) {
    const int64_t images = at_most(p.n - first, cut.images);
    deal_samples<C, Index>(p, cut, b.grid + first * p.samples * 2, images, storage.tiles,
                           b.grad_grid == nullptr ? nullptr : b.grad_grid + first * p.samples * 2);
    for (int64_t channel = 0; channel < p.c; channel += cut.channel_blocks * kLanes) {
      const Channels<kLanes> channels{channel, at_most(p.c - channel, cut.channel_blocks * kLanes)};
      interleave_gradients<T, kLanes>(p, b.grad_output + (first * p.c + channel) * p.samples, images, channels,
                                      storage.gradients);
      sum_tiles<T, Index, kLanes>(p, b, cut, storage, first, images, channels, scratch.arrays);
    }
  }
  return Status::kOk;
}

template <typename T>
using BackwardRequest = Request<RuledProblem, BackwardBuffers<T>>;

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const BackwardRequest<T>& call;
  bool can() const {
    const RuledProblem& p = call.p;
    return p.input_numel == 0 || p.samples == 0 || (!p.has_slopes() && !p.has_grad_input());
  }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const RuledProblem& p = call.p;
    BARACUDA_RETURN_IF_FAILED(write_zeros(call.b.grad_input, p.has_grad_input() ? p.input_numel : 0));
    return write_zeros(call.b.grad_grid, p.has_grad_grid() ? p.grid_numel : 0);
  }
};

template <typename T>
struct CubicSlopesPath {
  static const char* name() { return "cubic slopes"; }
  const BackwardRequest<T>& call;
  bool can() const { return call.p.is_cubic() && !call.p.has_grad_input(); }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    sum_cubic_slopes(call.p, call.b);
    return Status::kOk;
  }
};

template <typename T, typename Index>
struct AnyCubicPath {
  const BackwardRequest<T>& call;
  size_t bytes() const { return CubicLists<Compute<T>, Index>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const { return sum_cubic<T, Index>(call.p, call.b, call.workspace); }
};

template <typename T>
struct CubicListsPath : AnyCubicPath<T, uint32_t> {
  static const char* name() { return "cubic lists"; }
  bool can() const { return this->call.p.is_cubic() && fits_narrow_taps(this->call.p); }
};

template <typename T>
struct LongCubicListsPath : AnyCubicPath<T, int64_t> {
  static const char* name() { return "long cubic lists"; }
  bool can() const { return this->call.p.is_cubic(); }
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
    return std::is_same_v<T, Compute<T>> && call.p.rule.mode == Mode::kNearest && fits_scatter(call.p, sizeof(T));
  }
  size_t bytes() const { return ScatterLists(call.p, sizeof(T), nullptr).layout.bytes(); }
  Status enqueue() const {
    if constexpr (std::is_same_v<T, Compute<T>>) scatter_nearest(call.p, call.b, call.workspace);
    return write_zeros(call.b.grad_grid, call.p.has_grad_grid() ? call.p.grid_numel : 0);
  }
};

// Tiles of so many lanes, whose samples an Index counts.
template <typename T, typename Index, int kLanes>
struct LanesPath {
  const BackwardRequest<T>& call;
  size_t bytes() const { return BackwardScratch<Compute<T>, Index, kLanes>(call.p, nullptr).bytes(); }
  Status enqueue() const {
    BackwardBuffers<T> b = call.b;
    if (!call.p.has_slopes() && b.grad_grid != nullptr) {
      BARACUDA_RETURN_IF_FAILED(write_zeros(b.grad_grid, call.p.grid_numel));
      b.grad_grid = nullptr;
    }
    return sum_all<T, Index, kLanes>(call.p, b, call.workspace);
  }
};

template <typename T>
struct NarrowPath : LanesPath<T, uint32_t, kFewLanes> {
  static const char* name() { return "narrow tiles"; }
  bool can() const { return this->call.p.c <= kFewLanes && fits_narrow_index(this->call.p); }
};

template <typename T>
struct TilesPath : LanesPath<T, uint32_t, kWideLanes<Compute<T>>> {
  static const char* name() { return "tiles"; }
  bool can() const { return fits_narrow_index(this->call.p); }
};

template <typename T>
struct LongNarrowPath : LanesPath<T, int64_t, kFewLanes> {
  static const char* name() { return "long narrow tiles"; }
  bool can() const { return this->call.p.c <= kFewLanes; }
};

template <typename T>
struct LongPath : LanesPath<T, int64_t, kWideLanes<Compute<T>>> {
  static const char* name() { return "long tiles"; }
};

template <typename T>
using BackwardPaths = Paths<ZerosPath<T>, CubicSlopesPath<T>, CubicListsPath<T>, LongCubicListsPath<T>, SlopesPath<T>,
                            PlanesPath<T>, NarrowPath<T>, TilesPath<T>, LongNarrowPath<T>, LongPath<T>>;

template <typename T>
Status run(const RuledProblem& p, const BackwardBuffers<T>& b, void* workspace) {
  return BackwardPaths<T>::enqueue(BackwardRequest<T>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const RuledProblem& p, const BackwardBuffers<T>*) {
  const BackwardBuffers<T> none{};
  return BackwardPaths<T>::choose(BackwardRequest<T>{p, none, nullptr}, [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_GRID_SAMPLE)

}  // namespace baracuda::grid_sample
