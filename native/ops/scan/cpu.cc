// SPDX-License-Identifier: Apache-2.0
// Scans on the CPU. A lane is a row where rows are dense (inner = 1), else as many neighbouring ones as fill some
// vectors. Compiled once per instruction set.
//
//   path    calls                                 a task is
//   tiles   few lanes of several tiles, threads   a tile of a lane: first what it adds to the row, then its results
//   lanes   all                                   a lane, tile after tile
#include "core/cpu_convert.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/scan/cpu_halves.h"
#include "ops/scan/launch.h"
#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

// Rows of a lane: their states fill eight vectors of the widest kind.
template <class Op>
constexpr int64_t kLaneRows = static_cast<int64_t>(512 / sizeof(typename Op::State));

// So many lanes occupy the threads by themselves; tiles are read twice.
constexpr int64_t kManyLanes = 64;

template <class Op>
class Lanes {
 public:
  using State = typename Op::State;
  using Carry = typename Op::Carry;
  using C = typename Op::C;
  using T = typename Op::Element;
  using Buffers = typename Op::Buffers;

  Lanes(const Problem& p, const Buffers& b) : p_(p), b_(b), op_(p) {}

  // Of a problem, and of one of its outer elements.
  static int64_t count_of(const Problem& p) { return p.outer * per_outer(p); }
  static int64_t per_outer(const Problem& p) { return ceil_div(p.inner, kLaneRows<Op>); }

  int64_t first_row(int64_t lane) const { return lane / per_outer(p_) * p_.inner + column(lane); }
  int64_t rows_of(int64_t lane) const { return at_most(kLaneRows<Op>, p_.inner - column(lane)); }

  // Goes through a tile of a lane. Of each of its rows, `carries` stands in front of the tile, and `totals` becomes the
  // tile's last state; `maxima` are those of what is in front, and then of what is in front of the next tile. Results
  // are stored if kHasResults.
  template <bool kHasResults>
  void scan_tile(int64_t lane, int64_t tile, const Carry* carries, C* maxima, State* totals) const {
    if (p_.inner > 1) {
      scan_rows<kHasResults>(lane, tile, carries, maxima, totals);
    } else if (p_.reverse) {
      scan_row<kHasResults, -1>(lane, tile, *carries, *maxima, *totals);
    } else {
      scan_row<kHasResults, 1>(lane, tile, *carries, *maxima, *totals);
    }
  }

  // The maxima of a tile by itself.
  void find_maxima(int64_t lane, int64_t tile, C* maxima) const {
    const int64_t rows = rows_of(lane), first = tile * kTile, count = at_most(kTile, p_.length - first);
    for (int64_t at = 0; at < count; ++at) {
      const T* const from = b_.input + spot_of(lane, first + at, 0).offset;
      for (int64_t j = 0; j < rows; ++j) {
        maxima[j] = at == 0 ? accumulated(from[j]) : larger(maxima[j], accumulated(from[j]));
      }
    }
  }

 private:
  int64_t column(int64_t lane) const { return lane % per_outer(p_) * kLaneRows<Op>; }

  // The first of a lane's rows at a place along the scan.
  Spot spot_of(int64_t lane, int64_t place, int32_t at) const {
    const int64_t index = p_.reverse ? p_.length - 1 - place : place;
    return {(lane / per_outer(p_) * p_.length + index) * p_.inner + column(lane), index, at};
  }

  State leaf(const Spot& spot, bool is_first, C& maximum) const {
    State state = op_.leaf(b_, b_.input[spot.offset], spot);
    if constexpr (Op::kHasMaxima) {
      maximum = is_first ? state.m : larger(maximum, state.m);
      state.m = maximum;
      state = op_.settle(state);
    }
    return state;
  }

  void store(int64_t tile, const Carry& carry, const State& state, const Spot& spot) const {
    const Carry found = carried(op_, tile, carry, state);
    b_.output[spot.offset] = op_.result(b_, found, spot);
    if constexpr (Op::kHasIndices) b_.indices[spot.offset] = op_.index_of(found);
  }

