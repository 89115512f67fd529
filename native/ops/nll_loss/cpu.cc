// SPDX-License-Identifier: Apache-2.0
// Losses of classification on the CPU. Threads own what they write. Compiled once per instruction set.
//
//   forward path   calls                  what a task is
//   elements       log-probabilities      256 elements
//   rows           logits, d = 1          some rows, along whose classes vectors lie
//   images         logits                 256 elements, along which vectors lie
//
//   backward path  calls                  what a task is
//   classes        log-probabilities      some zeros, then 256 elements
//   rows           logits, d = 1          some rows
//   images         logits                 128 elements with all their classes
#include <type_traits>

#include "core/checked.h"
#include "core/cpu_convert.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/nll_loss/launch.h"
#include "ops/nll_loss/math.h"

namespace baracuda::nll_loss {
namespace {

// Elements whose sum is one item of the workspace, where a row is not one by itself.
constexpr int kChunk = 256;
// Elements of an image that are looked at together: 16 KiB of the logits of one piece in f32.
constexpr int kTile = 128;

// Adds neighbours until one is left, in place; 0 for none.
template <typename C>
C sum_in_pairs(C* values, int64_t count) {
  if (count == 0) return C(0);
  for (; count > 1; count = ceil_div(count, 2)) {
    const int64_t pairs = count / 2;
    for (int64_t i = 0; i < pairs; ++i) values[i] = values[2 * i] + values[2 * i + 1];
    if (count % 2 != 0) values[pairs] = values[count - 1];
  }
  return values[0];
}

template <typename T>
Compute<T> all_weights_of(const Problem& p, const T* weight) {
  using C = Compute<T>;
  if (weight == nullptr) return static_cast<C>(p.c);
  // Sums that wait for a neighbour: of 2^level weights each, where the bit of `count` is set.
  C waiting[32];
  uint32_t count = 0;
  for (; count < static_cast<uint32_t>(p.c); ++count) {
    C sum = as_term(widen(weight[count]));
    int level = 0;
    for (; (count >> level & 1) != 0; ++level) sum = waiting[level] + sum;
    waiting[level] = sum;
  }
  C total = C(0);
  for (int level = 0; level < 32; ++level) {
    if ((count >> level & 1) != 0) total = waiting[level] + total;
  }
  return total;
}

// What is added up: an item for each chunk of elements, or for each row.
template <typename C>
struct Items {
  WorkspaceLayout layout;
  const int64_t count;
  C* losses;
  C* weights;
  int64_t* dropped;

  Items(const Problem& p, bool by_row, void* workspace) : count(by_row ? p.elements : ceil_div(p.elements, kChunk)) {
    losses = workspace_array<C>(workspace, layout.reserve<C>(count));
    weights = workspace_array<C>(workspace, layout.reserve<C>(count));
    dropped = workspace_array<int64_t>(workspace, layout.reserve<int64_t>(count));
  }

  template <typename T, bool kByLogits>
  Status finish(const Problem& p, const ForwardBuffers<T, kByLogits>& b) const {
    int64_t all_dropped = 0;
    for (int64_t i = 0; i < count; ++i) all_dropped += dropped[i];
    store_count(b.num_dropped, all_dropped);
    *b.total_weight = C(0);
    if (!p.reduces()) return Status::kOk;
    const C sum = sum_in_pairs(losses, count), weight = sum_in_pairs(weights, count);
    *b.total_weight = narrow<C>(weight);
    *b.output = reduced<T>(p, sum, weight);
    return Status::kOk;
  }
};

// The losses of one chunk on their way to its item.
template <typename C>
struct Chunk {
  C losses[kChunk], weights[kChunk];
  int64_t dropped = 0;

