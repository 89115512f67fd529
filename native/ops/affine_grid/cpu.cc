// SPDX-License-Identifier: Apache-2.0
// affine_grid on the CPU. Compiled once per instruction set.
//
//   forward path    calls   a task is
//   rows            all     a row of the grid
//
//   backward path   calls   a task is
//   chunks          all     a chunk of samples, then an element of theta
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/paths.h"
#include "ops/affine_grid/launch.h"
#include "ops/affine_grid/math.h"

namespace baracuda::affine_grid {
namespace {

// The base coordinates of a row of one map's grid, but for x.
template <int kAxes, typename T>
void set_row(const Problem& p, int64_t row, T* base) {
  base[1] = base_coordinate<T>(row % p.output_h, p.output_h, p.aligns_corners);
  if constexpr (kAxes == 3) base[2] = base_coordinate<T>(row / p.output_h, p.output_d, p.aligns_corners);
}

template <typename T, int kAxes>
Status write_rows(const Problem& p, const ForwardBuffers<T, kAxes>& b) {
  const int64_t rows = static_cast<int64_t>(p.output_d) * p.output_h;
  // A division takes the time of some eight simple elements.
  parallel_for(p.n * rows, grain_for(8 * static_cast<int64_t>(p.output_w)), [&](int64_t task) {
    const T* theta = b.theta + task / rows * theta_size(kAxes);
    T base[kAxes];
    set_row<kAxes>(p, task % rows, base);
    T* row = b.grid + task * p.output_w * kAxes;
    for (int64_t j = 0; j < p.output_w; ++j) {
      base[0] = base_coordinate<T>(j, p.output_w, p.aligns_corners);
      for (int axis = 0; axis < kAxes; ++axis) {
        row[kAxes * j + axis] = narrow<T>(map_coordinate<kAxes>(theta + axis * (kAxes + 1), base));
      }
    }
  });
  return Status::kOk;
}

// The sums of samples [first, end) of one map, for each element of theta.
template <int kAxes, typename T>
void sum_chunk(const Problem& p, const T* grad_grid, int64_t first, int64_t end, T* sums) {
  for (int k = 0; k < theta_size(kAxes); ++k) sums[k] = T(0);
  int64_t row = first / p.output_w;
  int64_t column = first % p.output_w;
  T base[kAxes];
  set_row<kAxes>(p, row, base);
  for (int64_t sample = first; sample < end; ++sample) {
    base[0] = base_coordinate<T>(column, p.output_w, p.aligns_corners);
    for (int axis = 0; axis < kAxes; ++axis) {
      add_to_row<kAxes>(grad_grid[kAxes * sample + axis], base, sums + axis * (kAxes + 1));
    }
    if (++column == p.output_w) {
      column = 0;
      set_row<kAxes>(p, ++row, base);
    }
  }
}

template <typename T, int kAxes>
Status sum_chunks(const Problem& p, const BackwardBuffers<T, kAxes>& b, void* workspace) {
  constexpr int32_t kThetaSize = theta_size(kAxes);
  const Partials<T, kAxes> partials(p, workspace);
  parallel_for(p.n * p.chunks, grain_for(8 * kChunk), [&](int64_t task) {
    const int64_t image = task / p.chunks, chunk = task % p.chunks;
    const int64_t first = chunk * kChunk;
    const int64_t end = first + kChunk < p.samples ? first + kChunk : p.samples;
    T sums[kThetaSize];
    sum_chunk<kAxes>(p, b.grad_grid + image * p.samples * kAxes, first, end, sums);
    for (int64_t k = 0; k < kThetaSize; ++k) partials.sums[(image * kThetaSize + k) * p.chunks + chunk] = sums[k];
  });
  parallel_for(p.theta_numel, grain_for(4 * p.chunks), [&](int64_t task) {
    const T* sums = partials.sums + task * p.chunks;
    T total = T(0);
    for (int64_t chunk = 0; chunk < p.chunks; ++chunk) total = total + sums[chunk];
    b.grad_theta[task] = narrow<T>(total);
  });
  return Status::kOk;
}

template <typename T, int kAxes>
struct RowsPath {
  static const char* name() { return "rows"; }
  const Request<Problem, ForwardBuffers<T, kAxes>>& call;
  Status enqueue() const { return write_rows(call.p, call.b); }
};

template <typename T, int kAxes>
struct ChunksPath {
  static const char* name() { return "chunks"; }
  const Request<Problem, BackwardBuffers<T, kAxes>>& call;
  Status enqueue() const { return sum_chunks(call.p, call.b, call.workspace); }
};

template <typename T, int kAxes>
Status run(const Problem& p, const ForwardBuffers<T, kAxes>& b, void* workspace) {
  return Paths<RowsPath<T, kAxes>>::enqueue(Request<Problem, ForwardBuffers<T, kAxes>>{p, b, workspace});
}

template <typename T, int kAxes>
Status run(const Problem& p, const BackwardBuffers<T, kAxes>& b, void* workspace) {
  return Paths<ChunksPath<T, kAxes>>::enqueue(Request<Problem, BackwardBuffers<T, kAxes>>{p, b, workspace});
}

}  // namespace

#define BARACUDA_PROVIDE_AXES(T, AXES)                              \
  BARACUDA_PROVIDE_LAUNCH(Problem, ForwardBuffers<T, AXES>)         \
  BARACUDA_PROVIDE_LAUNCH(Problem, BackwardBuffers<T, AXES>)        \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, ForwardBuffers<T, AXES>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, BackwardBuffers<T, AXES>)
BARACUDA_PROVIDE_AXES(float, 2)
BARACUDA_PROVIDE_AXES(double, 2)
BARACUDA_PROVIDE_AXES(float, 3)
BARACUDA_PROVIDE_AXES(double, 3)
#undef BARACUDA_PROVIDE_AXES

}  // namespace baracuda::affine_grid
