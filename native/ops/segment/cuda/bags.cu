// SPDX-License-Identifier: Apache-2.0
// Embedding bags on CUDA: which path a call takes.
//
//   path       operators                      code
//   bags       forward, sums and maxima       bags/positions.cuh, bags/fold.cuh, join/
//   no bags    gradients of no position       a memset
//   list       gradients by the table         bags/gradient.cuh, sort/, list/, join/
//   products   gradients by the weights       bags/dots.cuh
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/segment/cuda/bags/dots.cuh"
#include "ops/segment/cuda/bags/fold.cuh"
#include "ops/segment/cuda/bags/gradient.cuh"

namespace baracuda::embedding_bag {
namespace {

template <class Tag, class Buffers>
struct BagsPath : Request<Problem, Buffers> {
  static const char* name() { return "bags"; }
  size_t bytes() const { return FoldScratch<Tag>(this->p, nullptr).layout.bytes(); }
};

template <typename T>
struct SumPath : BagsPath<segment::rule::BagSum<T>, SumBuffers<T>> {
  Status enqueue() const {
    return enqueue_fold(this->p, this->b, folded<segment::rule::BagSum<T>>(this->b), this->b.per_sample_weights,
                        this->workspace, this->stream);
  }
};

template <typename T>
struct MaxPath : BagsPath<segment::rule::BagMax<T>, MaxBuffers<T>> {
  Status enqueue() const {
    auto of_rule = folded<segment::rule::BagMax<T>>(this->b);
    of_rule.result_arg = this->b.arg;
    return enqueue_fold(this->p, this->b, of_rule, static_cast<const T*>(nullptr), this->workspace, this->stream);
  }
};

template <class Buffers>
struct NothingPath : Request<Problem, Buffers> {
  static const char* name() { return "no bags"; }
  bool can() const { return this->p.n == 0 || this->p.num_bags == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    return enqueue_zeros(this->b.grad_weight,
                         static_cast<size_t>(this->p.table_numel) * sizeof(typename Buffers::Element), this->stream);
  }
};

template <typename T>
struct SumGradientPath : Request<Problem, SumGradientBuffers<T>> {
  static const char* name() { return "list"; }
  size_t bytes() const { return GradientScratch<T>(this->p, false, nullptr).layout.bytes(); }
  Status enqueue() const {
    const auto& b = this->b;
    const FromPositions source{Positions(this->p, b.indices, b.wide), Index(b.bag_ids, b.wide, this->p.num_bags)};
    return Gradient<T>{this->p,     b.grad_output,        source,        nullptr,
                       b.bag_sizes, b.per_sample_weights, b.grad_weight, b.wide}
        .enqueue(this->workspace, this->stream);
  }
};

template <typename T>
struct MaxGradientPath : Request<Problem, MaxGradientBuffers<T>> {
  static const char* name() { return "list"; }
  size_t bytes() const { return GradientScratch<T>(this->p, true, nullptr).layout.bytes(); }
  Status enqueue() const {
    const auto& b = this->b;
    const FromPositions source{Positions(this->p, b.indices, b.wide), Index(b.bag_ids, b.wide, this->p.num_bags)};
    return Gradient<T>{this->p, b.grad_output, source, b.arg, nullptr, nullptr, b.grad_weight, b.wide}.enqueue(
        this->workspace, this->stream);
  }
};

template <typename T>
struct ProductsPath : Request<Problem, WeightsGradientBuffers<T>> {
  static const char* name() { return "products"; }
  size_t bytes() const { return 0; }
  Status enqueue() const { return enqueue_dots(this->p, this->b, this->stream); }
};

template <class Buffers>
struct PathsOf;
template <typename T>
struct PathsOf<SumBuffers<T>> : Paths<SumPath<T>> {};
template <typename T>
struct PathsOf<MaxBuffers<T>> : Paths<MaxPath<T>> {};
template <typename T>
struct PathsOf<SumGradientBuffers<T>> : Paths<NothingPath<SumGradientBuffers<T>>, SumGradientPath<T>> {};
template <typename T>
struct PathsOf<MaxGradientBuffers<T>> : Paths<NothingPath<MaxGradientBuffers<T>>, MaxGradientPath<T>> {};
template <typename T>
struct PathsOf<WeightsGradientBuffers<T>> : Paths<ProductsPath<T>> {};

template <class Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace, Stream stream) {
  return PathsOf<Buffers>::enqueue(Request<Problem, Buffers>{p, b, workspace, stream});
}

template <class Buffers>
size_t bytes_of(const Problem& p, const Buffers*) {
  const Buffers none{};
  return PathsOf<Buffers>::choose(Request<Problem, Buffers>{p, none, nullptr},
                                  [](const auto& path) { return path.bytes(); });
}

}  // namespace

#define BARACUDA_PROVIDE(...)                   \
  BARACUDA_PROVIDE_LAUNCH(Problem, __VA_ARGS__) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, __VA_ARGS__)
BARACUDA_BAG_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::embedding_bag