  // A tile of one dense row, in which the next element along the scan is kStep away. Not inlined, as scan_rows: each of
  // the calls of scan_tile would have a copy that takes seconds to compile.
  template <bool kHasResults, int kStep>
  [[gnu::noinline]] void scan_row(int64_t row, int64_t tile, const Carry& carry, C& maximum, State& total) const {
    const int64_t first = tile * kTile;
    const int32_t count = static_cast<int32_t>(at_most(kTile, p_.length - first));
    const Spot begin_spot = spot_of(row, first, 0);
    if constexpr (Op::kIsExact) {
      scan_exact_row<kHasResults, kStep>(begin_spot, count, tile, carry, total);
      return;
    }
    State last{};
    for (int32_t begin = 0; begin < count; begin += kBlock) {
      const int32_t in_block = count - begin < kBlock ? count - begin : kBlock;
      const Spot spot = {begin_spot.offset + begin * kStep, begin_spot.index + begin * kStep, begin};
      State states[kBlock];
      for (int32_t j = 0; j < in_block; ++j) {
        const Spot here = {spot.offset + j * kStep, spot.index + j * kStep, spot.at + j};
        states[j] = leaf(here, first + begin + j == 0, maximum);
      }
      if (in_block == kBlock) {
        join_halves(op_, states);
      } else {
        join_halves(op_, states, in_block);
      }
      if (begin > 0) {
        for (int32_t j = 0; j < in_block; ++j) states[j] = op_.combine(last, states[j]);
      }
      last = states[in_block - 1];
      if constexpr (kHasResults) {
        for (int32_t j = 0; j < in_block; ++j) {
          store(tile, carry, states[j], {spot.offset + j * kStep, spot.index + j * kStep, spot.at + j});
        }
      }
    }
    total = last;
  }

  // The same where no order of joining shows in the result.
  template <bool kHasResults, int kStep>
  void scan_exact_row(const Spot& first, int32_t count, int64_t tile, const Carry& carry, State& total) const {
    State last{};
    for (int32_t j = 0; j < count; ++j) {
      const Spot spot = {first.offset + j * kStep, first.index + j * kStep, j};
      const State state = op_.leaf(b_, b_.input[spot.offset], spot);
      last = j > 0 ? op_.combine(last, state) : state;
      if constexpr (kHasResults) store(tile, carry, last, spot);
    }
    total = last;
  }

  // A tile of several rows that lie side by side. Halves are joined on the way: the element at place i of a block is
  // joined to one half for each bit that is set in i, from the lowest on; where the first bit comes that is not, it is
  // the last element of such a half itself.
  template <bool kHasResults>
  [[gnu::noinline]] void scan_rows(int64_t lane, int64_t tile, const Carry* carries, C* maxima, State* totals) const {
    constexpr int kBits = 7;
    static_assert(1 << kBits == kBlock);
    constexpr int64_t kRows = kLaneRows<Op>;
    const int64_t rows = rows_of(lane), first = tile * kTile;
    const int32_t count = static_cast<int32_t>(at_most(kTile, p_.length - first));
    State halves[kBits][kRows], states[kRows];
    for (int32_t at = 0; at < count; ++at) {
      const Spot spot = spot_of(lane, first + at, at);
      for (int64_t j = 0; j < rows; ++j) {
        states[j] = leaf({spot.offset + j, spot.index, spot.at}, first + at == 0, maxima[j]);
      }
      bool is_half = true;
      for (int bit = 0; bit < kBits && !Op::kIsExact; ++bit) {
        if ((at >> bit & 1) != 0) {
          combine_rows(halves[bit], states, rows);
        } else if (is_half) {
          copy_rows(states, halves[bit], rows);
          is_half = false;
        }
      }
      if (at >= (Op::kIsExact ? 1 : kBlock)) combine_rows(totals, states, rows);
      if (is_half) copy_rows(states, totals, rows);
      if constexpr (kHasResults) {
        for (int64_t j = 0; j < rows; ++j) {
          store(tile, carries[j], states[j], {spot.offset + j, spot.index, spot.at});
        }
      }
    }
  }

  void combine_rows(const State* before, State* states, int64_t rows) const {
    for (int64_t j = 0; j < rows; ++j) states[j] = op_.combine(before[j], states[j]);
  }
  static void copy_rows(const State* from, State* to, int64_t rows) {
    for (int64_t j = 0; j < rows; ++j) to[j] = from[j];
  }

  const Problem& p_;
  const Buffers& b_;
  const Op op_;
};

template <class Op>
Status scan_lanes(const Problem& p, const typename Op::Buffers& b) {
  const Lanes<Op> lanes(p, b);
  const Op op(p);
  parallel_for(Lanes<Op>::count_of(p), grain_for(p.length * lanes.rows_of(0)), [&](int64_t lane) {
    constexpr int64_t kRows = kLaneRows<Op>;
    typename Op::Carry carries[kRows] = {};
    typename Op::State totals[kRows] = {};
    typename Op::C maxima[kRows] = {};
    for (int64_t tile = 0; tile < p.tiles; ++tile) {
      lanes.template scan_tile<true>(lane, tile, carries, maxima, totals);
      if (tile + 1 == p.tiles) break;
      for (int64_t j = 0; j < lanes.rows_of(lane); ++j) carries[j] = carried(op, tile, carries[j], totals[j]);
    }
  });
  return Status::kOk;
}

// What stands in front of the tiles of every row, from the second on.
template <class Op>
struct TileScratch {
  WorkspaceLayout layout;
  typename Op::Carry* carries;  // [tiles - 1, rows]
  typename Op::C* maxima;       // likewise, of operators that have maxima

