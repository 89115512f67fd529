// SPDX-License-Identifier: Apache-2.0
// Maximum pooling on the CPU: which path a call takes. Threads own what they write. Compiled once per instruction set.
//
//   forward path   calls                       code
//   columns        windows side by side        columns.h
//   windows        the others                  windows.h
//
//   backward path  calls                       code
//   zeros          without windows             here
//   planes         all                         core/cpu_pool_sums.h
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_pool_sums.h"
#include "core/cpu_zeros.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/max_pool/cpu/columns.h"
#include "ops/max_pool/cpu/windows.h"
#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

// pool(begin, end) for parts of all rows of windows.
template <class Pool>
void pool_rows(const Problem& p, Pool pool) {
  const int64_t rows = p.output_numel / p.axes[2].bins;
  const int64_t most = p.input_numel > p.output_numel ? p.input_numel : p.output_numel;
  const int64_t rows_per_task = grain_for(4 * (most / rows));
  parallel_for(ceil_div(rows, rows_per_task), 1, [&](int64_t task) {
    pool(task * rows_per_task, at_most((task + 1) * rows_per_task, rows));
  });
}

// Windows so far apart that more than this many columns belong to each one's column are quicker one by one.
constexpr int64_t kMostApart = 8;

template <typename T>
struct ForwardScratch {
  WorkspaceLayout layout;
  TaskScratch<ColumnArrays<T>> arrays;
  explicit ForwardScratch(void* workspace) : arrays(layout, workspace) {}
};

template <typename T>
struct ColumnsPath {
  static const char* name() { return "columns"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const {
    const PoolAxis& w = call.p.axes[2];
    return ColumnMaxima<T>::can(call.p) && (w.is_adaptive() || w.stride <= kMostApart * w.kernel);
  }
  Status enqueue() const {
    const ForwardScratch<T> scratch(call.workspace);
    const Pooling pooling(call.p);
    pool_rows(call.p, [&](int64_t begin, int64_t end) {
      ColumnMaxima<T>(pooling, call.b, scratch.arrays.mine()).pool(begin, end);
    });
    return Status::kOk;
  }
};

template <typename T>
struct WindowsPath {
  static const char* name() { return "windows"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const {
    const Pooling pooling(call.p);
    pool_rows(call.p, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) pool_row_by_windows(pooling, call.b, row);
    });
    return Status::kOk;
  }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  return Paths<ColumnsPath<T>, WindowsPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  return p.output_numel == 0 ? 0 : ForwardScratch<T>(nullptr).layout.bytes();
}

// An axis as core/cpu_pool_sums.h has it.
struct SummedAxis : PoolWindows {
  explicit SummedAxis(const PoolAxis& axis) : PoolWindows(axis) {}
  template <typename N>
  PoolRange of(int32_t window) const {
    return window_of(*this, window);
  }
};

struct SummedWindows {
  SummedAxis d, h, w;
  explicit SummedWindows(const Problem& p) : d(p.axes[0]), h(p.axes[1]), w(p.axes[2]) {}
};

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  bool can() const { return call.p.output_numel == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const { return write_zeros(call.b.grad_input, call.p.input_numel); }
};

template <typename T>
struct PlanesPath {
  static const char* name() { return "planes"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  size_t bytes() const { return PlaneSums<T>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const {
    const PlaneSums<T> sums(call.p, call.workspace);
    const SummedWindows windows(call.p);
    if (call.p.plane_numel <= INT32_MAX) {
      sums.template add<int32_t>(call.p, call.b, windows);
    } else {
      sums.template add<int64_t>(call.p, call.b, windows);
    }
    return Status::kOk;
  }
};

template <typename T>
using BackwardPaths = Paths<ZerosPath<T>, PlanesPath<T>>;

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  return BackwardPaths<T>::enqueue(Request<Problem, BackwardBuffers<T>>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  const BackwardBuffers<T> none{};
  return BackwardPaths<T>::choose(Request<Problem, BackwardBuffers<T>>{p, none, nullptr},
                                  [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::max_pool
