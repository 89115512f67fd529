// SPDX-License-Identifier: Apache-2.0
// Histograms on the CPU: parts of the elements have counts of their own, which are then added. Compiled once per
// instruction set.
#include "core/checked.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/histc/launch.h"
#include "ops/histc/math.h"

namespace baracuda::histc {
namespace {

constexpr int64_t kMostParts = 32;
constexpr int64_t kLeastPart = 32768;
// Elements whose bins are found together.
constexpr int64_t kTogether = 512;

int64_t parts_of(const Problem& p) {
  return at_least(1, at_most(kMostParts, p.numel / at_least(kLeastPart, p.bins)));
}

// The least and the largest element of a part, and whether all are finite.
template <typename C>
struct alignas(32) Extremes {
  C least, largest;
  bool are_finite;
};

template <typename C>
struct Scratch {
  WorkspaceLayout layout;
  uint64_t* counts;       // [parts, bins]
  Extremes<C>* extremes;  // [parts]

  Scratch(const Problem& p, void* workspace) {
    const int64_t parts = parts_of(p);
    // Behind what needs no more than the workspace's alignment.
    extremes = workspace_array<Extremes<C>>(workspace, layout.reserve<char>(sizeof(Extremes<C>) * kMostParts + 16));
    extremes = reinterpret_cast<Extremes<C>*>((reinterpret_cast<uintptr_t>(extremes) + 31) / 32 * 32);
    // Several parts have no more counts than there are elements.
    counts = workspace_array<uint64_t>(workspace, layout.reserve<uint64_t>(parts * p.bins));
  }
};

template <typename T>
class Parts {
 public:
  using C = Compute<T>;
  Parts(const Problem& p, const Buffers<T>& b, void* workspace)
      : p_(p), b_(b), scratch_(p, workspace), count_(parts_of(p)), size_(ceil_div(p.numel, count_)) {}

  Status run() const {
    const Bins<C> bins = p_.has_datas_range && p_.numel > 0 ? bins_of_data() : given_bins<C>(p_);
    parallel_for(count_, 1, [&](int64_t part) { count_part(part, bins); });
    parallel_for(p_.bins, grain_for(count_), [&](int64_t bin) {
      uint64_t sum = 0;
      for (int64_t part = 0; part < count_; ++part) sum += scratch_.counts[part * p_.bins + bin];
      b_.output[bin] = rounded_count<T>(sum);
    });
    return Status::kOk;
  }

 private:
  int64_t end_of(int64_t part) const { return at_most(p_.numel, (part + 1) * size_); }

  Bins<C> bins_of_data() const {
    parallel_for(count_, 1, [&](int64_t part) { scratch_.extremes[part] = extremes_of(part); });
    Extremes<C> all = scratch_.extremes[0];
    for (int64_t part = 1; part < count_; ++part) {
      const Extremes<C>& other = scratch_.extremes[part];
      all.least = other.least < all.least ? other.least : all.least;
      all.largest = other.largest > all.largest ? other.largest : all.largest;
      all.are_finite = all.are_finite && other.are_finite;
    }
    Bins<C> bins(all.least, all.largest, p_.bins);
    bins.is_finite_range = bins.is_finite_range && all.are_finite;
    return bins;
  }

  Extremes<C> extremes_of(int64_t part) const {
    const int64_t begin = at_most(part * size_, p_.numel - 1);
    const C first = widen(b_.input[begin]);
    Extremes<C> found{first, first, true};
    C residue = 0;  // of finite numbers 0
    for (int64_t i = begin; i < end_of(part); ++i) {
      const C x = widen(b_.input[i]);
      found.least = x < found.least ? x : found.least;
      found.largest = x > found.largest ? x : found.largest;
      residue += x - x;
    }
    found.are_finite = residue == 0;
    return found;
  }

  void count_part(int64_t part, const Bins<C>& bins) const {
    uint64_t* const counts = scratch_.counts + part * p_.bins;
    for (int64_t bin = 0; bin < p_.bins; ++bin) counts[bin] = 0;
    if (!bins.is_finite_range) return;
    for (int64_t begin = part * size_; begin < end_of(part); begin += kTogether) {
      const int64_t count = at_most(kTogether, end_of(part) - begin);
      C elements[kTogether], places[kTogether];
      for (int64_t i = 0; i < count; ++i) elements[i] = widen(b_.input[begin + i]);
      for (int64_t i = 0; i < count; ++i) places[i] = bins.place_of(elements[i]);
      for (int64_t i = 0; i < count; ++i) {
        if (bins.has(elements[i])) ++counts[bins.bin_at(places[i])];
      }
    }
  }

  const Problem& p_;
  const Buffers<T>& b_;
  const Scratch<C> scratch_;
  const int64_t count_, size_;
};

template <typename T>
Status run(const Problem& p, const Buffers<T>& b, void* workspace) {
  BARACUDA_RETURN_IF_FAILED(Parts<T>(p, b, workspace).run());
  record_path("parts");
  return Status::kOk;
}

template <typename T>
size_t bytes_of(const Problem& p, const Buffers<T>*) {
  return Scratch<Compute<T>>(p, nullptr).layout.bytes();
}

}  // namespace

#define BARACUDA_PROVIDE(T)                    \
  BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<T>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, Buffers<T>)
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::histc
