// SPDX-License-Identifier: Apache-2.0
// The C functions of the segment operators, compiled into both libraries. An operator is a line of the tables below.
#include <type_traits>

#include "abi/segment.h"
#include "core/options.h"
#include "ops/segment/launch.h"
#include "ops/segment/math.h"

namespace baracuda::segment {
namespace {

template <class Block>
constexpr bool is_gradient() {
  return Block::kGradInput == Role::kOutput;
}

// Which tensors have a row for each row rather than for each segment.
template <class Tag>
struct Rows {
  static constexpr bool kInput = true, kOutput = false, kGradOutput = false;
};
template <typename T>
struct Rows<rule::Gather<T>> {
  static constexpr bool kInput = false, kOutput = true, kGradOutput = false;
};
template <typename T>
struct Rows<rule::Softmax<T>> {
  static constexpr bool kInput = true, kOutput = true, kGradOutput = false;
};
template <typename T>
struct Rows<rule::SoftmaxGradient<T>> {
  static constexpr bool kInput = true, kOutput = true, kGradOutput = true;
};

// The tensors that a rule calls x, y, s and t.
template <class Tag>
struct Roles {
  template <class Block>
  static void fill(const Block& a, const void** rows, const void** segments) {
    if constexpr (Block::kInput == Role::kInput) rows[0] = a.input;
    if constexpr (Block::kGradOutput == Role::kInput) segments[0] = a.grad_output;
    // Products are formed anew from the rows: the one given may have been rounded to 0 or infinity.
    if constexpr (Block::kOutput != Role::kNone) segments[1] = a.output;
  }
};
template <typename T>
struct Roles<rule::Gather<T>> {
  template <class Block>
  static void fill(const Block& a, const void**, const void** segments) {
    if constexpr (is_gradient<Block>()) {
      segments[0] = a.grad_output;
    } else {
      segments[0] = a.input;
    }
  }
};
template <typename T>
struct Roles<rule::SoftmaxGradient<T>> {
  template <class Block>
  static void fill(const Block& a, const void** rows, const void**) {
    rows[0] = a.output, rows[1] = a.grad_output;
  }
};

template <typename I>
Status check_arg(const Problem& p) {
  int64_t numel = 0;
  return check_count("arg", CheckedCount(sizeof(I)).times(p.num_segments).times(p.d), &numel);
}

template <class Tag, typename I, Form kForm, class Block>
struct Op {
  using Arguments = Block;
  using Problem = segment::Problem;
  using Buffers = segment::Buffers<Tag>;
  using T = typename Tag::Element;

  static Status make_problem(const Block& a, Problem* problem) {
    constexpr bool kIsGradient = is_gradient<Block>();
    const char* rows = kIsGradient ? "grad_input" : Rows<Tag>::kInput ? "input" : "output";
    // Softmax and its gradient have no tensor with a row for each segment.
    constexpr bool kRowsAlone = Rows<Tag>::kInput && Rows<Tag>::kOutput;
    const char* segments = kRowsAlone ? nullptr : kIsGradient ? "grad_output" : Rows<Tag>::kInput ? "output" : "input";
    if constexpr (kForm == Form::kOffsets) {
      BARACUDA_RETURN_IF_FAILED(segment::make_problem("num_rows", a.num_rows, a.embedding_dim, a.num_segments, kForm,
                                                      sizeof(T), rows, segments, problem));
    } else {
      BARACUDA_RETURN_IF_FAILED(segment::make_problem("num_inputs", a.num_inputs, a.embedding_dim, a.num_segments,
                                                      kForm, sizeof(T), rows, segments, problem));
    }
    return Block::kArg == Role::kNone ? Status::kOk : check_arg<I>(*problem);
  }

