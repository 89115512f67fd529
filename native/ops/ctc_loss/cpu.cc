// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification on the CPU: a task is a sequence. Compiled once per instruction set.
#include "core/checked.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/ctc_loss/launch.h"
#include "ops/ctc_loss/math.h"

namespace baracuda::ctc_loss {
namespace {

// States that are stepped together: of their terms vectors are made.
constexpr int kTile = 64;

// Of joined targets the columns before those of each sequence.
void find_columns(const Problem& p, const Sequences& s, int64_t* before) {
  int64_t columns = 0;
  for (int32_t i = 0; p.joined && i < p.n; ++i) {
    before[i] = columns;
    columns += columns_of(p, index_at(s.target_lengths, s.is_wide, i));
  }
}

// A sequence, if its labels are good, too.
Sequence checked_sequence(const Problem& p, const Sequences& s, const int64_t* before, int32_t number) {
  Sequence sequence = sequence_of(p, s, number, p.joined ? before[number] : 0);
  for (int32_t i = 0; i < sequence.labels; ++i) {
    if (!is_class(p, index_at(s.targets, s.is_wide, sequence.first + i))) {
      sequence.steps = 0, sequence.labels = -1;
    }
  }
  return sequence;
}

template <typename T>
T* row_at(const Problem& p, T* classes, int32_t time, int32_t number) {
  return classes + (int64_t{time} * p.n + number) * p.c;
}

// One step of all states; `row` are the classes' log-probabilities at that time, `before` is NULL at the first step.
template <bool kBackwards, typename T>
void step_states(const Problem& p, const Labels<kBackwards>& labels, const T* row, const Compute<T>* before,
                 Compute<T>* after) {
  using C = Compute<T>;
  const int32_t count = labels.sequence.states();
  const C of_blank = widen(row[p.blank]);
  C same[kTile], neighbour[kTile], skipped[kTile], log_prob[kTile];
  for (int32_t first = 0; first < count; first += kTile) {
    const int tile = static_cast<int>(at_most(count - first, kTile));
    for (int i = 0; i < tile; ++i) {
      const int32_t j = first + i, label = j / 2;
      same[i] = before != nullptr ? before[j] : unstepped<C>(j);
      neighbour[i] = j == 0 ? minus_infinity<C>() : (before != nullptr ? before[j - 1] : unstepped<C>(j - 1));
      skipped[i] = minus_infinity<C>(), log_prob[i] = of_blank;
      if (j % 2 != 0) {
        log_prob[i] = widen(row[labels.at(label)]);
        if (before != nullptr && labels.may_skip(label)) skipped[i] = before[j - 2];
      }
    }
    for (int i = 0; i < tile; ++i) {
      after[first + i] = narrow<C>(stepped(same[i], neighbour[i], skipped[i], log_prob[i]));
    }
  }
}

template <typename T>
void find_loss(const Problem& p, const ForwardBuffers<T>& b, const int64_t* before, int32_t number) {
  using C = Compute<T>;
  const Sequence sequence = checked_sequence(p, b.sequences, before, number);
  C* const log_alpha = b.log_alpha + int64_t{number} * p.t * p.num_states;
  const int64_t written = int64_t{sequence.steps} * p.num_states;
  for (int64_t i = written; i < int64_t{p.t} * p.num_states; ++i) log_alpha[i] = minus_infinity<C>();
  if (sequence.labels < 0) {
    b.neg_log_likelihood[number] = canonical_nan<C>();
    return;
  }
  const Labels<false> labels(b.sequences, sequence);
  const int32_t count = sequence.states();
  C blank = unstepped<C>(count - 1), label = count > 1 ? unstepped<C>(count - 2) : minus_infinity<C>();
  C* last = nullptr;
  for (int32_t time = 0; time < sequence.steps; ++time) {
    C* const after = log_alpha + int64_t{time} * p.num_states;
    step_states(p, labels, row_at(p, b.log_probs, time, number), last, after);
    for (int32_t j = count; j < p.num_states; ++j) after[j] = minus_infinity<C>();
    blank = after[count - 1];
    if (count > 1) label = after[count - 2];
    last = after;
  }
  b.neg_log_likelihood[number] = loss_of(blank, label);
}

// What a call takes of the workspace: of joined targets the columns before each sequence's.
struct Columns {
  WorkspaceLayout layout;
  int64_t* before;

  Columns(const Problem& p, void* workspace) {
    before = workspace_array<int64_t>(workspace, layout.reserve<int64_t>(p.joined ? p.n : 0));
  }
};

// A gradient takes more, for each sequence: betas at two time steps, shares of labels, and the labels' links.
template <typename C>
struct Rooms : Columns {
  const int32_t num_states, max_labels;
  C* states;
  C* shares;
  Link* links;

