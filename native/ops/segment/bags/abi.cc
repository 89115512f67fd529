// SPDX-License-Identifier: Apache-2.0
// The C functions of embedding bags, compiled into both libraries.
#include "abi/segment.h"
#include "ops/segment/bags/launch.h"

namespace baracuda::embedding_bag {
namespace {

template <class Block>
Scalars scalars_of(const Block& a) {
  return {a.num_indices, a.num_bags, a.num_embeddings, a.embedding_dim, a.padding_idx, 0, 0, 1, 0};
}

// What the operators share: a block of arguments, and what its tensors are called.
template <typename T, typename I, class Block, class TheBuffers>
struct Operator {
  using Arguments = Block;
  using Problem = embedding_bag::Problem;
  using Buffers = TheBuffers;
  static constexpr bool kWide = sizeof(I) == 8;
  static constexpr bool kIsGradient = Block::kGradOutput == Role::kInput;

  static Status make_problem(const Block& a, Problem* problem) {
    Scalars scalars = scalars_of(a);
    if constexpr (Block::kBagSizes != Role::kNone && Block::kArg == Role::kNone) {
      scalars.mean = a.mean, scalars.has_weights = a.has_per_sample_weights;
      if constexpr (kIsGradient) {
        scalars.by_frequency = a.scale_grad_by_freq;
      } else {
        scalars.wants_bags = a.wants_bags;
      }
    }
    return embedding_bag::make_problem(scalars, sizeof(T), sizeof(I), kIsGradient ? "grad_output" : "output",
                                       Block::kWeight == Role::kInput ? "weight" : "grad_weight",
                                       Block::kArg != Role::kNone, problem);
  }
  static size_t workspace_size(const Problem& p) { return embedding_bag::workspace_size<Buffers>(p); }

 protected:
  static Operand index(const char* name, const void* pointer, int64_t numel, bool is_output = false) {
    return {name, pointer, numel, sizeof(I), is_output};
  }
  static Operand values(const char* name, const void* pointer, int64_t numel, bool is_output = false) {
    return {name, pointer, numel, sizeof(T), is_output};
  }
  static int64_t weights(const Problem& p) { return p.has_weights ? p.n : 0; }
};

template <typename T, typename I>
struct Sum : Operator<T, I, EmbeddingBagArguments, SumBuffers<T>> {
  using Block = EmbeddingBagArguments;
  static Operands operands(const Problem& p, const Block& a) {
    return {{Sum::values("weight", a.weight, p.table_numel), Sum::index("indices", a.indices, p.n),
             Sum::index("offsets", a.offsets, p.num_bags),
             Sum::values("per_sample_weights", a.per_sample_weights, Sum::weights(p)),
             Sum::values("output", a.output, p.bag_numel, true),
             Sum::index("bag_ids", a.bag_ids, p.wants_bags ? p.n : 0, true),
             Sum::index("bag_sizes", a.bag_sizes, p.wants_bags ? p.num_bags : 0, true)},
            7};
  }
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    auto b = buffers_of<SumBuffers<T>>(a.weight, a.indices, a.offsets, p.has_weights ? a.per_sample_weights : nullptr,
                                       a.output, p.wants_bags ? a.bag_ids : nullptr,
                                       p.wants_bags ? a.bag_sizes : nullptr);
    b.wide = Sum::kWide;
    return embedding_bag::launch(p, b, workspace, stream);
  }
};

template <typename T, typename I>
struct Max : Operator<T, I, EmbeddingBagMaxArguments, MaxBuffers<T>> {
  using Block = EmbeddingBagMaxArguments;
  static Operands operands(const Problem& p, const Block& a) {
    return {{Max::values("weight", a.weight, p.table_numel), Max::index("indices", a.indices, p.n),
             Max::index("offsets", a.offsets, p.num_bags), Max::values("output", a.output, p.bag_numel, true),
             Max::index("bag_ids", a.bag_ids, p.n, true), Max::index("bag_sizes", a.bag_sizes, p.num_bags, true),
             Max::index("arg", a.arg, p.bag_numel, true)},
            7};
  }
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    auto b = buffers_of<MaxBuffers<T>>(a.weight, a.indices, a.offsets, a.output, a.bag_ids, a.bag_sizes, a.arg);
    b.wide = Max::kWide;
    return embedding_bag::launch(p, b, workspace, stream);
  }
};