  // The inputs, then the outputs, each in call order.
  static Operands operands(const Problem& p, const Block& a) {
    Operands found{};
    const auto put = [&found](const char* name, const void* pointer, int64_t numel, size_t bytes, bool is_output) {
      found.items[found.count++] = {name, pointer, numel, bytes, is_output};
    };
    const auto numel = [&p](bool rows) { return rows ? p.row_numel : p.segment_numel; };
    if constexpr (Block::kGradOutput == Role::kInput) {
      put("grad_output", a.grad_output, numel(Rows<Tag>::kGradOutput), sizeof(T), false);
    }
    if constexpr (Block::kInput == Role::kInput) put("input", a.input, numel(Rows<Tag>::kInput), sizeof(T), false);
    if constexpr (Block::kOutput == Role::kInput) put("output", a.output, numel(Rows<Tag>::kOutput), sizeof(T), false);
    if constexpr (Block::kArg == Role::kInput) put("arg", a.arg, p.segment_numel, sizeof(I), false);
    put(kForm == Form::kOffsets ? "offsets" : "segment_ids", index(a), p.index_numel(), sizeof(I), false);
    if constexpr (Block::kOutput == Role::kOutput) put("output", a.output, numel(Rows<Tag>::kOutput), sizeof(T), true);
    if constexpr (Block::kArg == Role::kOutput) put("arg", a.arg, p.segment_numel, sizeof(I), true);
    if constexpr (Block::kGradInput == Role::kOutput) put("grad_input", a.grad_input, p.row_numel, sizeof(T), true);
    return found;
  }

  static size_t workspace_size(const Problem& p) { return segment::workspace_size<Buffers>(p); }

  // The means of the frozen ABI are called with a count for each segment, and always with some workspace.
  static size_t least_workspace(const Problem& p) {
    constexpr bool kMean = std::is_same_v<Tag, rule::Mean<T>> || std::is_same_v<Tag, rule::MeanGradient<T>>;
    return kMean && kForm != Form::kOffsets && p.num_segments > 0 ? sizeof(int32_t) * p.num_segments
                                                                  : workspace_size(p);
  }

  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    const void* rows[2] = {};
    const void* segments[2] = {};
    Roles<Tag>::fill(a, rows, segments);
    Buffers buffers{};
    for (int i = 0; i < 2; ++i) {
      buffers.rows[i] = static_cast<const T*>(rows[i]), buffers.segments[i] = static_cast<const T*>(segments[i]);
    }
    buffers.index = index(a), buffers.wide_index = sizeof(I) == 8;
    if constexpr (Rule<Tag>::kKind == Kind::kReduce) buffers.of_no_rows = Rule<Tag>::of_no_rows();
    set_results(a, buffers);
    return segment::launch(p, buffers, workspace, stream);
  }

 private:
  static const void* index(const Block& a) {
    if constexpr (kForm == Form::kOffsets) {
      return a.offsets;
    } else {
      return a.segment_ids;
    }
  }
  static void set_results(const Block& a, Buffers& buffers) {
    if constexpr (Block::kArg == Role::kOutput) {
      buffers.result_arg = a.arg;
    } else if constexpr (Block::kArg == Role::kInput) {
      buffers.arg = a.arg;
    }
    if constexpr (is_gradient<Block>()) {
      buffers.result = static_cast<T*>(a.grad_input);
    } else {
      buffers.result = static_cast<T*>(a.output);
    }
  }
};

// The reductions of segment_ex, by the numbers that its options have.
enum class Reduction : int32_t { kSum, kMean, kMax, kMin, kProd, kLogSumExp, kMaxWithArg, kMinWithArg };
constexpr int32_t kReductions = 8;

constexpr bool has_arg(Reduction reduction) { return reduction >= Reduction::kMaxWithArg; }
// Means and logarithms are not for integers.
template <typename T>
constexpr bool exists(Reduction reduction) {
  return !std::is_integral_v<T> || (reduction != Reduction::kMean && reduction != Reduction::kLogSumExp);
}

// Calls `body` with the name of the rule that a reduction which exists is.
template <typename T, class Body>
auto with_rule(Reduction reduction, Body body) {
  if constexpr (!std::is_integral_v<T>) {
    if (reduction == Reduction::kMean) return body(rule::Mean<T>{});
    if (reduction == Reduction::kLogSumExp) return body(rule::LogSumExp<T>{});
  }
  switch (reduction) {
    case Reduction::kMax:
      return body(rule::Max<T>{});
    case Reduction::kMin:
      return body(rule::Min<T>{});
    case Reduction::kProd:
      return body(rule::Prod<T>{});
    case Reduction::kMaxWithArg:
      return body(rule::MaxWithArg<T>{});
    case Reduction::kMinWithArg:
      return body(rule::MinWithArg<T>{});
    default:
      return body(rule::Sum<T>{});
  }
}

// Every reduction in every form, with a value for segments without rows.
template <typename T, typename I>
struct Ex {
  using Arguments = SegmentExArguments;
  struct Problem {
    segment::Problem of_rule;
    Reduction reduction;
    T of_no_rows;
  };

