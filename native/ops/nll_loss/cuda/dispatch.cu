// SPDX-License-Identifier: Apache-2.0
// Losses of classification on CUDA: which kernels a call takes. Sums are folded down by one or more launches of
// cuda/sums.cuh, but for the calls of one block.
//
//   forward path    calls                                        what happens
//   few elements    log-probabilities of up to 8192 elements     one block looks them up and adds
//   elements        log-probabilities                            a thread an element
//   few classes     logits, d = 1, up to 16 classes              a thread a row
//   rows            logits, d = 1, up to 4096 classes            a warp a row
//   long rows       logits, d = 1                                a block a row
//   images          logits                                       a thread an element
//
//   backward path   calls                                        what happens
//   long vectors    d = 1, 2048 classes and more, rows at        a block a part of a row, in vectors
//                   multiples of 16 bytes
//   long rows       d = 1, 2048 classes and more                 a block a part of a row
//   row vectors     d = 1, rows at multiples of 16 bytes         a thread some vectors
//   rows            d = 1                                        a thread some elements
//   image vectors   lines at multiples of 16 bytes               a thread a vector of elements, 32 classes
//   images          all                                          a thread an element, 32 classes
#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/integer_math.h"
#include "core/paths.h"
#include "ops/nll_loss/cuda/elements.cuh"
#include "ops/nll_loss/cuda/gradients.cuh"
#include "ops/nll_loss/cuda/images.cuh"
#include "ops/nll_loss/cuda/rows.cuh"

namespace baracuda::nll_loss {
namespace {

template <typename T, bool kByLogits>
using ForwardRequest = Request<Problem, ForwardBuffers<T, kByLogits>>;
template <typename T, bool kByLogits>
using BackwardRequest = Request<Problem, BackwardBuffers<T, kByLogits>>;

template <typename T, bool kByLogits>
Results<T> results_of(const ForwardBuffers<T, kByLogits>& b) {
  return {b.output, b.total_weight, b.num_dropped};
}

template <typename T>
size_t bytes_of_items(int64_t count) {
  return ItemsLayout<Compute<T>>(count, nullptr).layout.bytes();
}

template <typename T>
struct FewElementsPath {
  static const char* name() { return "few elements"; }
  const ForwardRequest<T, false>& call;
  bool can() const { return call.p.elements <= kFolded; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const ElementItems<T> elements{call.p, call.b, Places(call.p)};
    return launch_early("nll_loss kernel", fold_items<T, ElementItems<T>>, 1, kFoldThreads, 0, call.stream, call.p,
                        elements, call.p.elements, Items<Compute<T>>{}, results_of(call.b));
  }
};

template <typename T>
struct ElementsPath {
  static const char* name() { return "elements"; }
  const ForwardRequest<T, false>& call;
  size_t bytes() const { return bytes_of_items<T>(ceil_div(call.p.elements, kChunk)); }
  Status enqueue() const {
    const ItemsLayout<Compute<T>> items(ceil_div(call.p.elements, kChunk), call.workspace);
    const ElementItems<T> elements{call.p, call.b, Places(call.p)};
    BARACUDA_RETURN_IF_FAILED(launch_kernel("nll_loss kernel", sum_elements<T>, blocks_for(items.first.count, 1),
                                            kChunk, 0, call.stream, elements, items.first));
    return enqueue_fold<T>(call.p, items, results_of(call.b), call.stream);
  }
};

// Launches one of two kernels and folds the items that it leaves, a block's or a row's.
template <typename T>
struct LogitsPath {
  const ForwardRequest<T, true>& call;