  TileScratch(const Problem& p, void* workspace) {
    const int64_t count = (p.tiles - 1) * p.rows;
    carries = workspace_array<typename Op::Carry>(workspace, layout.reserve<typename Op::Carry>(count));
    maxima = workspace_array<typename Op::C>(workspace, layout.reserve<typename Op::C>(Op::kHasMaxima ? count : 0));
  }
};

// First what each tile adds by itself, then what stands in front of each, then the results.
template <class Op>
Status scan_tiles(const Problem& p, const typename Op::Buffers& b, void* workspace) {
  constexpr int64_t kRows = kLaneRows<Op>;
  using C = typename Op::C;
  const Lanes<Op> lanes(p, b);
  const Op op(p);
  const TileScratch<Op> scratch(p, workspace);
  const int64_t count = Lanes<Op>::count_of(p), inner_tiles = p.tiles - 1;
  const int64_t grain = grain_for(kTile * lanes.rows_of(0));
  // Of what stands in front of a tile that is not the first.
  const auto place_of = [&](int64_t lane, int64_t tile) { return (tile - 1) * p.rows + lanes.first_row(lane); };
  const auto take_maxima = [&](int64_t lane, int64_t tile, C* maxima) {
    if (!Op::kHasMaxima || tile == 0) return;
    for (int64_t j = 0; j < lanes.rows_of(lane); ++j) maxima[j] = scratch.maxima[place_of(lane, tile) + j];
  };
  if constexpr (Op::kHasMaxima) {
    parallel_for(count * inner_tiles, grain, [&](int64_t task) {
      const int64_t lane = task / inner_tiles, tile = task % inner_tiles;
      lanes.find_maxima(lane, tile, scratch.maxima + place_of(lane, tile + 1));
    });
    for (int64_t i = p.rows; i < inner_tiles * p.rows; ++i) {
      scratch.maxima[i] = larger(scratch.maxima[i - p.rows], scratch.maxima[i]);
    }
  }
  parallel_for(count * inner_tiles, grain, [&](int64_t task) {
    const int64_t lane = task / inner_tiles, tile = task % inner_tiles;
    const typename Op::Carry none[kRows] = {};
    C maxima[kRows] = {};
    typename Op::State totals[kRows] = {};
    take_maxima(lane, tile, maxima);
    lanes.template scan_tile<false>(lane, tile, none, maxima, totals);
    typename Op::Carry* const own = scratch.carries + place_of(lane, tile + 1);
    for (int64_t j = 0; j < lanes.rows_of(lane); ++j) {
      own[j] = tile == 0 ? carried(op, 0, none[j], totals[j]) : op.lift(totals[j], tile * kTile);
    }
  });
  for (int64_t i = p.rows; i < inner_tiles * p.rows; ++i) {
    scratch.carries[i] = op.join(scratch.carries[i - p.rows], scratch.carries[i]);
  }
  parallel_for(count * p.tiles, grain, [&](int64_t task) {
    const int64_t lane = task / p.tiles, tile = task % p.tiles;
    const typename Op::Carry none[kRows] = {};
    C maxima[kRows] = {};
    typename Op::State totals[kRows] = {};
    take_maxima(lane, tile, maxima);
    const typename Op::Carry* const carries = tile == 0 ? none : scratch.carries + place_of(lane, tile);
    lanes.template scan_tile<true>(lane, tile, carries, maxima, totals);
  });
  return Status::kOk;
}

template <class Op>
struct TilesPath {
  static const char* name() { return "tiles"; }
  const Request<Problem, typename Op::Buffers>& call;
  static bool has_scratch(const Problem& p) { return p.tiles > 1 && Lanes<Op>::count_of(p) < kManyLanes; }
  bool can() const { return has_scratch(call.p) && cpu_threads() > 1; }
  Status enqueue() const { return scan_tiles<Op>(call.p, call.b, call.workspace); }
};

template <class Op>
struct LanesPath {
  static const char* name() { return "lanes"; }
  const Request<Problem, typename Op::Buffers>& call;
  Status enqueue() const { return scan_lanes<Op>(call.p, call.b); }
};

template <class Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace) {
  using Op = typename OperatorOf<Buffers>::type;
  return Paths<TilesPath<Op>, LanesPath<Op>>::enqueue(Request<Problem, Buffers>{p, b, workspace});
}

template <class Buffers>
size_t bytes_of(const Problem& p, const Buffers*) {
  using Op = typename OperatorOf<Buffers>::type;
  return TilesPath<Op>::has_scratch(p) ? TileScratch<Op>(p, nullptr).layout.bytes() : 0;
}

}  // namespace

#define BARACUDA_PROVIDE(...)                   \
  BARACUDA_PROVIDE_LAUNCH(Problem, __VA_ARGS__) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, __VA_ARGS__)
BARACUDA_SCAN_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::scan
