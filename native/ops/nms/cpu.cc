// SPDX-License-Identifier: Apache-2.0
// Non-maximum suppression on the CPU. Compiled once per instruction set.
//
//   path     calls           how
//   none     without boxes   writes the count
//   chunks   all             below
//
// Boxes are taken in chunks in the order of their scores. What a chunk keeps is found box after box on one thread; then
// all later chunks, each a task, strike out what these boxes suppress and close the gaps. So the work shrinks with
// what is left, each box meets only boxes that are kept, and the inner loop runs over consecutive boxes. Classes are
// taken by themselves, so that a box meets none of another: small ones each a task, large ones in chunks.
#include <type_traits>

#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/nms/launch.h"
#include "ops/nms/math.h"

namespace baracuda::nms {
namespace {

// Boxes of a chunk: their 6 KiB and those of the kept ones lie in L1, and the part that one thread does is small.
constexpr int64_t kChunk = 256;

// Boxes of a class that is a task of its own: all its pairs are some microseconds.
constexpr int64_t kSmallClass = 1024;

// ---- the order

// Three passes for 32-bit keys, six for those of 64; a pass's counters stay in L1.
constexpr int kDigitBits = 11;
constexpr int64_t kDigits = int64_t{1} << kDigitBits;
// Fewer are inserted one by one, in less time than the counters take to clear.
constexpr int64_t kInserted = 64;

template <typename C>
struct Scored {
  Key<C> key;
  int32_t index;
};

// Brings what stands in `from` into the order of its keys, equal ones as they come; answers which array has them.
template <typename C>
const Scored<C>* sorted(Scored<C>* from, Scored<C>* to, int32_t* counters, int64_t count) {
  if (count <= kInserted) {
    for (int64_t i = 1; i < count; ++i) {
      const Scored<C> each = from[i];
      int64_t place = i;
      for (; place > 0 && from[place - 1].key > each.key; --place) from[place] = from[place - 1];
      from[place] = each;
    }
    return from;
  }
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(C)); shift += kDigitBits) {
    for (int64_t digit = 0; digit < kDigits; ++digit) counters[digit] = 0;
    for (int64_t i = 0; i < count; ++i) ++counters[(from[i].key >> shift) & (kDigits - 1)];
    // Where all have one digit they are in order.
    if (counters[(from[0].key >> shift) & (kDigits - 1)] == count) continue;
    int32_t begin = 0;
    for (int64_t digit = 0; digit < kDigits; ++digit) {
      const int32_t of_digit = counters[digit];
      counters[digit] = begin;
      begin += of_digit;
    }
    for (int64_t i = 0; i < count; ++i) to[counters[(from[i].key >> shift) & (kDigits - 1)]++] = from[i];
    Scored<C>* const other = from;
    from = to;
    to = other;
  }
  return from;
}

// ---- boxes, an array for each field

template <typename C>
struct Boxes {
  // As wide as what it is decided from, so that the compiler's vectors hold as many of both.
  using Flag = std::conditional_t<std::is_same_v<C, float>, int32_t, int64_t>;

  C *x1, *y1, *x2, *y2, *area;
  int32_t* index;
  Flag* is_gone;

  Boxes(WorkspaceLayout& layout, void* workspace, int64_t count) {
    x1 = workspace_array<C>(workspace, layout.reserve<C>(count));
    y1 = workspace_array<C>(workspace, layout.reserve<C>(count));
    x2 = workspace_array<C>(workspace, layout.reserve<C>(count));
    y2 = workspace_array<C>(workspace, layout.reserve<C>(count));
    area = workspace_array<C>(workspace, layout.reserve<C>(count));
    index = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(count));
    is_gone = workspace_array<Flag>(workspace, layout.reserve<Flag>(count));
  }

  void move(int64_t to, const Boxes& boxes, int64_t from) const {
    x1[to] = boxes.x1[from];
    y1[to] = boxes.y1[from];
    x2[to] = boxes.x2[from];
    y2[to] = boxes.y2[from];
    area[to] = boxes.area[from];
    index[to] = boxes.index[from];
  }
};

// Strikes out those of boxes [begin, end) that box `by` of `kept` suppresses.
template <typename C>
void strike_out(const Boxes<C>& kept, int64_t by, const Boxes<C>& boxes, int64_t begin, int64_t end, C bound) {
  using Flag = typename Boxes<C>::Flag;
  const Box<C> box{kept.x1[by], kept.y1[by], kept.x2[by], kept.y2[by]};
  const C area = kept.area[by];
  const C* const x1 = boxes.x1;
  const C* const y1 = boxes.y1;
  const C* const x2 = boxes.x2;
  const C* const y2 = boxes.y2;
  const C* const areas = boxes.area;
  Flag* const __restrict__ is_gone = boxes.is_gone;
  for (int64_t j = begin; j < end; ++j) {
    const Box<C> other{x1[j], y1[j], x2[j], y2[j]};
    is_gone[j] |= overlap_of(box, area, other, areas[j]) > bound ? Flag{1} : Flag{0};
  }
}