  template <class Kernel, typename... Arguments>
  Status enqueue_items(Kernel plain, Kernel smoothed, int64_t count, int64_t of_block, int threads,
                       Arguments... arguments) const {
    const ItemsLayout<Compute<T>> items(count, call.workspace);
    BARACUDA_RETURN_IF_FAILED(launch_kernel("cross_entropy kernel", call.p.smooths() ? smoothed : plain,
                                            blocks_for(count, of_block), threads, 0, call.stream, call.p, call.b,
                                            arguments..., items.first));
    return enqueue_fold<T>(call.p, items, results_of(call.b), call.stream);
  }
};

template <typename T>
struct ChunksPath : LogitsPath<T> {
  int64_t count() const { return ceil_div(this->call.p.elements, kChunk); }
  size_t bytes() const { return bytes_of_items<T>(count()); }
};

template <typename T>
struct FewClassesPath : ChunksPath<T> {
  static const char* name() { return "few classes"; }
  bool can() const { return this->call.p.d == 1 && this->call.p.c <= kFewClasses; }
  Status enqueue() const {
    return this->enqueue_items(sum_few_classes<T, false>, sum_few_classes<T, true>, this->count(), 1, kChunk);
  }
};

template <typename T>
struct RowsPath : LogitsPath<T> {
  static const char* name() { return "rows"; }
  bool can() const { return this->call.p.d == 1 && this->call.p.c <= kWarpClasses; }
  size_t bytes() const { return bytes_of_items<T>(this->call.p.elements); }
  Status enqueue() const {
    return this->enqueue_items(sum_rows_by_warp<T, false>, sum_rows_by_warp<T, true>, this->call.p.elements, kRowWarps,
                               kRowThreads);
  }
};

template <typename T>
struct LongRowsPath : LogitsPath<T> {
  static const char* name() { return "long rows"; }
  bool can() const { return this->call.p.d == 1; }
  size_t bytes() const { return bytes_of_items<T>(this->call.p.elements); }
  Status enqueue() const {
    return this->enqueue_items(sum_rows_by_block<T, false>, sum_rows_by_block<T, true>, this->call.p.elements, 1,
                               kRowThreads);
  }
};

template <typename T>
struct ImagesPath : ChunksPath<T> {
  static const char* name() { return "images"; }
  Status enqueue() const {
    return this->enqueue_items(sum_images<T, false>, sum_images<T, true>, this->count(), 1, kChunk,
                               Places(this->call.p));
  }
};

template <typename T, bool kByLogits>
using ForwardPaths =
    std::conditional_t<kByLogits, Paths<FewClassesPath<T>, RowsPath<T>, LongRowsPath<T>, ImagesPath<T>>,
                       Paths<FewElementsPath<T>, ElementsPath<T>>>;

// What the sum of all weights takes of the workspace.
template <typename T>
size_t weight_bytes(const Problem& p) {
  WorkspaceLayout layout;
  layout.reserve<Compute<T>>(p.smooths() && p.has_weight ? 1 : 0);
  return layout.bytes();
}

// A gradient's launch by kernels for logits that are smoothed and that are not.
template <typename T, bool kByLogits>
struct GradientPath {
  const BackwardRequest<T, kByLogits>& call;

  bool is_aligned(int64_t line) const {
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(call.b.input) | reinterpret_cast<uintptr_t>(call.b.grad_input);
    return line % kFullLanes<T> == 0 && addresses % 16 == 0;
  }

