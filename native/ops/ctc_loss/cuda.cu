// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification on CUDA. A block walks along a sequence, forwards or, for the gradient,
// backwards; the gradient's second kernel takes the time steps of all sequences at once, a warp each.
//
//   path          calls                    where a step finds the states before it
//   few states    up to 1024 states        in shared memory, a state a thread
//   many states   all                      where they are written
#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/ctc_loss/launch.h"
#include "ops/ctc_loss/math.h"

namespace baracuda::ctc_loss {
namespace {

constexpr int kMostThreads = 1024;
// Steps for which log-probabilities are on their way: memory takes as long as two or three steps.
constexpr int kAhead = 4;
constexpr int kRowWarps = 4;
// Joined targets up to so many sequences: each finds its own place. For more a kernel finds all places first.
constexpr int32_t kFewSequences = 1024;

// What a walk reads and writes beside a call's arrays: alphas and losses, or betas, sequences and links.
template <typename C>
struct Walk {
  const int64_t* before;  // of joined targets the columns before each sequence's; NULL: for few sequences
  C* states;              // of a sequence, a time step and a state
  C* neg_log_likelihood;
  Sequence* sequences;
  Link* links;
};

// Of the workspace.
struct Columns {
  WorkspaceLayout layout;
  int64_t* before = nullptr;

  Columns(const Problem& p, void* workspace) {
    if (p.joined && p.n > kFewSequences) {
      before = workspace_array<int64_t>(workspace, layout.reserve<int64_t>(p.n));
    }
  }
};

template <typename C>
struct GradientLayout : Columns {
  Walk<C> walk;

