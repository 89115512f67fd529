// SPDX-License-Identifier: Apache-2.0
// How a consumer warp of the tile kernel adds a stage's box to its sums.
#pragma once

#include "ops/roi_align/cuda/backward/stages.cuh"

namespace baracuda::roi_align {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <class P>
struct Sums {
  // [channel of the lane][row of the pair][pixel]
  typename P::C value[P::kChannelsPerLane][kUnitRows][P::kColumns];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
#pragma unroll
      for (int i = 0; i < kUnitRows; ++i) {
#pragma unroll
        for (int j = 0; j < P::kColumns; ++j) value[k][i][j] = typename P::C(0);
      }
    }
  }
};

// A stage's box as a warp's two rows see it.
template <class P>
struct StagedBox {
  using T = typename P::T;
  using C = typename P::C;
  using XEntry = UnitWeights<C, kUnitColumns>;
  using YEntry = UnitWeights<C, kUnitRows>;

  const T* grad;  // the first ph that the rows meet, of the lane's first channel
  const YEntry* y_entries;
  const char* stage;
  int first_ph, phs;

  __device__ __forceinline__ StagedBox(const StageLayout<P>& layout, const char* at, UnitRecord rows, int lane)
      : stage(at) {
    const int y_run = reinterpret_cast<const UnitRecord*>(stage + layout.y_records_at)->start() & -kBulkEntries<YEntry>;
    y_entries = reinterpret_cast<const YEntry*>(stage + layout.y_at) + (rows.start() - y_run);
    first_ph = rows.first_bin();
    phs = rows.count();
    grad = reinterpret_cast<const T*>(stage) + lane * layout.bins + first_ph * layout.pooled_w;
  }

  // Calls visit(unit, its record, its first entry) for the tile's units. Their records are read as late as possible:
  // registers are few.
  template <class Visit>
  __device__ __forceinline__ void for_each_unit(const StageLayout<P>& layout, const Visit& visit) const {
    const uint4* records = reinterpret_cast<const uint4*>(stage + layout.x_records_at);
    const XEntry* entries = nullptr;
#pragma unroll
    for (int unit = 0; unit < P::kColumnUnits; unit += 4) {
      const uint4 four = records[unit / 4];
      const UnitRecord columns[4] = {{four.x}, {four.y}, {four.z}, {four.w}};
      if (unit == 0) entries = reinterpret_cast<const XEntry*>(stage + layout.x_at) - columns[0].start();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (unit + i < P::kColumnUnits) visit(unit + i, columns[i], entries + columns[i].start());
      }
    }
  }
};

// Adds one bin to the pixels of a unit.
template <class P>
__device__ __forceinline__ void add_bin(const UnitWeights<typename P::C, kUnitColumns>& weights, const BinSums<P>& bin,
                                        int unit, Sums<P>& sums) {
#pragma unroll
  for (int j = 0; j < kUnitColumns; ++j) {
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
#pragma unroll
      for (int i = 0; i < kUnitRows; ++i) {
        typename P::C& sum = sums.value[k][i][unit * kUnitColumns + j];
        sum = fma(weights.weight[j], bin.value[k][i], sum);
      }
    }
  }
}

// Adds one stage's box to a warp's two rows, which meet kPh ph: their weights stay in registers.
template <class P, int kPh>
__device__ __forceinline__ void add_box_of_few(const StageLayout<P>& layout, const StagedBox<P>& box, Sums<P>& sums) {
  using C = typename P::C;
  using Box = StagedBox<P>;
  typename Box::YEntry held[kPh];
#pragma unroll
  for (int i = 0; i < kPh; ++i) held[i] = box.y_entries[i];
  box.for_each_unit(layout, [&](int unit, UnitRecord record, const typename Box::XEntry* entry) {
    const typename P::T* values = box.grad + record.first_bin();
#pragma unroll 1
    for (int left = record.count(); left > 0; --left, ++entry, ++values) {
      const typename Box::XEntry weights = *entry;
      BinSums<P> bin;
#pragma unroll
      for (int k = 0; k < P::kChannelsPerLane; ++k) {
        const typename P::T* column = values + k * 32 * layout.bins;
        bin.value[k][0] = C(0), bin.value[k][1] = C(0);
#pragma unroll
        for (int i = 0; i < kPh; ++i) {
          const C value = widen(column[i * layout.pooled_w]);
          bin.value[k][0] = fma(held[i].weight[0], value, bin.value[k][0]);
          bin.value[k][1] = fma(held[i].weight[1], value, bin.value[k][1]);
        }
      }
      add_bin<P>(weights, bin, unit, sums);
    }
  });
}