// ---- the call

// A class id is a key of 64 bits, as a score in f64 has.
using Classed = Scored<double>;

template <typename C>
struct Scratch {
  WorkspaceLayout layout;
  Scored<C>*scored, *other_scored;   // where the problem has scores
  Classed *classed, *other_classed;  // where it has classes
  int32_t* counters;
  Boxes<C> boxes;  // [num_boxes]: class after class, what is left of a chunk in its front
  Boxes<C> kept;   // [kChunk]: what the chunk at hand keeps
  int32_t* left;   // by where a chunk begins
  int32_t* ends;   // of classes, where the problem has them

  Scratch(const Problem& p, void* workspace)
      : scored(workspace_array<Scored<C>>(workspace, layout.reserve<Scored<C>>(p.has_scores ? p.num_boxes : 0))),
        other_scored(workspace_array<Scored<C>>(workspace, layout.reserve<Scored<C>>(p.has_scores ? p.num_boxes : 0))),
        classed(workspace_array<Classed>(workspace, layout.reserve<Classed>(p.has_classes ? p.num_boxes : 0))),
        other_classed(workspace_array<Classed>(workspace, layout.reserve<Classed>(p.has_classes ? p.num_boxes : 0))),
        counters(workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.has_scores ? kDigits : 0))),
        boxes(layout, workspace, p.num_boxes),
        kept(layout, workspace, kChunk),
        left(workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.num_boxes))),
        ends(workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.has_classes ? p.num_boxes : 0))) {}
};

template <typename T, typename I>
class Suppression {
  using C = Compute<T>;

 public:
  Suppression(const Problem& p, const Buffers<T, I>& b, void* workspace)
      : p_(p), b_(b), scratch_(p, workspace), bound_(bound_of<C>(p.iou_threshold)) {}

  void run() {
    if (p_.has_scores) sort_scores();
    if (p_.has_classes) sort_classes();
    read_boxes();
    for (int64_t i = 0; i < p_.num_boxes; ++i) b_.keep_mask[i] = 0;
    if (p_.has_classes) {
      keep_of_classes();
    } else {
      keep_of(0, p_.num_boxes);
    }
    write_results();
  }

 private:
  void sort_scores() {
    for (int64_t i = 0; i < p_.num_boxes; ++i) {
      scratch_.scored[i] = {key_of(widen(b_.scores[i])), static_cast<int32_t>(i)};
    }
    order_ = sorted(scratch_.scored, scratch_.other_scored, scratch_.counters, p_.num_boxes);
  }

  // Brings boxes that are in the order of their scores into that of their classes. Which class comes first is nothing
  // that results show.
  void sort_classes() {
    for (int64_t rank = 0; rank < p_.num_boxes; ++rank) {
      const int32_t index = order_[rank].index;
      scratch_.classed[rank] = {static_cast<uint64_t>(static_cast<int64_t>(b_.class_ids[index])), index};
    }
    by_class_ = sorted(scratch_.classed, scratch_.other_classed, scratch_.counters, p_.num_boxes);
    for (int64_t i = 1; i <= p_.num_boxes; ++i) {
      if (i < p_.num_boxes && by_class_[i].key == by_class_[i - 1].key) continue;
      scratch_.ends[num_classes_++] = static_cast<int32_t>(i);
    }
  }

  void read_boxes() {
    const Boxes<C>& to = scratch_.boxes;
    for (int64_t place = 0; place < p_.num_boxes; ++place) {
      int32_t index = static_cast<int32_t>(place);
      if (p_.has_scores) index = by_class_ != nullptr ? by_class_[place].index : order_[place].index;
      const Box<C> box = read_box(b_.boxes, index);
      to.x1[place] = box.x1;
      to.y1[place] = box.y1;
      to.x2[place] = box.x2;
      to.y2[place] = box.y2;
      to.area[place] = area_of(box);
      to.index[place] = index;
      to.is_gone[place] = 0;
    }
  }

  void keep_of_classes() {
    const auto begin_of = [&](int64_t number) { return number > 0 ? scratch_.ends[number - 1] : 0; };
    const int64_t mean = p_.num_boxes / num_classes_;
    // A pair takes about a tenth of the time of an element that is moved.
    parallel_for(num_classes_, grain_for(mean + mean * mean / 16), [&](int64_t number) {
      const int64_t begin = begin_of(number), end = scratch_.ends[number];
      if (end - begin <= kSmallClass) keep_among(begin, end, nullptr);
    });
    for (int64_t number = 0; number < num_classes_; ++number) {
      const int64_t begin = begin_of(number), end = scratch_.ends[number];
      if (end - begin > kSmallClass) keep_of(begin, end);
    }
  }

