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

template <typename T>
Status write_rows(const Problem& p, const ForwardBuffers<T>& b) {
  // A division takes the time of some eight simple elements.
  parallel_for(static_cast<int64_t>(p.n) * p.output_h, grain_for(8 * static_cast<int64_t>(p.output_w)),
               [&](int64_t task) {
                 const T* theta = b.theta + task / p.output_h * kThetaSize;
                 const T y = base_coordinate<T>(task % p.output_h, p.output_h);
                 T* row = b.grid + task * p.output_w * 2;
                 for (int64_t j = 0; j < p.output_w; ++j) {
                   const T x = base_coordinate<T>(j, p.output_w);
                   row[2 * j] = narrow<T>(map_coordinate(theta, x, y));
                   row[2 * j + 1] = narrow<T>(map_coordinate(theta + 3, x, y));
                 }
               });
  return Status::kOk;
}

// The six sums of samples [first, end) of one image.
template <typename T>
void sum_chunk(const Problem& p, const T* grad_grid, int64_t first, int64_t end, T* sums) {
  T x_row[3] = {}, y_row[3] = {};
  int64_t row = first / p.output_w;
  int64_t column = first % p.output_w;
  T y = base_coordinate<T>(row, p.output_h);
  for (int64_t sample = first; sample < end; ++sample) {
    const T x = base_coordinate<T>(column, p.output_w);
    add_to_row(grad_grid[2 * sample], x, y, x_row);
    add_to_row(grad_grid[2 * sample + 1], x, y, y_row);
    if (++column == p.output_w) {
      column = 0;
      y = base_coordinate<T>(++row, p.output_h);
    }
  }
  for (int k = 0; k < 3; ++k) {
    sums[k] = x_row[k];
    sums[3 + k] = y_row[k];
  }
}

template <typename T>
Status sum_chunks(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  const Partials<T> partials(p, workspace);
  parallel_for(p.n * p.chunks, grain_for(8 * kChunk), [&](int64_t task) {
    const int64_t image = task / p.chunks, chunk = task % p.chunks;
    const int64_t first = chunk * kChunk;
    const int64_t end = first + kChunk < p.samples ? first + kChunk : p.samples;
    T sums[kThetaSize];
    sum_chunk(p, b.grad_grid + image * p.samples * 2, first, end, sums);
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

template <typename T>
struct RowsPath {
  static const char* name() { return "rows"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const { return write_rows(call.p, call.b); }
};

template <typename T>
struct ChunksPath {
  static const char* name() { return "chunks"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  Status enqueue() const { return sum_chunks(call.p, call.b, call.workspace); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  return Paths<RowsPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, workspace});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  return Paths<ChunksPath<T>>::enqueue(Request<Problem, BackwardBuffers<T>>{p, b, workspace});
}

}  // namespace

BARACUDA_PROVIDE_BOTH_DIRECTIONS(float)
BARACUDA_PROVIDE_BOTH_DIRECTIONS(double)

}  // namespace baracuda::affine_grid
