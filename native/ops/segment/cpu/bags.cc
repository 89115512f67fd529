// SPDX-License-Identifier: Apache-2.0
// Embedding bags on the CPU: which path a call takes. Compiled once per instruction set.
//
//   path       operators                   what happens
//   bags       forward, sums and maxima    threads own bags
//   list       gradients by the table      positions are sorted by their row and folded as segments are
//   products   gradients by the weights    threads own positions
#include "core/cpu_launch.h"
#include "core/paths.h"
#include "ops/segment/bags/launch.h"
#include "ops/segment/cpu/bags/fold.h"
#include "ops/segment/cpu/bags/gradient.h"

namespace baracuda::embedding_bag {
namespace {

// Calls use(indices) with indices of their own type.
template <class Buffers, class Use>
Status with_index(const Buffers& b, const Use& use) {
  return b.wide ? use(int64_t{}) : use(int32_t{});
}

template <typename T>
struct SumPath : Request<Problem, SumBuffers<T>> {
  static const char* name() { return "bags"; }
  Status enqueue() const {
    return with_index(this->b, [this](auto index) { return fold_sums<T, decltype(index)>(this->p, this->b); });
  }
};

template <typename T>
struct MaxPath : Request<Problem, MaxBuffers<T>> {
  static const char* name() { return "bags"; }
  Status enqueue() const {
    return with_index(this->b, [this](auto index) { return fold_maxima<T, decltype(index)>(this->p, this->b); });
  }
};

template <typename T>
struct SumGradientPath : Request<Problem, SumGradientBuffers<T>> {
  static const char* name() { return "list"; }
  Status enqueue() const {
    const auto& b = this->b;
    return with_index(b, [this, &b](auto index) {
      using I = decltype(index);
      return Gradient<T, I>(this->p, b, nullptr, b.bag_sizes, b.per_sample_weights, this->workspace).run();
    });
  }
};

template <typename T>
struct MaxGradientPath : Request<Problem, MaxGradientBuffers<T>> {
  static const char* name() { return "list"; }
  Status enqueue() const {
    const auto& b = this->b;
    return with_index(b, [this, &b](auto index) {
      return Gradient<T, decltype(index)>(this->p, b, b.arg, nullptr, nullptr, this->workspace).run();
    });
  }
};

template <typename T>
struct ProductsPath : Request<Problem, WeightsGradientBuffers<T>> {
  static const char* name() { return "products"; }
  Status enqueue() const {
    return with_index(this->b, [this](auto index) { return multiply_rows<T, decltype(index)>(this->p, this->b); });
  }
};

template <class Buffers>
struct PathsOf;
template <typename T>
struct PathsOf<SumBuffers<T>> : Paths<SumPath<T>> {};
template <typename T>
struct PathsOf<MaxBuffers<T>> : Paths<MaxPath<T>> {};
template <typename T>
struct PathsOf<SumGradientBuffers<T>> : Paths<SumGradientPath<T>> {};
template <typename T>
struct PathsOf<MaxGradientBuffers<T>> : Paths<MaxGradientPath<T>> {};
template <typename T>
struct PathsOf<WeightsGradientBuffers<T>> : Paths<ProductsPath<T>> {};

template <class Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace) {
  return PathsOf<Buffers>::enqueue(Request<Problem, Buffers>{p, b, workspace});
}

#if defined(BARACUDA_CPU_ISA_IS_PORTABLE)
template <class Buffers>
size_t bytes_of(const Problem& p, const Buffers*) {
  using T = typename Buffers::Element;
  constexpr bool kSorts =
      std::is_same_v<Buffers, SumGradientBuffers<T>> || std::is_same_v<Buffers, MaxGradientBuffers<T>>;
  if constexpr (kSorts) {
    return GradientScratch<T>(p, nullptr).bytes();
  } else {
    return 0;
  }
}
#endif

}  // namespace

#define BARACUDA_PROVIDE(...)                   \
  BARACUDA_PROVIDE_LAUNCH(Problem, __VA_ARGS__) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, __VA_ARGS__)
BARACUDA_BAG_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::embedding_bag
