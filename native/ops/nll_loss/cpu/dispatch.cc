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

#include "core/cpu_launch.h"
#include "core/paths.h"
#include "ops/nll_loss/cpu/elements.h"
#include "ops/nll_loss/cpu/gradients.h"
#include "ops/nll_loss/cpu/images.h"
#include "ops/nll_loss/cpu/rows.h"

namespace baracuda::nll_loss {
namespace {

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
