// SPDX-License-Identifier: Apache-2.0
// Scans on CUDA.
//
//   path           calls                                       what happens
//   rows           dense rows (inner = 1)                      a tile, or some short rows, in registers; tiles of one
//                                                              row look back at each other
//   columns        of one tile, or in many groups of 32 rows   some warps go along 32 rows
//   column tiles   all                                         first what each tile adds by itself, then what stands in
//                                                              front of each, then the results
#include "core/cuda_launch.cuh"
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/scan/cuda/columns.cuh"
#include "ops/scan/cuda/rows.cuh"
#include "ops/scan/launch.h"
#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

// Groups of 32 rows that keep a device busy by themselves; tiles read their rows twice.
constexpr int64_t kManyGroups = 64;

template <typename V>
int64_t board_words(const Problem& p) {
  return 2 * Board<V>::words(p.rows * p.tiles);
}

template <class Op>
struct RowScratch {
  WorkspaceLayout layout;
  RowBoards<Op> boards{};

  RowScratch(const Problem& p, void* workspace) {
    if (p.tiles < 2) return;
    const int64_t tiles = p.rows * p.tiles;
    boards.next = workspace_array<unsigned long long>(workspace, layout.reserve<unsigned long long>(1));
    boards.carries = board<typename Op::Carry>(tiles, workspace);
    if constexpr (Op::kHasMaxima) boards.maxima = board<typename Op::C>(tiles, workspace);
  }

 private:
  template <typename V>
  Board<V> board(int64_t tiles, void* workspace) {
    const int64_t words = Board<V>::words(tiles);
    Board<V> made{};
    made.totals = workspace_array<uint64_t>(workspace, layout.reserve<uint64_t>(words));
    made.carries = workspace_array<uint64_t>(workspace, layout.reserve<uint64_t>(words));
    return made;
  }
};

template <class Op>
struct ColumnScratch {
  WorkspaceLayout layout;
  Fronts<Op> fronts;

  ColumnScratch(const Problem& p, void* workspace) {
    const int64_t count = (p.tiles - 1) * p.rows;
    fronts.carries = workspace_array<typename Op::Carry>(workspace, layout.reserve<typename Op::Carry>(count));
    fronts.maxima =
        workspace_array<typename Op::C>(workspace, layout.reserve<typename Op::C>(Op::kHasMaxima ? count : 0));
  }
};

bool is_aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

template <class Op>
struct RowsPath {
  using T = typename Op::Element;
  static const char* name() { return "rows"; }
  const Request<Problem, typename Op::Buffers>& call;
  bool can() const { return call.p.inner == 1; }
  size_t bytes() const { return RowScratch<Op>(call.p, nullptr).layout.bytes(); }
  // Whether every lane's elements begin where vectors do.
  bool has_vectors() const {
    const bool whole = call.p.length % kQuad == 0;
    bool aligned = is_aligned(call.b.input, alignof(Quad<T>)) && is_aligned(call.b.output, alignof(Quad<T>));
    if constexpr (Op::kHasIndices) aligned = aligned && is_aligned(call.b.indices, alignof(Quad<int64_t>));
    return aligned && (whole || (call.p.rows == 1 && !call.p.reverse));
  }
  Status enqueue() const {
    const Problem& p = call.p;
    const RowScratch<Op> scratch(p, call.workspace);
    const RowPlan plan(p, has_vectors());
    const uint32_t blocks = blocks_for(plan.blocks, 1);
    if (p.tiles < 2) {
      return launch_kernel("scan kernel", scan_rows<Op>, blocks, kRowThreads, 0, call.stream, p, call.b, plan,
                           scratch.boards);
    }
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(call.workspace, scratch.layout.bytes(), call.stream));
    return launch_early("scan kernel", scan_rows<Op>, blocks, kRowThreads, 0, call.stream, p, call.b, plan,
                        scratch.boards);
  }
};

template <class Op>
struct ColumnsPath {
  static const char* name() { return "columns"; }
  const Request<Problem, typename Op::Buffers>& call;
  bool can() const { return call.p.tiles < 2 || ceil_div(call.p.rows, 32) >= kManyGroups; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const ColumnPlan<Op> plan(call.p);
    return launch_kernel("scan kernel", scan_columns<Op, Pass::kRows>, blocks_for(plan.blocks, 1), kColumnThreads, 0,
                         call.stream, call.p, call.b, plan, Fronts<Op>{});
  }
};

template <class Op>
struct ColumnTilesPath {
  static const char* name() { return "column tiles"; }
  const Request<Problem, typename Op::Buffers>& call;
  size_t bytes() const { return ColumnScratch<Op>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const {
    const ColumnScratch<Op> scratch(call.p, call.workspace);
    const uint32_t blocks_of_rows = blocks_for(call.p.rows, kColumnThreads);
    if constexpr (Op::kHasMaxima) {
      BARACUDA_RETURN_IF_FAILED((enqueue_pass<Pass::kMaxima>(call.p.tiles - 1, scratch.fronts)));
      BARACUDA_RETURN_IF_FAILED(launch_kernel("scan kernel of maxima", join_maxima_of_tiles<Op>, blocks_of_rows,
                                              kColumnThreads, 0, call.stream, call.p, scratch.fronts));
    }
    BARACUDA_RETURN_IF_FAILED((enqueue_pass<Pass::kTotals>(call.p.tiles - 1, scratch.fronts)));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("scan kernel of tiles", join_carries<Op>, blocks_of_rows, kColumnThreads, 0,
                                            call.stream, call.p, scratch.fronts));
    return enqueue_pass<Pass::kResults>(call.p.tiles, scratch.fronts);
  }
  template <Pass kPass>
  Status enqueue_pass(int64_t tiles, const Fronts<Op>& fronts) const {
    const ColumnPlan<Op> plan(call.p);
    return launch_kernel("scan kernel", scan_columns<Op, kPass>, blocks_for(plan.blocks * tiles, 1), kColumnThreads, 0,
                         call.stream, call.p, call.b, plan, fronts);
  }
};

template <class Op>
using ScanPaths = Paths<RowsPath<Op>, ColumnsPath<Op>, ColumnTilesPath<Op>>;

template <class Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace, Stream stream) {
  using Op = typename OperatorOf<Buffers>::type;
  return ScanPaths<Op>::enqueue(Request<Problem, Buffers>{p, b, workspace, stream});
}

template <class Buffers>
size_t bytes_of(const Problem& p, const Buffers*) {
  using Op = typename OperatorOf<Buffers>::type;
  if (p.numel == 0) return 0;
  const Buffers none{};
  return ScanPaths<Op>::choose(Request<Problem, Buffers>{p, none, nullptr, nullptr},
                               [](const auto& path) { return path.bytes(); });
}

}  // namespace

#define BARACUDA_PROVIDE(...)                   \
  BARACUDA_PROVIDE_LAUNCH(Problem, __VA_ARGS__) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, __VA_ARGS__)
BARACUDA_SCAN_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::scan