  Rooms(const Problem& p, void* workspace)
      : Columns(p, workspace), num_states(p.num_states), max_labels(p.max_labels) {
    states = workspace_array<C>(workspace, layout.reserve<C>(2 * int64_t{p.n} * p.num_states));
    shares = workspace_array<C>(workspace, layout.reserve<C>(int64_t{p.n} * p.max_labels));
    links = workspace_array<Link>(workspace, layout.reserve<Link>(int64_t{p.n} * p.max_labels));
  }
  C* states_of(int32_t number, int which) const { return states + (2 * int64_t{number} + which) * num_states; }
  C* shares_of(int32_t number) const { return shares + int64_t{number} * max_labels; }
  Link* links_of(int32_t number) const { return links + int64_t{number} * max_labels; }
};

void find_links(const Labels<false>& labels, Link* links) {
  const int32_t count = labels.sequence.labels;
  for (int32_t i = 0; i < count; ++i) {
    int32_t next = -1;
    bool is_first = true;
    for (int32_t k = 0; k < i && is_first; ++k) is_first = labels.at(k) != labels.at(i);
    for (int32_t k = i + 1; k < count && next < 0; ++k) next = labels.at(k) == labels.at(i) ? k : -1;
    links[i] = Link::of(next, is_first);
  }
}

// Neighbouring strands are added until one is left.
template <typename C>
C sum_of_strands(C* strands) {
  for (int count = kStrands; count > 1; count /= 2) {
    for (int i = 0; i < count / 2; ++i) strands[i] = strands[2 * i] + strands[2 * i + 1];
  }
  return strands[0];
}

// One time step's gradient; `beta` holds states along the walk from the end, `shares` is for those of the labels.
template <typename T>
void write_shares(const Problem& p, const Labels<false>& labels, const Link* links, const T* row,
                  const Compute<T>* alpha, const Compute<T>* beta, Compute<T>* shares, Compute<T> neg_log_likelihood,
                  Compute<T> grad_output, T* grad) {
  using C = Compute<T>;
  const int32_t count = labels.sequence.labels, last = 2 * count;
  C strands[kStrands] = {};
  for (int32_t i = 0; i <= count; ++i) {
    strands[i % kStrands] += share_of(alpha[2 * i], beta[last - 2 * i], neg_log_likelihood, widen(row[p.blank]));
  }
  C of_blank = sum_of_strands(strands);
  for (int32_t i = 0; i < count; ++i) {
    const C beta_of_label = beta[last - 1 - 2 * i];
    shares[i] = share_of(alpha[2 * i + 1], beta_of_label, neg_log_likelihood, widen(row[labels.at(i)]));
  }
  for (int32_t k = 0; k < p.c; ++k) grad[k] = gradient_of(row[k], C(0), grad_output);
  for (int32_t i = 0; i < count; ++i) {
    if (!links[i].is_first()) continue;
    C share = shares[i];
    for (int32_t k = links[i].next(); k >= 0; k = links[k].next()) share += shares[k];
    const int32_t label = labels.at(i);
    if (label == p.blank) {
      of_blank += share;
    } else {
      grad[label] = gradient_of(row[label], share, grad_output);
    }
  }
  grad[p.blank] = gradient_of(row[p.blank], of_blank, grad_output);
}

template <typename T>
void find_gradient(const Problem& p, const BackwardBuffers<T>& b, const Rooms<Compute<T>>& rooms, int32_t number) {
  using C = Compute<T>;
  const Sequence sequence = checked_sequence(p, b.sequences, rooms.before, number);
  const C neg_log_likelihood = b.neg_log_likelihood[number], grad_output = b.grad_output[number];
  for (int32_t time = 0; time < p.t; ++time) {
    const Row row = row_of(p, sequence, time, neg_log_likelihood);
    if (row == Row::kShares) continue;
    T* const grad = row_at(p, b.grad_log_probs, time, number);
    const T value = narrow<T>(row == Row::kZero ? C(0) : canonical_nan<C>());
    for (int32_t k = 0; k < p.c; ++k) grad[k] = value;
  }
  if (row_of(p, sequence, 0, neg_log_likelihood) != Row::kShares) return;
  const Labels<false> labels(b.sequences, sequence);
  const Labels<true> reversed(b.sequences, sequence);
  find_links(labels, rooms.links_of(number));
  C *before = nullptr, *after = rooms.states_of(number, 0), *other = rooms.states_of(number, 1);
  for (int32_t time = sequence.steps; time-- > 0;) {
    const T* const row = row_at(p, b.log_probs, time, number);
    step_states(p, reversed, row, before, after);
    before = after, after = other, other = before;
    const C* const alpha = b.log_alpha + (int64_t{number} * p.t + time) * p.num_states;
    write_shares(p, labels, rooms.links_of(number), row, alpha, before, rooms.shares_of(number),
                 neg_log_likelihood, grad_output, row_at(p, b.grad_log_probs, time, number));
  }
}

// About what a sequence's states and classes are of work.
int64_t grain_of(const Problem& p) { return grain_for(int64_t{p.t} * (8 * int64_t{p.num_states} + p.c)); }

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  const Columns columns(p, workspace);
  find_columns(p, b.sequences, columns.before);
  parallel_for(p.n, grain_of(p), [&](int64_t i) { find_loss(p, b, columns.before, static_cast<int32_t>(i)); });
  record_path("sequences");
  return Status::kOk;
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  const Rooms<Compute<T>> rooms(p, workspace);
  find_columns(p, b.sequences, rooms.before);
  parallel_for(p.n, grain_of(p), [&](int64_t i) { find_gradient(p, b, rooms, static_cast<int32_t>(i)); });
  record_path("sequences");
  return Status::kOk;
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  return Columns(p, nullptr).layout.bytes();
}
template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  return Rooms<Compute<T>>(p, nullptr).layout.bytes();
}

}  // namespace

#define BARACUDA_CTC_LOSS(T) BARACUDA_PROVIDE_BOTH_DIRECTIONS(T)
BARACUDA_FLOAT_TYPES(BARACUDA_CTC_LOSS)

}  // namespace baracuda::ctc_loss