  static Status make_problem(const Arguments& a, Problem* problem) {
    baracuda_kernels_segment_options options;
    BARACUDA_RETURN_IF_FAILED(check_options_pointer(a.options));
    BARACUDA_RETURN_IF_FAILED(read_options(a.options, &options));
    BARACUDA_RETURN_IF_FAILED(check_range("options->reduce", options.reduce, 0, kReductions - 1));
    BARACUDA_RETURN_IF_FAILED(check_range("options->form", options.form, 0, 2));
    Problem p{};
    p.reduction = static_cast<Reduction>(options.reduce);
    if (!exists<T>(p.reduction)) {
      return fail(Status::kInvalidProblem, "options->reduce is %d; wanted a reduction of integers", options.reduce);
    }
    BARACUDA_RETURN_IF_FAILED(segment::make_problem("num_rows", a.num_rows, a.embedding_dim, a.num_segments,
                                                    static_cast<Form>(options.form), sizeof(T), "input", "output",
                                                    &p.of_rule));
    if (has_arg(p.reduction)) BARACUDA_RETURN_IF_FAILED(check_arg<I>(p.of_rule));
    p.of_no_rows = with_rule<T>(p.reduction, [](auto name) { return Rule<decltype(name)>::of_no_rows(); });
    if (options.empty_value != nullptr) memcpy(&p.of_no_rows, options.empty_value, sizeof(T));
    *problem = p;
    return Status::kOk;
  }

  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.of_rule.row_numel, sizeof(T), false},
             {"index", a.index, p.of_rule.index_numel(), sizeof(I), false},
             {"output", a.output, p.of_rule.segment_numel, sizeof(T), true},
             {"arg", a.arg, has_arg(p.reduction) ? p.of_rule.segment_numel : 0, sizeof(I), true}},
            4};
  }

  static size_t workspace_size(const Problem& p) {
    return with_rule<T>(p.reduction, [&p](auto name) {
      return segment::workspace_size<Buffers<decltype(name)>>(p.of_rule);
    });
  }

  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return with_rule<T>(p.reduction, [&](auto name) {
      Buffers<decltype(name)> buffers{};
      buffers.rows[0] = static_cast<const T*>(a.input);
      buffers.index = a.index, buffers.wide_index = sizeof(I) == 8;
      buffers.result = static_cast<T*>(a.output), buffers.result_arg = has_arg(p.reduction) ? a.arg : nullptr;
      buffers.of_no_rows = p.of_no_rows;
      return segment::launch(p.of_rule, buffers, workspace, stream);
    });
  }
};
}  // namespace
}  // namespace baracuda::segment