  // Finds what boxes [first, last) keep, chunk after chunk; no other box meets them.
  void keep_of(int64_t first, int64_t last) {
    for (int64_t begin = first; begin < last; begin += kChunk) {
      scratch_.left[begin] = static_cast<int32_t>(at_most(last - begin, kChunk));
    }
    const int64_t chunks = ceil_div(last - first, kChunk);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t begin = first + chunk * kChunk;
      const int64_t kept = keep_among(begin, begin + scratch_.left[begin], &scratch_.kept);
      if (kept == 0) continue;
      // A pair takes about a tenth of the time of an element that is moved.
      parallel_for(chunks - chunk - 1, grain_for(kept * kChunk / 8),
                   [&](int64_t task) { strike_out_of(begin + (1 + task) * kChunk, kept); });
    }
  }

  // Finds what boxes [begin, end) keep, all earlier ones having struck out what they suppress; answers how many, and
  // moves them to `to` if there is one.
  int64_t keep_among(int64_t begin, int64_t end, const Boxes<C>* to) const {
    const Boxes<C>& boxes = scratch_.boxes;
    int64_t kept = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (boxes.is_gone[i] != 0) continue;
      if (to != nullptr) to->move(kept, boxes, i);
      ++kept;
      strike_out(boxes, i, boxes, i + 1, end, bound_);
      b_.keep_mask[boxes.index[i]] = 1;
    }
    return kept;
  }

  // Strikes out what the kept boxes suppress of the chunk that begins at `begin`.
  void strike_out_of(int64_t begin, int64_t kept) const {
    const Boxes<C>& boxes = scratch_.boxes;
    const int64_t end = begin + scratch_.left[begin];
    if (begin == end) return;
    for (int64_t by = 0; by < kept; ++by) strike_out(scratch_.kept, by, boxes, begin, end, bound_);
    int64_t to = begin;
    for (int64_t i = begin; i < end; ++i) {
      boxes.move(to, boxes, i);
      to += boxes.is_gone[i] == 0;
      boxes.is_gone[i] = 0;
    }
    scratch_.left[begin] = static_cast<int32_t>(to - begin);
  }

  void write_results() const {
    int64_t count = 0;
    for (int64_t rank = 0; rank < p_.num_boxes; ++rank) {
      const int32_t index = p_.has_scores ? order_[rank].index : static_cast<int32_t>(rank);
      if (b_.keep_mask[index] == 0) continue;
      if (p_.has_scores) b_.keep[count] = static_cast<I>(index);
      ++count;
    }
    if (p_.has_scores) {
      for (int64_t i = count; i < p_.num_boxes; ++i) b_.keep[i] = static_cast<I>(kNoBox);
    }
    *b_.count = static_cast<int32_t>(count);
  }

  const Problem& p_;
  const Buffers<T, I>& b_;
  const Scratch<C> scratch_;
  const C bound_;
  const Scored<C>* order_ = nullptr;   // of all boxes by their scores
  const Classed* by_class_ = nullptr;  // of all boxes by their classes, in each by their scores
  int64_t num_classes_ = 0;
};

template <typename T, typename I>
struct NonePath {
  static const char* name() { return "none"; }
  const Request<Problem, Buffers<T, I>>& call;
  bool can() const { return call.p.num_boxes == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    *call.b.count = 0;
    return Status::kOk;
  }
};

template <typename T, typename I>
struct ChunksPath {
  static const char* name() { return "chunks"; }
  const Request<Problem, Buffers<T, I>>& call;
  size_t bytes() const { return Scratch<Compute<T>>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const {
    Suppression<T, I>(call.p, call.b, call.workspace).run();
    return Status::kOk;
  }
};

template <typename T, typename I>
using AllPaths = Paths<NonePath<T, I>, ChunksPath<T, I>>;

template <typename T, typename I>
Status run(const Problem& p, const Buffers<T, I>& b, void* workspace) {
  return AllPaths<T, I>::enqueue(Request<Problem, Buffers<T, I>>{p, b, workspace});
}

template <typename T, typename I>
size_t bytes_of(const Problem& p, const Buffers<T, I>*) {
  const Buffers<T, I> none{};
  return AllPaths<T, I>::choose(Request<Problem, Buffers<T, I>>{p, none, nullptr},
                                [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_NMS_TYPES(BARACUDA_PROVIDE_NMS)

}  // namespace baracuda::nms