// Bins of one ph that a lane reads at once.
template <class P>
constexpr int kReadBins = P::kPooled == 0 || (P::kPooled > 8 && sizeof(typename P::C) == 8) ? 4
                          : P::kPooled < 8                                                ? P::kPooled
                                                                                           : 8;

// kWidth values that are read at once.
template <typename T, int kWidth>
struct alignas(kWidth * sizeof(T)) Run {
  T value[kWidth];
};
template <int kWidth, typename T>
__device__ __forceinline__ void read_run(const T* from, Compute<T>* values) {
  const Run<T, kWidth> run = *reinterpret_cast<const Run<T, kWidth>*>(from);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] = widen(run.value[i]);
}

// Reads kCount neighbouring bins of one ph, as wide as their alignment allows; `left` of them exist.
template <class P, int kCount, bool kOddPh>
__device__ __forceinline__ void read_bins(const typename P::T* from, int left, typename P::C (&values)[kCount]) {
  if constexpr (P::kPooled % 2 != 0 || P::kPooled == 0) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] = j < left ? widen(from[j]) : typename P::C(0);
  } else if constexpr (sizeof(typename P::T) == 4) {
    // Rows of 14 words: an even one begins at 16 bytes, an odd one 8 bytes past. Lanes are 4 words apart, modulo 32, so
    // that 16-byte reads meet no conflict.
    static_assert(P::kPooled % 4 == 2 && kCount % 2 == 0);
    constexpr int kHead = kOddPh ? 2 : 0, kTail = (kCount - kHead) % 4;
    if constexpr (kHead != 0) read_run<kHead>(from, values);
#pragma unroll
    for (int at = kHead; at + 4 <= kCount; at += 4) read_run<4>(from + at, values + at);
    if constexpr (kTail != 0) read_run<kTail>(from + kCount - kTail, values + kCount - kTail);
  } else {
    static_assert(kCount % 2 == 0);
#pragma unroll
    for (int at = 0; at < kCount; at += 2) read_run<2>(from + at, values + at);
  }
}

// kCount neighbouring bins of one channel, summed over the ph that a warp's rows meet.
template <class P, int kCount>
struct BinRun {
  using C = typename P::C;
  C sum[kCount][kUnitRows];

  template <bool kOddPh>
  __device__ __forceinline__ void add(const typename P::T* from, int left,
                                      const UnitWeights<C, kUnitRows>* weights) {
    C values[kCount];
    read_bins<P, kCount, kOddPh>(from, left, values);
    const UnitWeights<C, kUnitRows> weight = *weights;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
#pragma unroll
      for (int i = 0; i < kUnitRows; ++i) sum[j][i] = fma(weight.weight[i], values[j], sum[j][i]);
    }
  }
};