template <typename T, typename I>
struct SumGradient : Operator<T, I, EmbeddingBagBackwardArguments, SumGradientBuffers<T>> {
  using Block = EmbeddingBagBackwardArguments;
  using Op = SumGradient;
  static Operands operands(const Problem& p, const Block& a) {
    return {{Op::values("grad_output", a.grad_output, p.bag_numel), Op::index("indices", a.indices, p.n),
             Op::index("bag_ids", a.bag_ids, p.n), Op::index("bag_sizes", a.bag_sizes, p.mean ? p.num_bags : 0),
             Op::values("per_sample_weights", a.per_sample_weights, Op::weights(p)),
             Op::values("grad_weight", a.grad_weight, p.table_numel, true)},
            6};
  }
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    auto b = buffers_of<SumGradientBuffers<T>>(a.grad_output, a.indices, a.bag_ids, p.mean ? a.bag_sizes : nullptr,
                                               p.has_weights ? a.per_sample_weights : nullptr, a.grad_weight);
    b.wide = Op::kWide;
    return embedding_bag::launch(p, b, workspace, stream);
  }
};

template <typename T, typename I>
struct MaxGradient : Operator<T, I, EmbeddingBagMaxBackwardArguments, MaxGradientBuffers<T>> {
  using Block = EmbeddingBagMaxBackwardArguments;
  using Op = MaxGradient;
  static Operands operands(const Problem& p, const Block& a) {
    return {{Op::values("grad_output", a.grad_output, p.bag_numel), Op::index("indices", a.indices, p.n),
             Op::index("bag_ids", a.bag_ids, p.n), Op::index("arg", a.arg, p.bag_numel),
             Op::values("grad_weight", a.grad_weight, p.table_numel, true)},
            5};
  }
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    auto b = buffers_of<MaxGradientBuffers<T>>(a.grad_output, a.indices, a.bag_ids, a.arg, a.grad_weight);
    b.wide = Op::kWide;
    return embedding_bag::launch(p, b, workspace, stream);
  }
};

template <typename T, typename I>
struct WeightsGradient : Operator<T, I, EmbeddingBagWeightsBackwardArguments, WeightsGradientBuffers<T>> {
  using Block = EmbeddingBagWeightsBackwardArguments;
  using Op = WeightsGradient;
  static Operands operands(const Problem& p, const Block& a) {
    return {{Op::values("grad_output", a.grad_output, p.bag_numel), Op::values("weight", a.weight, p.table_numel),
             Op::index("indices", a.indices, p.n), Op::index("bag_ids", a.bag_ids, p.n),
             Op::values("grad_weights", a.grad_weights, p.n, true)},
            5};
  }
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    auto b = buffers_of<WeightsGradientBuffers<T>>(a.grad_output, a.weight, a.indices, a.bag_ids, a.grad_weights);
    b.wide = Op::kWide;
    return embedding_bag::launch(p, b, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::embedding_bag

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_EMBEDDING_BAG(embedding_bag::Sum)
BARACUDA_STAMP_EVERY_EMBEDDING_BAG_MAX(embedding_bag::Max)
BARACUDA_STAMP_EVERY_EMBEDDING_BAG_BACKWARD(embedding_bag::SumGradient)
BARACUDA_STAMP_EVERY_EMBEDDING_BAG_MAX_BACKWARD(embedding_bag::MaxGradient)
BARACUDA_STAMP_EVERY_EMBEDDING_BAG_WEIGHTS_BACKWARD(embedding_bag::WeightsGradient)
}