// The operators: X(name, block, rule), in the three forms of an index.
#define BARACUDA_SEGMENT_OPERATORS(X, FORM, Form)                          \
  X(FORM##_SUM, Form##Sum, Sum)                                            \
  X(FORM##_MEAN, Form##Mean, Mean)                                         \
  X(FORM##_MAX, Form##Max, Max)                                            \
  X(FORM##_MIN, Form##Min, Min)                                            \
  X(FORM##_PROD, Form##Prod, Prod)                                         \
  X(FORM##_LOGSUMEXP, Form##Logsumexp, LogSumExp)                          \
  X(FORM##_SOFTMAX, Form##Softmax, Softmax)                                \
  X(FORM##_MAX_WITH_ARG, Form##MaxWithArg, MaxWithArg)                     \
  X(FORM##_MIN_WITH_ARG, Form##MinWithArg, MinWithArg)                     \
  X(FORM##_SUM_BACKWARD, Form##SumBackward, Gather)                        \
  X(FORM##_MEAN_BACKWARD, Form##MeanBackward, MeanGradient)                \
  X(FORM##_MAX_BACKWARD, Form##MaxBackward, MaxGradient)                   \
  X(FORM##_MIN_BACKWARD, Form##MinBackward, MinGradient)                   \
  X(FORM##_MAX_EVEN_BACKWARD, Form##MaxEvenBackward, MaxEvenGradient)      \
  X(FORM##_MIN_EVEN_BACKWARD, Form##MinEvenBackward, MinEvenGradient)      \
  X(FORM##_MAX_WITH_ARG_BACKWARD, Form##MaxWithArgBackward, ArgGradient)   \
  X(FORM##_MIN_WITH_ARG_BACKWARD, Form##MinWithArgBackward, ArgGradient)   \
  X(FORM##_PROD_BACKWARD, Form##ProdBackward, ProdGradient)                \
  X(FORM##_LOGSUMEXP_BACKWARD, Form##LogsumexpBackward, LogSumExpGradient) \
  X(FORM##_SOFTMAX_BACKWARD, Form##SoftmaxBackward, SoftmaxGradient)

#define BARACUDA_NAME(BLOCK, RULE, FORM) \
  template <typename T, typename I>      \
  using BLOCK = Op<rule::RULE<T>, I, Form::FORM, BLOCK##Arguments>;
#define BARACUDA_NAME_UNSORTED(NAME, BLOCK, RULE) BARACUDA_NAME(BLOCK, RULE, kUnsorted)
#define BARACUDA_NAME_SORTED(NAME, BLOCK, RULE) BARACUDA_NAME(BLOCK, RULE, kSorted)
#define BARACUDA_NAME_OFFSETS(NAME, BLOCK, RULE) BARACUDA_NAME(BLOCK, RULE, kOffsets)

namespace baracuda::segment {
namespace {
BARACUDA_SEGMENT_OPERATORS(BARACUDA_NAME_UNSORTED, UNSORTED_SEGMENT, UnsortedSegment)
BARACUDA_SEGMENT_OPERATORS(BARACUDA_NAME_SORTED, SEGMENT, Segment)
BARACUDA_SEGMENT_OPERATORS(BARACUDA_NAME_OFFSETS, SEGMENT_CSR, SegmentCsr)
BARACUDA_NAME_UNSORTED(SEGMENT_GATHER, SegmentGather, Gather)
}  // namespace
}  // namespace baracuda::segment

extern "C" {
using namespace baracuda;

#define BARACUDA_STAMP(NAME, BLOCK, RULE) BARACUDA_STAMP_EVERY_##NAME(segment::BLOCK)
BARACUDA_SEGMENT_OPERATORS(BARACUDA_STAMP, UNSORTED_SEGMENT, UnsortedSegment)
BARACUDA_SEGMENT_OPERATORS(BARACUDA_STAMP, SEGMENT, Segment)
BARACUDA_SEGMENT_OPERATORS(BARACUDA_STAMP, SEGMENT_CSR, SegmentCsr)
BARACUDA_STAMP(SEGMENT_GATHER, SegmentGather, Gather)
// Its rule is an option.
BARACUDA_STAMP_EVERY_SEGMENT_EX(segment::Ex)
}