  void finish(const Problem& p, const Items<C>& items, int64_t number, int count) {
    items.dropped[number] = dropped;
    if (!p.reduces()) return;
    items.losses[number] = sum_in_pairs(losses, count);
    items.weights[number] = sum_in_pairs(weights, count);
  }
};

// Elements of one image that stand beside each other: where, and how many.
struct Run {
  int64_t image, place;
  int count;
};

// Calls use(run, number of its first element) for the elements from `begin` to `end`, in runs of at most kTile.
template <typename Use>
void for_tiles(const Problem& p, int64_t begin, int64_t end, const Use& use) {
  while (begin < end) {
    Run run{begin / p.d, begin % p.d, 0};
    run.count = static_cast<int>(at_most(at_most(end - begin, p.d - run.place), kTile));
    use(run, begin);
    begin += run.count;
  }
}

template <typename T>
Status of_elements(const Problem& p, const ForwardBuffers<T, false>& b, void* workspace) {
  using C = Compute<T>;
  const Items<C> items(p, false, workspace);
  parallel_for(items.count, grain_for(4 * kChunk), [&](int64_t number) {
    const int64_t first = number * kChunk, end = at_most(first + kChunk, p.elements);
    Chunk<C> chunk;
    for_tiles(p, first, end, [&](const Run& run, int64_t begin) {
      const T* const input = b.input + run.image * p.c * p.d + run.place;
      for (int i = 0; i < run.count; ++i) {
        const int64_t target = index_at(b.target, begin + i), place = begin - first + i;
        const bool has_loss = counts(p, target);
        const C weight = has_loss ? weight_of(b.weight, target) : C(0);
        const C loss = has_loss ? -(weight * widen(input[target * p.d + i])) : C(0);
        chunk.dropped += is_dropped(p, target);
        chunk.losses[place] = as_term(loss), chunk.weights[place] = as_term(weight);
        if (!p.reduces()) b.output[begin + i] = narrow<T>(loss);
      }
    });
    chunk.finish(p, items, number, static_cast<int>(end - first));
  });
  return items.finish(p, b);
}

// Classes of several elements, or strands, side by side.
template <typename C, int kLanes>
struct Lanes {
  C largest[kLanes], sum[kLanes], weight[kLanes], gap[kLanes];