  template <class Kernel, class Tasks>
  Status enqueue_gradients(Kernel plain, Kernel smoothed, const Tasks& tasks, int64_t tasks_of_block) const {
    const Problem& p = call.p;
    Compute<T>* all_weights = nullptr;
    if (weight_bytes<T>(p) > 0) {
      all_weights = static_cast<Compute<T>*>(call.workspace);
      BARACUDA_RETURN_IF_FAILED(launch_kernel("cross_entropy_backward weights kernel", sum_weights<T>, 1, kFoldThreads,
                                              0, call.stream, p.c, call.b.weight, all_weights));
    }
    return launch_kernel(kByLogits ? "cross_entropy_backward kernel" : "nll_loss_backward kernel",
                         p.smooths() ? smoothed : plain, blocks_for(tasks.count, tasks_of_block), kGradientThreads, 0,
                         call.stream, Shared<T, kByLogits>{p, call.b, all_weights}, tasks);
  }
};

template <typename T, bool kByLogits, int kLanes>
struct RowGradientsPath : GradientPath<T, kByLogits> {
  static const char* name() { return kLanes > 1 ? "row vectors" : "rows"; }
  bool can() const { return this->call.p.d == 1 && (kLanes == 1 || this->is_aligned(this->call.p.c)); }
  Status enqueue() const {
    // Log-probabilities are not smoothed.
    return this->enqueue_gradients(row_gradients<T, kByLogits, false, kLanes>,
                                   row_gradients<T, kByLogits, kByLogits, kLanes>, RowTasks(this->call.p, kLanes),
                                   kGradientThreads * kVectors);
  }
};

template <typename T, bool kByLogits, int kLanes>
struct LongRowGradientsPath : RowGradientsPath<T, kByLogits, kLanes> {
  static const char* name() { return kLanes > 1 ? "long vectors" : "long rows"; }
  bool can() const { return this->call.p.c >= kLongRow && RowGradientsPath<T, kByLogits, kLanes>::can(); }
  Status enqueue() const {
    return this->enqueue_gradients(long_row_gradients<T, kByLogits, false, kLanes>,
                                   long_row_gradients<T, kByLogits, kByLogits, kLanes>,
                                   LongRowTasks(this->call.p, kLanes), 1);
  }
};

template <typename T, bool kByLogits, int kLanes>
struct ImageGradientsPath : GradientPath<T, kByLogits> {
  static const char* name() { return kLanes > 1 ? "image vectors" : "images"; }
  bool can() const { return kLanes == 1 || this->is_aligned(this->call.p.d); }
  Status enqueue() const {
    return this->enqueue_gradients(image_gradients<T, kByLogits, false, kLanes>,
                                   image_gradients<T, kByLogits, kByLogits, kLanes>, ImageTasks(this->call.p, kLanes),
                                   kGradientThreads);
  }
};

template <typename T, bool kByLogits>
using BackwardPaths =
    Paths<LongRowGradientsPath<T, kByLogits, kFullLanes<T>>, LongRowGradientsPath<T, kByLogits, 1>,
          RowGradientsPath<T, kByLogits, kFullLanes<T>>, RowGradientsPath<T, kByLogits, 1>,
          ImageGradientsPath<T, kByLogits, kFullLanes<T>>, ImageGradientsPath<T, kByLogits, 1>>;

template <typename T, bool kByLogits>
Status run(const Problem& p, const ForwardBuffers<T, kByLogits>& b, void* workspace, Stream stream) {
  return ForwardPaths<T, kByLogits>::enqueue(ForwardRequest<T, kByLogits>{p, b, workspace, stream});
}

template <typename T, bool kByLogits>
size_t bytes_of(const Problem& p, const ForwardBuffers<T, kByLogits>*) {
  const ForwardBuffers<T, kByLogits> none{};
  return ForwardPaths<T, kByLogits>::choose(ForwardRequest<T, kByLogits>{p, none, nullptr, nullptr},
                                            [](const auto& path) { return path.bytes(); });
}

template <typename T, bool kByLogits>
Status run(const Problem& p, const BackwardBuffers<T, kByLogits>& b, void* workspace, Stream stream) {
  return BackwardPaths<T, kByLogits>::enqueue(BackwardRequest<T, kByLogits>{p, b, workspace, stream});
}

template <typename T, bool kByLogits>
size_t bytes_of(const Problem& p, const BackwardBuffers<T, kByLogits>*) {
  return weight_bytes<T>(p);
}

}  // namespace

#define BARACUDA_PROVIDE_ALL(T)                         \
  BARACUDA_NLL_LOSS_BUFFERS(BARACUDA_PROVIDE_LAUNCH, T) \
  BARACUDA_NLL_LOSS_BUFFERS(BARACUDA_PROVIDE_WORKSPACE_SIZE, T)
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_ALL)

}  // namespace baracuda::nll_loss