// Sums kCount bins from `bin` on, for the lane's k-th channel, and keeps them.
template <class P, int kCount>
__device__ __forceinline__ void keep_bins(const StageLayout<P>& layout, const StagedBox<P>& box, int k, int bin,
                                          BinSums<P>* kept) {
  using C = typename P::C;
  BinRun<P, kCount> run{};
  const int left = layout.pooled_w - bin;
  const auto from = [&](int ph) { return box.grad + ph * layout.pooled_w + (k * 32 * layout.bins + bin); };
  if constexpr (P::kPooled % 2 == 0 && P::kPooled != 0 && sizeof(typename P::T) == 4) {
    // Even and odd ph are read differently.
    int ph = box.first_ph % 2;
    if (ph != 0) run.template add<true>(from(0), left, box.y_entries);
#pragma unroll 1
    for (; ph + 2 <= box.phs; ph += 2) {
      run.template add<false>(from(ph), left, box.y_entries + ph);
      run.template add<true>(from(ph + 1), left, box.y_entries + ph + 1);
    }
    if (ph < box.phs) run.template add<false>(from(ph), left, box.y_entries + ph);
  } else {
    const typename P::T* bins = from(0);
    const auto* weights = box.y_entries;
#pragma unroll 1
    for (int phs = box.phs; phs > 0; --phs, bins += layout.pooled_w, ++weights) {
      run.template add<false>(bins, left, weights);
    }
  }
  struct alignas(kUnitRows * sizeof(C)) Rows {
    C value[kUnitRows];
  };
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    *reinterpret_cast<Rows*>(&kept[j * 32].value[k][0]) = {run.sum[j][0], run.sum[j][1]};
  }
}

// Adds a box by way of the warp's strip: first the rows' sums of every bin, once each, then the units.
template <class P>
__device__ __forceinline__ void add_box_of_many(const StageLayout<P>& layout, const StagedBox<P>& box, int lane,
                                                typename P::C* strip, Sums<P>& sums) {
  using Box = StagedBox<P>;
  constexpr int kStep = kReadBins<P>;
  BinSums<P>* const kept = reinterpret_cast<BinSums<P>*>(strip) + lane;
#pragma unroll 1
  for (int begin = 0; begin < layout.pooled_w; begin += P::kKeptBins) {
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
#pragma unroll
      for (int at = 0; at < P::kKeptBins; at += kStep) {
        if (begin + at >= layout.pooled_w) break;
        if constexpr (P::kPooled % kStep != 0) {
          // The last bins of a row of a known length.
          if (begin + at + kStep > layout.pooled_w) {
            keep_bins<P, P::kPooled % kStep>(layout, box, k, begin + at, kept + at * 32);
            break;
          }
        }
        keep_bins<P, kStep>(layout, box, k, begin + at, kept + at * 32);
      }
    }
    box.for_each_unit(layout, [&](int unit, UnitRecord record, const typename Box::XEntry* entry) {
      const int first = record.first_bin() - begin;
      int at = first, end = first + record.count();
      if constexpr (P::kKeptBins < P::kMaxBins) {
        at = at > 0 ? at : 0;
        end = end < P::kKeptBins ? end : P::kKeptBins;
      }
      entry += at - first;
      const BinSums<P>* bin = kept + at * 32;
      int left = end - at;
#pragma unroll 1
      for (; left >= 2; left -= 2, entry += 2, bin += 2 * 32) {
        const typename Box::XEntry weights[2] = {entry[0], entry[1]};
        const BinSums<P> bins[2] = {bin[0], bin[32]};
        add_bin<P>(weights[0], bins[0], unit, sums);
        add_bin<P>(weights[1], bins[1], unit, sums);
      }
      if (left > 0) add_bin<P>(*entry, *bin, unit, sums);
    });
  }
}

// Adds one stage's box to a warp's two rows.
template <class P>
__device__ __forceinline__ void add_box_to_tile(const StageLayout<P>& layout, const char* stage, UnitRecord rows,
                                                int lane, typename P::C* strip, Sums<P>& sums) {
  if (rows.count() == 0) return;
  const StagedBox<P> box(layout, stage, rows, lane);
  if constexpr (P::kSummedInPlace >= 2) {
    // Two ph cover every bin of two rows or more.
    if (box.phs == 1) return add_box_of_few<P, 1>(layout, box, sums);
    if (box.phs == 2) return add_box_of_few<P, 2>(layout, box, sums);
  }
  add_box_of_many<P>(layout, box, lane, strip, sums);
}

#endif  // sm_90

}  // namespace
}  // namespace baracuda::roi_align