  Classes<C> at(int i) const { return {largest[i], sum[i], weight[i], gap[i]}; }
  void put(int i, const Classes<C>& classes) {
    largest[i] = classes.largest, sum[i] = classes.sum, weight[i] = classes.weight, gap[i] = classes.gap;
  }
  void clear(int count) {
    for (int i = 0; i < count; ++i) put(i, Classes<C>::none());
  }
  template <typename T>
  void enlarge(const T* x, int count) {
    for (int i = 0; i < count; ++i) largest[i] = larger_of(largest[i], widen_lane(x[i]));
  }
  // Adds a class of each; lane i has the weight number `first` + i `step`.
  template <bool kSmooths, typename T>
  void add(const T* x, const T* weights, int64_t first, int64_t step, int count) {
    for (int i = 0; i < count; ++i) sum[i] += term_of(widen_lane(x[i]), largest[i]);
    if (!kSmooths) return;
    for (int i = 0; i < count; ++i) {
      const C of_class = weight_of(weights, first + i * step);
      weight[i] += of_class;
      gap[i] = widened(gap[i], of_class, largest[i], widen_lane(x[i]));
    }
  }
};

// The classes of up to kTile elements, the first of which has its first logit at `x`.
template <bool kSmooths, typename T>
void join_classes(const Problem& p, const T* x, const T* weight, int count, Lanes<Compute<T>, kTile>* all) {
  using C = Compute<T>;
  all->clear(count);
  Lanes<C, kTile> piece;
  for (int64_t first = 0; first < p.c; first += kImagePiece) {
    const int64_t end = at_most(first + kImagePiece, p.c);
    Lanes<C, kTile>& lanes = first == 0 ? *all : piece;
    lanes.clear(count);
    for (int64_t k = first; k < end; ++k) lanes.enlarge(x + k * p.d, count);
    for (int64_t k = first; k < end; ++k) lanes.template add<kSmooths>(x + k * p.d, weight, k, 0, count);
    if (first == 0) continue;
    for (int i = 0; i < count; ++i) all->put(i, joined<kSmooths>(all->at(i), piece.at(i)));
  }
}

template <bool kSmooths, typename T>
Status of_images(const Problem& p, const ForwardBuffers<T, true>& b, void* workspace) {
  using C = Compute<T>;
  const Items<C> items(p, false, workspace);
  parallel_for(items.count, grain_for(8 * int64_t{kChunk} * p.c), [&](int64_t number) {
    const int64_t first = number * kChunk, end = at_most(first + kChunk, p.elements);
    Chunk<C> chunk;
    Lanes<C, kTile> all;
    for_tiles(p, first, end, [&](const Run& run, int64_t begin) {
      const T* const input = b.input + run.image * p.c * p.d + run.place;
      join_classes<kSmooths>(p, input, b.weight, run.count, &all);
      // In place of the sums, which nobody reads again.
      for (int i = 0; i < run.count; ++i) all.sum[i] = log_sum_of(all.at(i));
      for (int i = 0; i < run.count; ++i) {
        const int64_t target = index_at(b.target, begin + i), place = begin - first + i;
        C weight = C(0), loss = C(0), log_sum_exp = C(0);
        if (counts(p, target)) {
          weight = weight_of(b.weight, target);
          loss = loss_of<kSmooths>(p, all.at(i), all.sum[i], widen(input[target * p.d + i]), weight);
          log_sum_exp = all.largest[i] + all.sum[i];
        }
        chunk.dropped += is_dropped(p, target);
        chunk.losses[place] = as_term(loss), chunk.weights[place] = as_term(weight);
        b.log_sum_exp[begin + i] = narrow<C>(log_sum_exp);
        if (!p.reduces()) b.output[begin + i] = narrow<T>(loss);
      }
    });
    chunk.finish(p, items, number, static_cast<int>(end - first));
  });
  return items.finish(p, b);
}

// A row's pieces that are joined at once.
template <typename C>
struct Pieces {
  Lanes<C, kRowPieces> lanes;
};

// The sums of strands, whose largest logits are one.
template <bool kSmooths, typename C>
Classes<C> of_strands(Lanes<C, kStrands>* strands, C largest) {
  Classes<C> all{largest, sum_in_pairs(strands->sum, kStrands), C(0), C(0)};
  if (kSmooths) {
    all.weight = sum_in_pairs(strands->weight, kStrands);
    all.gap = sum_in_pairs(strands->gap, kStrands);
  }
  return all;
}

template <typename C>
C largest_of(const C* values, int count) {
  C largest = lowest<C>();
  for (int i = 0; i < count; ++i) largest = larger_of(largest, values[i]);
  return largest;
}

template <bool kSmooths, typename T>
Classes<Compute<T>> of_piece(const T* x, const T* weight, int64_t first, int count) {
  Lanes<Compute<T>, kStrands> strands;
  strands.clear(kStrands);
  const int whole = count / kStrands * kStrands;
  for (int i = 0; i < whole; i += kStrands) strands.enlarge(x + i, kStrands);
  strands.enlarge(x + whole, count - whole);
  const Compute<T> largest = largest_of(strands.largest, kStrands);
  for (int i = 0; i < kStrands; ++i) strands.largest[i] = largest;
  for (int i = 0; i < whole; i += kStrands) strands.template add<kSmooths>(x + i, weight, first + i, 1, kStrands);
  strands.template add<kSmooths>(x + whole, weight, first + whole, 1, count - whole);
  return of_strands<kSmooths>(&strands, largest);
}

template <bool kSmooths, typename C>
Classes<C> of_pieces(const Pieces<C>& pieces, int count) {
  const C largest = largest_of(pieces.lanes.largest, count);
  Lanes<C, kStrands> strands;
  for (int i = 0; i < kStrands; ++i) {
    Classes<C> strand{largest, C(0), C(0), C(0)};
    for (int k = i; k < count; k += kStrands) add_piece<kSmooths>(pieces.lanes.at(k), largest, &strand);
    strands.put(i, strand);
  }
  return of_strands<kSmooths>(&strands, largest);
}

template <bool kSmooths, typename T>
Classes<Compute<T>> of_row(const Problem& p, const T* x, const T* weight, Pieces<Compute<T>>* pieces) {
  using C = Compute<T>;
  if (p.c <= kRowPiece) return of_piece<kSmooths>(x, weight, 0, p.c);
  Classes<C> all = Classes<C>::none();
  constexpr int64_t kAtOnce = int64_t{kRowPieces} * kRowPiece;
  for (int64_t first = 0; first < p.c; first += kAtOnce) {
    const int64_t end = at_most(first + kAtOnce, p.c);
    int count = 0;
    for (int64_t k = first; k < end; k += kRowPiece, ++count) {
      pieces->lanes.put(count, of_piece<kSmooths>(x + k, weight, k, static_cast<int>(at_most(kRowPiece, end - k))));
    }
    const Classes<C> found = of_pieces<kSmooths>(*pieces, count);
    all = first == 0 ? found : joined<kSmooths>(all, found);
  }
  return all;
}

// The rows' workspace behind the items: room for pieces, where a row has several.
template <typename C>
struct RowScratch {
  Items<C> items;
  TaskScratch<Pieces<C>> pieces;