  GradientLayout(const Problem& p, void* workspace) : Columns(p, workspace), walk{} {
    walk.before = before;
    walk.states = workspace_array<C>(workspace, layout.reserve<C>(p.log_alpha));
    walk.sequences = workspace_array<Sequence>(workspace, layout.reserve<Sequence>(p.n));
    walk.links = workspace_array<Link>(workspace, layout.reserve<Link>(int64_t{p.n} * p.max_labels));
  }
};

// One block finds the columns before those of every sequence.
__global__ void __launch_bounds__(kMostThreads) find_columns(Problem p, Sequences s, int64_t* before) {
  __shared__ int64_t of_warps[kMostThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t of_parts = 0;
  for (int64_t first = 0; first < p.n; first += kMostThreads) {
    const int64_t number = first + threadIdx.x;
    const int64_t own = number < p.n ? columns_of(p, index_at(s.target_lengths, s.is_wide, number)) : 0;
    // Sums up to and with a thread's own, in its warp; then those of whole warps, of which every thread adds them all.
    int64_t sum = own;
    for (int lower = 1; lower < 32; lower *= 2) {
      const int64_t other = __shfl_up_sync(kFullWarp, sum, lower);
      if (lane >= lower) sum += other;
    }
    if (lane == 31) of_warps[warp] = sum;
    __syncthreads();
    int64_t of_lower = 0, of_all = 0;
    for (int i = 0; i < kMostThreads / 32; ++i) {
      if (i < warp) of_lower += of_warps[i];
      of_all += of_warps[i];
    }
    if (number < p.n) before[number] = of_parts + of_lower + sum - own;
    of_parts += of_all;
    __syncthreads();
  }
}

// A block's sequence, if its labels are good, too; the same in all threads.
__device__ __forceinline__ Sequence checked_sequence(const Problem& p, const Sequences& s, const int64_t* columns,
                                                     int32_t number) {
  int64_t before = 0;
  if (columns != nullptr) {
    before = columns[number];
  } else if (p.joined) {
    // Every warp adds all of them: lengths are few, and a barrier takes longer.
    for (int32_t i = threadIdx.x % 32; i < number; i += 32) {
      before += columns_of(p, index_at(s.target_lengths, s.is_wide, i));
    }
    for (int other = 16; other > 0; other /= 2) before += __shfl_xor_sync(kFullWarp, before, other);
  }
  Sequence sequence = sequence_of(p, s, number, before);
  bool is_bad = sequence.labels < 0;
  for (int32_t i = threadIdx.x; i < sequence.labels; i += blockDim.x) {
    is_bad |= !is_class(p, index_at(s.targets, s.is_wide, sequence.first + i));
  }
  if (__syncthreads_or(is_bad)) sequence.steps = 0, sequence.labels = -1;
  return sequence;
}

template <bool kBackwards>
__device__ __forceinline__ int32_t time_of(const Sequence& sequence, int32_t step) {
  return kBackwards ? sequence.steps - 1 - step : step;
}
template <bool kBackwards>
__device__ __forceinline__ int32_t state_of(const Sequence& sequence, int32_t j) {
  return kBackwards ? 2 * sequence.labels - j : j;
}

// What stands where a sequence has no time steps, before a walk.
template <typename C>
__device__ __forceinline__ void write_absent_steps(const Problem& p, const Sequence& sequence, C* states) {
  const int64_t end = int64_t{p.t} * p.num_states;
  for (int64_t i = int64_t{sequence.steps} * p.num_states + threadIdx.x; i < end; i += blockDim.x) {
    states[i] = minus_infinity<C>();
  }
}

// A gradient's links, and the sequence for its second kernel.
__device__ __forceinline__ void write_links(const Problem& p, const Sequences& s, const Sequence& sequence,
                                            int32_t number, Sequence* sequences, Link* links) {
  if (threadIdx.x == 0) sequences[number] = sequence;
  const Labels<false> labels(s, sequence);
  // Nobody asks for those of a sequence without alignments, which may have any number of labels.
  const int32_t linked = sequence.has_alignments() ? sequence.labels : 0;
  for (int32_t i = threadIdx.x; i < linked; i += blockDim.x) {
    const int32_t label = labels.at(i);
    int32_t next = sequence.labels;
    bool is_first = true;
#pragma unroll 4
    for (int32_t k = 0; k < sequence.labels; ++k) {
      const bool is_same = labels.at(k) == label;
      is_first &= !is_same || k >= i;
      next = is_same && k > i && k < next ? k : next;
    }
    links[int64_t{number} * p.max_labels + i] = Link::of(next < sequence.labels ? next : -1, is_first);
  }
}

template <bool kBackwards, typename T>
__global__ void __launch_bounds__(kMostThreads)
    walk_few_states(Problem p, const T* log_probs, Sequences s, Walk<Compute<T>> w) {
  using C = Compute<T>;
  // Two steps' states, each behind two that no state is.
  __shared__ C rows[2][kMostThreads + 2];
  const int32_t number = static_cast<int32_t>(blockIdx.x), j = static_cast<int32_t>(threadIdx.x);
  const Sequence sequence = checked_sequence(p, s, w.before, number);
  C* const states = w.states + int64_t{number} * p.t * p.num_states;
  if (kBackwards) {
    write_links(p, s, sequence, number, w.sequences, w.links);
  } else {
    write_absent_steps(p, sequence, states);
  }
  if (sequence.labels < 0) {
    if (!kBackwards && j == 0) w.neg_log_likelihood[number] = canonical_nan<C>();
    return;
  }
  const Labels<kBackwards> labels(s, sequence);
  const bool is_state = j < sequence.states();
  const bool may_skip = is_state && j % 2 != 0 && labels.may_skip(j / 2);
  const int64_t line = int64_t{p.n} * p.c;
  const T* const place =
      log_probs + int64_t{number} * p.c + (is_state && j % 2 != 0 ? labels.at(j / 2) : p.blank);
  // Where the step at hand is written, and how far it is to the next one.
  const int64_t stride = kBackwards ? -int64_t{p.num_states} : int64_t{p.num_states};
  C* out = states + (is_state ? state_of<kBackwards>(sequence, j) : j);
  if (kBackwards && sequence.steps > 0) out += int64_t{sequence.steps - 1} * p.num_states;
  // Backwards nobody reads the states that a sequence does not have.
  const bool writes = is_state || (!kBackwards && j < p.num_states);
  if (j < 2) rows[0][j] = rows[1][j] = minus_infinity<C>();
  C mine = is_state ? unstepped<C>(j) : minus_infinity<C>();
  rows[0][j + 2] = mine;
  T ahead[kAhead] = {};
  const auto fetch = [&](int32_t first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (is_state && first + i < sequence.steps) ahead[i] = place[time_of<kBackwards>(sequence, first + i) * line];
    }
  };
  fetch(0);
  __syncthreads();
  for (int32_t first = 0; first < sequence.steps; first += kAhead) {
    T now[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) now[i] = ahead[i];
    fetch(first + kAhead);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int32_t step = first + i;
      if (step >= sequence.steps) break;
      const C* const before = rows[i % 2];
      if (is_state) {
        mine = stepped(mine, before[j + 1], may_skip ? before[j] : minus_infinity<C>(), widen(now[i]));
        rows[(i + 1) % 2][j + 2] = mine;
      }
      if (writes) *out = narrow<C>(mine);
      out += stride;
      __syncthreads();
    }
  }
  if (!kBackwards && j == 0) {
    const C* const last = rows[sequence.steps % 2] + 2;
    const int32_t count = sequence.states();
    w.neg_log_likelihood[number] = loss_of(last[count - 1], last[count - 2]);
  }
}

template <bool kBackwards, typename T>
__global__ void __launch_bounds__(kMostThreads)
    walk_many_states(Problem p, const T* log_probs, Sequences s, Walk<Compute<T>> w) {
  using C = Compute<T>;
  const int32_t number = static_cast<int32_t>(blockIdx.x);
  const Sequence sequence = checked_sequence(p, s, w.before, number);
  C* const states = w.states + int64_t{number} * p.t * p.num_states;
  if (kBackwards) {
    write_links(p, s, sequence, number, w.sequences, w.links);
  } else {
    write_absent_steps(p, sequence, states);
  }
  if (sequence.labels < 0) {
    if (!kBackwards && threadIdx.x == 0) w.neg_log_likelihood[number] = canonical_nan<C>();
    return;
  }
  const Labels<kBackwards> labels(s, sequence);
  const int32_t count = sequence.states();
  // State j, which may be none, after some steps; written by any thread of the block before a barrier.
  const auto state_after = [&](int32_t steps, int32_t j) {
    if (j < 0) return minus_infinity<C>();
    if (steps == 0) return unstepped<C>(j);
    const int64_t line = int64_t{time_of<kBackwards>(sequence, steps - 1)} * p.num_states;
    return states[line + state_of<kBackwards>(sequence, j)];
  };
  for (int32_t step = 0; step < sequence.steps; ++step) {
    const int32_t time = time_of<kBackwards>(sequence, step);
    const T* const row = log_probs + (int64_t{time} * p.n + number) * p.c;
    C* const out = states + int64_t{time} * p.num_states;
    for (int64_t j = threadIdx.x; j < p.num_states; j += blockDim.x) {
      const int32_t state = static_cast<int32_t>(j), label = state / 2;
      if (state < count) {
        const bool is_label = state % 2 != 0;
        const C log_prob = widen(row[is_label ? labels.at(label) : p.blank]);
        const C skipped = is_label && labels.may_skip(label) ? state_after(step, state - 2) : minus_infinity<C>();
        out[state_of<kBackwards>(sequence, state)] =
            narrow<C>(stepped(state_after(step, state), state_after(step, state - 1), skipped, log_prob));
      } else if (!kBackwards) {
        out[state] = minus_infinity<C>();
      }
    }
    __syncthreads();
  }
  if (!kBackwards && threadIdx.x == 0) {
    w.neg_log_likelihood[number] =
        loss_of(state_after(sequence.steps, count - 1), state_after(sequence.steps, count - 2));
  }
}

// A time step of a sequence with shares: its warp's part of what the kernel below does. Of labels the shares take the
// betas' places.
template <typename T>
__device__ __forceinline__ void write_shares(const Problem& p, const Labels<false>& labels, const Link* links,
                                             const T* row, const Compute<T>* alpha, Compute<T>* beta,
                                             Compute<T> neg_log_likelihood, Compute<T> grad_output, T* grad) {
  using C = Compute<T>;
  const int32_t lane = threadIdx.x % 32, count = labels.sequence.labels;
  const C log_prob = widen(row[p.blank]);
  C of_blank = C(0);
  for (int64_t i = lane; i <= count; i += kStrands) {
    of_blank += share_of(alpha[2 * i], beta[2 * i], neg_log_likelihood, log_prob);
  }
#pragma unroll
  for (int other = 1; other < kStrands; other *= 2) of_blank += __shfl_xor_sync(kFullWarp, of_blank, other);
  for (int64_t i = lane; i < count; i += 32) {
    const C of_label = widen(row[labels.at(static_cast<int32_t>(i))]);
    beta[2 * i + 1] = share_of(alpha[2 * i + 1], beta[2 * i + 1], neg_log_likelihood, of_label);
  }
  for (int64_t k = lane; k < p.c; k += 32) grad[k] = gradient_of(row[k], C(0), grad_output);
  // Shares are read, and gradients of classes with shares written, after this.
  __syncwarp();
  bool has_blank = false;
  for (int64_t i = lane; i < count; i += 32) {
    const Link link = links[i];
    if (!link.is_first()) continue;
    const int32_t label = labels.at(static_cast<int32_t>(i));
    C share = beta[2 * i + 1];
    for (int32_t k = link.next(); k >= 0; k = links[k].next()) share += beta[2 * int64_t{k} + 1];
    if (label == p.blank) has_blank = true, share = of_blank + share;
    grad[label] = gradient_of(row[label], share, grad_output);
  }
  if (!__any_sync(kFullWarp, has_blank) && lane == 0) {
    grad[p.blank] = gradient_of(row[p.blank], of_blank, grad_output);
  }
}

template <typename T>
__global__ void __launch_bounds__(32 * kRowWarps) write_gradients(Problem p, BackwardBuffers<T> b,
                                                                  Walk<Compute<T>> w) {
  using C = Compute<T>;
  wait_for_kernel_before();
  const int64_t rows = int64_t{p.t} * p.n;
  for (int64_t line = grid_thread() / 32; line < rows; line += grid_threads() / 32) {
    const int32_t time = static_cast<int32_t>(line / p.n), number = static_cast<int32_t>(line % p.n);
    const Sequence sequence = w.sequences[number];
    const C neg_log_likelihood = b.neg_log_likelihood[number];
    T* const grad = b.grad_log_probs + line * p.c;
    const Row row = row_of(p, sequence, time, neg_log_likelihood);
    if (row != Row::kShares) {
      const T value = narrow<T>(row == Row::kZero ? C(0) : canonical_nan<C>());
      for (int64_t k = threadIdx.x % 32; k < p.c; k += 32) grad[k] = value;
      continue;
    }
    const int64_t states = (int64_t{number} * p.t + time) * p.num_states;
    write_shares(p, Labels<false>(b.sequences, sequence), w.links + int64_t{number} * p.max_labels,
                 b.log_probs + line * p.c, b.log_alpha + states, w.states + states, neg_log_likelihood,
                 b.grad_output[number], grad);
  }
}

// A walk of all sequences; kFew says that a block has a thread for each state.
template <bool kFew, bool kBackwards, typename T>
Status enqueue_walk(const char* name, const Problem& p, const T* log_probs, const Sequences& s,
                    const Walk<Compute<T>>& walk, int64_t* before, Stream stream) {
  if (before != nullptr) {
    BARACUDA_RETURN_IF_FAILED(launch_kernel(name, find_columns, 1, kMostThreads, 0, stream, p, s, before));
  }
  const int64_t threads = at_most(ceil_div(int64_t{p.num_states}, 32) * 32, kMostThreads);
  const auto kernel = kFew ? walk_few_states<kBackwards, T> : walk_many_states<kBackwards, T>;
  return launch_kernel(name, kernel, static_cast<uint32_t>(p.n), static_cast<uint32_t>(threads > 0 ? threads : 32), 0,
                       stream, p, log_probs, s, walk);
}

template <bool kFew>
struct StatesPath {
  static const char* name() { return kFew ? "few states" : "many states"; }
  static bool can(const Problem& p) { return !kFew || p.num_states <= kMostThreads; }
};

template <bool kFew, typename T>
struct ForwardPath : StatesPath<kFew> {
  const Request<Problem, ForwardBuffers<T>>& call;
  explicit ForwardPath(const Request<Problem, ForwardBuffers<T>>& request) : call(request) {}
  bool can() const { return StatesPath<kFew>::can(call.p); }
  Status enqueue() const {
    const Columns columns(call.p, call.workspace);
    const Walk<Compute<T>> walk{columns.before, call.b.log_alpha, call.b.neg_log_likelihood, nullptr, nullptr};
    return enqueue_walk<kFew, false>("ctc_loss kernel", call.p, call.b.log_probs, call.b.sequences, walk,
                                     columns.before, call.stream);
  }
};

template <bool kFew, typename T>
struct BackwardPath : StatesPath<kFew> {
  const Request<Problem, BackwardBuffers<T>>& call;
  explicit BackwardPath(const Request<Problem, BackwardBuffers<T>>& request) : call(request) {}
  bool can() const { return StatesPath<kFew>::can(call.p); }
  Status enqueue() const {
    const char* const kernels = "ctc_loss_backward kernel";
    const GradientLayout<Compute<T>> gradient(call.p, call.workspace);
    const Status status = enqueue_walk<kFew, true>(kernels, call.p, call.b.log_probs, call.b.sequences, gradient.walk,
                                                   gradient.before, call.stream);
    BARACUDA_RETURN_IF_FAILED(status);
    return launch_early(kernels, write_gradients<T>, blocks_for(int64_t{call.p.t} * call.p.n, kRowWarps),
                        32 * kRowWarps, 0, call.stream, call.p, call.b, gradient.walk);
  }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<ForwardPath<true, T>, ForwardPath<false, T>>::enqueue(
      Request<Problem, ForwardBuffers<T>>{p, b, workspace, stream});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<BackwardPath<true, T>, BackwardPath<false, T>>::enqueue(
      Request<Problem, BackwardBuffers<T>>{p, b, workspace, stream});
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  return Columns(p, nullptr).layout.bytes();
}
template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  return GradientLayout<Compute<T>>(p, nullptr).layout.bytes();
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::ctc_loss