  RowScratch(const Problem& p, void* workspace)
      : items(p, true, workspace), pieces(items.layout, p.c > kRowPiece ? workspace : nullptr) {}
  static size_t bytes(const Problem& p) {
    const RowScratch whole(p, nullptr);
    return p.c > kRowPiece ? whole.items.layout.bytes() : Items<C>(p, true, nullptr).layout.bytes();
  }
};

template <bool kSmooths, typename T>
Status of_rows(const Problem& p, const ForwardBuffers<T, true>& b, void* workspace) {
  using C = Compute<T>;
  const RowScratch<C> scratch(p, workspace);
  const Items<C>& items = scratch.items;
  parallel_for(p.elements, grain_for(8 * int64_t{p.c}), [&](int64_t row) {
    const int64_t target = index_at(b.target, row);
    const T* const x = b.input + row * p.c;
    C weight = C(0), loss = C(0), log_sum_exp = C(0);
    if (counts(p, target)) {
      const Classes<C> all = of_row<kSmooths>(p, x, b.weight, p.c > kRowPiece ? &scratch.pieces.mine() : nullptr);
      const C log_sum = log_sum_of(all);
      weight = weight_of(b.weight, target);
      loss = loss_of<kSmooths>(p, all, log_sum, widen(x[target]), weight);
      log_sum_exp = all.largest + log_sum;
    }
    items.losses[row] = as_term(loss), items.weights[row] = as_term(weight);
    items.dropped[row] = is_dropped(p, target);
    b.log_sum_exp[row] = narrow<C>(log_sum_exp);
    if (!p.reduces()) b.output[row] = narrow<T>(loss);
  });
  return items.finish(p, b);
}

// What the gradients of one element need beside its logits.
template <typename T, bool kByLogits>
Slopes<Compute<T>> slopes_of(const Problem& p, const BackwardBuffers<T, kByLogits>& b, int64_t element, int64_t target,
                             Compute<T> all_weights) {
  using C = Compute<T>;
  const C gradient = p.reduces() ? shared_gradient(p, widen(*b.grad_output), b.total_weight)
                                 : widen(b.grad_output[element]);
  return Slopes<C>(p, gradient, weight_of(b.weight, target), all_weights);
}

// Of log-probabilities: zeros, and in them each element's class.
template <typename T>
Status gradients_of_classes(const Problem& p, const BackwardBuffers<T, false>& b) {
  BARACUDA_RETURN_IF_FAILED(write_zeros(b.grad_input, p.logits));
  parallel_for(ceil_div(p.elements, kChunk), grain_for(4 * kChunk), [&](int64_t chunk) {
    const int64_t first = chunk * kChunk;
    for_tiles(p, first, at_most(first + kChunk, p.elements), [&](const Run& run, int64_t begin) {
      T* const out = b.grad_input + run.image * p.c * p.d + run.place;
      for (int i = 0; i < run.count; ++i) {
        const int64_t target = index_at(b.target, begin + i);
        if (!counts(p, target)) continue;
        out[target * p.d + i] = narrow<T>(slopes_of(p, b, begin + i, target, Compute<T>(0)).of_target);
      }
    });
  });
  return Status::kOk;
}

template <bool kSmooths, typename T>
Status gradients_of_rows(const Problem& p, const BackwardBuffers<T, true>& b) {
  using C = Compute<T>;
  const C all_weights = kSmooths ? all_weights_of(p, b.weight) : C(0);
  parallel_for(p.elements, grain_for(8 * int64_t{p.c}), [&](int64_t row) {
    const int64_t target = index_at(b.target, row);
    T* const out = b.grad_input + row * p.c;
    if (!counts(p, target)) {
      for (int64_t k = 0; k < p.c; ++k) out[k] = T{};
      return;
    }
    const Slopes<C> slopes = slopes_of(p, b, row, target, all_weights);
    const T* const x = b.input + row * p.c;
    const C log_sum_exp = b.log_sum_exp[row];
    C found[kTile];
    for (int64_t first = 0; first < p.c; first += kTile) {
      const int count = static_cast<int>(at_most(kTile, p.c - first));
      for (int i = 0; i < count; ++i) {
        const C weight = kSmooths ? weight_of(b.weight, first + i) : C(0);
        found[i] = slopes.template at<kSmooths>(widen_lane(x[first + i]), log_sum_exp, false, weight);
      }
      if (target >= first && target < first + count) {
        const C weight = kSmooths ? weight_of(b.weight, target) : C(0);
        found[target - first] = slopes.template at<kSmooths>(widen(x[target]), log_sum_exp, true, weight);
      }
      narrow_row<T>(found, out + first, count);
    }
  });
  return Status::kOk;
}

// Of one class of `count` elements; `targets` are -1 where an element does not count.
template <bool kSmooths, typename T>
void gradients_of_class(const T* x, const Compute<T>* log_sum_exp, const Slopes<Compute<T>>* slopes,
                        const int32_t* targets, int32_t number, Compute<T> weight, int count, T* out) {
  using C = Compute<T>;
  C found[kTile];
  for (int i = 0; i < count; ++i) {
    const C slope = slopes[i].template at<kSmooths>(widen_lane(x[i]), log_sum_exp[i], targets[i] == number, weight);
    found[i] = targets[i] >= 0 ? slope : C(0);
  }
  narrow_row<T>(found, out, count);
}

template <bool kSmooths, typename T>
Status gradients_of_images(const Problem& p, const BackwardBuffers<T, true>& b) {
  using C = Compute<T>;
  const C all_weights = kSmooths ? all_weights_of(p, b.weight) : C(0);
  const int64_t tiles = ceil_div(p.elements, kTile);
  parallel_for(tiles, grain_for(8 * int64_t{kTile} * p.c), [&](int64_t tile) {
    Slopes<C> slopes[kTile];
    int32_t targets[kTile];
    for_tiles(p, tile * kTile, at_most((tile + 1) * kTile, p.elements), [&](const Run& run, int64_t begin) {
      for (int i = 0; i < run.count; ++i) {
        const int64_t target = index_at(b.target, begin + i);
        targets[i] = counts(p, target) ? static_cast<int32_t>(target) : -1;
        slopes[i] = targets[i] < 0 ? Slopes<C>{} : slopes_of(p, b, begin + i, target, all_weights);
      }
      const int64_t corner = run.image * p.c * p.d + run.place;
      for (int32_t k = 0; k < p.c; ++k) {
        const int64_t at = corner + static_cast<int64_t>(k) * p.d;
        const C weight = kSmooths ? weight_of(b.weight, k) : C(0);
        gradients_of_class<kSmooths>(b.input + at, b.log_sum_exp + begin, slopes, targets, k, weight, run.count,
                                     b.grad_input + at);
      }
    });
  });
  return Status::kOk;
}

template <typename T>
struct ElementsPath {
  static const char* name() { return "elements"; }
  const Request<Problem, ForwardBuffers<T, false>>& call;
  size_t bytes() const { return Items<Compute<T>>(call.p, false, nullptr).layout.bytes(); }
  Status enqueue() const { return of_elements(call.p, call.b, call.workspace); }
};

template <typename T>
struct RowsPath {
  static const char* name() { return "rows"; }
  const Request<Problem, ForwardBuffers<T, true>>& call;
  bool can() const { return call.p.d == 1; }
  size_t bytes() const { return RowScratch<Compute<T>>::bytes(call.p); }
  Status enqueue() const {
    return call.p.smooths() ? of_rows<true>(call.p, call.b, call.workspace)
                            : of_rows<false>(call.p, call.b, call.workspace);
  }
};

template <typename T>
struct ImagesPath {
  static const char* name() { return "images"; }
  const Request<Problem, ForwardBuffers<T, true>>& call;
  size_t bytes() const { return Items<Compute<T>>(call.p, false, nullptr).layout.bytes(); }
  Status enqueue() const {
    return call.p.smooths() ? of_images<true>(call.p, call.b, call.workspace)
                            : of_images<false>(call.p, call.b, call.workspace);
  }
};

template <typename T>
struct ClassGradientsPath {
  static const char* name() { return "classes"; }
  const Request<Problem, BackwardBuffers<T, false>>& call;
  Status enqueue() const { return gradients_of_classes(call.p, call.b); }
};

template <typename T>
struct RowGradientsPath {
  static const char* name() { return "rows"; }
  const Request<Problem, BackwardBuffers<T, true>>& call;
  bool can() const { return call.p.d == 1; }
  Status enqueue() const {
    return call.p.smooths() ? gradients_of_rows<true>(call.p, call.b) : gradients_of_rows<false>(call.p, call.b);
  }
};

template <typename T>
struct ImageGradientsPath {
  static const char* name() { return "images"; }
  const Request<Problem, BackwardBuffers<T, true>>& call;
  Status enqueue() const {
    return call.p.smooths() ? gradients_of_images<true>(call.p, call.b) : gradients_of_images<false>(call.p, call.b);
  }
};

template <typename T, bool kByLogits>
using ForwardPaths = std::conditional_t<kByLogits, Paths<RowsPath<T>, ImagesPath<T>>, Paths<ElementsPath<T>>>;

template <typename T, bool kByLogits>
using BackwardPaths =
    std::conditional_t<kByLogits, Paths<RowGradientsPath<T>, ImageGradientsPath<T>>, Paths<ClassGradientsPath<T>>>;

template <typename T, bool kByLogits>
Status run(const Problem& p, const ForwardBuffers<T, kByLogits>& b, void* workspace) {
  return ForwardPaths<T, kByLogits>::enqueue(Request<Problem, ForwardBuffers<T, kByLogits>>{p, b, workspace});
}

template <typename T, bool kByLogits>
size_t bytes_of(const Problem& p, const ForwardBuffers<T, kByLogits>*) {
  const ForwardBuffers<T, kByLogits> none{};
  return ForwardPaths<T, kByLogits>::choose(Request<Problem, ForwardBuffers<T, kByLogits>>{p, none, nullptr},
                                            [](const auto& path) { return path.bytes(); });
}

template <typename T, bool kByLogits>
Status run(const Problem& p, const BackwardBuffers<T, kByLogits>& b, void* workspace) {
  return BackwardPaths<T, kByLogits>::enqueue(Request<Problem, BackwardBuffers<T, kByLogits>>{p, b, workspace});
}

template <typename T, bool kByLogits>
size_t bytes_of(const Problem&, const BackwardBuffers<T, kByLogits>*) {
  return 0;
}

}  // namespace

#define BARACUDA_PROVIDE_ALL(T)                                          \
  BARACUDA_NLL_LOSS_BUFFERS(BARACUDA_PROVIDE_LAUNCH, T)                  \
  BARACUDA_NLL_LOSS_BUFFERS(BARACUDA_PROVIDE_WORKSPACE_SIZE, T)
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_ALL)

}  // namespace baracuda::nll_loss
