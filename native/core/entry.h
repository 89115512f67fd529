// SPDX-License-Identifier: Apache-2.0
// The one path every C function takes: validate, size the workspace, launch. Operators supply the parts as an `Op`.
// Scalars are converted and compared on the way, so that the caller's float mode is set aside before anything else.
//
// An Op has: `Arguments`, the generated block; `Problem`; and static functions
//   Status make_problem(const Arguments&, Problem*)     scalars, ranges, overflow; reads no data pointer
//   Operands operands(const Problem&, const Arguments&) every data pointer with its element count
//   size_t workspace_size(const Problem&)
//   size_t least_workspace(const Problem&)              optional: what frozen callers pass; from there on a workspace
//                                                       that is too small is taken for none
//   Status check_overlap(const Problem&, const Arguments&)  optional: for operands that are not dense
//   Status launch(const Problem&, const Arguments&, void* workspace, Stream)
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "core/checked.h"
#include "core/paths.h"
#include "core/status.h"

namespace baracuda {

// Workspaces hold 16-byte vectors.
constexpr size_t kWorkspaceAlignment = 16;

struct Operand {
  const char* name;
  const void* pointer;
  int64_t numel;
  size_t element_bytes;
  bool is_output;
  // Of an output of an elementwise operator: the place of the input that it may be.
  int in_place_of = -1;
};

// Up to ten operands in call order, which the widest operator has.
struct Operands {
  Operand items[10];
  int count;
};

// A pointer of a block, on its way into the typed field that it initializes.
template <typename Void>
struct Untyped {
  Void* pointer;
  template <typename T>
  operator T*() const {
    return static_cast<T*>(pointer);
  }
};

// What a backend takes: the pointers of a block in the order of the fields of `Buffers`.
template <class Buffers, typename... Voids>
Buffers buffers_of(Voids*... pointers) {
  return Buffers{Untyped<Voids>{pointers}...};
}

// What is the same for every operator stands in entry.cc: copies of it in each C function were most of the time that it
// took to compile.

// Status 2 for a null pointer to elements, status 1 for one that is not aligned to them.
Status check_operands(const Operands& operands);

// Of dense operands. Status 2 where an output shares an element with another operand, but for the input that it is.
Status check_overlap(const Operands& operands);

bool every_output_is_empty(const Operands& operands);

// A caller's workspace, which may be none, and how many bytes a call needs; from `least` on a smaller one is taken for
// none.
struct WorkspaceRequest {
  void* workspace;
  size_t bytes;
  size_t needed;
  size_t least;
};

// Checks the workspace, takes scratch where the caller gave none, and launches on the stream.
using LaunchChecked = Status (*)(const void* call, void* workspace, Stream stream);
Status launch_with_workspace(const WorkspaceRequest& request, Stream stream, LaunchChecked launch, const void* call);

template <class Op>
auto least_workspace(const typename Op::Problem& problem, size_t, int) -> decltype(Op::least_workspace(problem)) {
  return Op::least_workspace(problem);
}
template <class Op>
size_t least_workspace(const typename Op::Problem&, size_t needed, long) {
  return needed;
}

template <class Op>
auto check_overlap(const typename Op::Problem& problem, const Operands&, const typename Op::Arguments& arguments, int)
    -> decltype(Op::check_overlap(problem, arguments)) {
  return Op::check_overlap(problem, arguments);
}
template <class Op>
Status check_overlap(const typename Op::Problem&, const Operands& operands, const typename Op::Arguments&, long) {
  return check_overlap(operands);
}

// A call of which nothing but the launch is left.
template <class Op>
struct Checked {
  const typename Op::Problem& problem;
  const typename Op::Arguments& arguments;

  static Status launch(const void* call, void* workspace, Stream stream) {
    const Checked& self = *static_cast<const Checked*>(call);
    return Op::launch(self.problem, self.arguments, workspace, stream);
  }
};

// `arguments` is an Op::Arguments, laid out as a C struct.
template <class Op>
Status run_checked(const void* block) {
  const typename Op::Arguments& arguments = *static_cast<const typename Op::Arguments*>(block);
  typename Op::Problem problem;
  BARACUDA_RETURN_IF_FAILED(Op::make_problem(arguments, &problem));
  const Operands operands = Op::operands(problem, arguments);
  if (every_output_is_empty(operands)) {
    record_path("");
    return Status::kOk;
  }
  BARACUDA_RETURN_IF_FAILED(check_operands(operands));
  BARACUDA_RETURN_IF_FAILED(check_overlap<Op>(problem, operands, arguments, 0));
  const size_t needed = Op::workspace_size(problem);
  const WorkspaceRequest request{arguments.workspace, arguments.workspace_bytes, needed,
                                 least_workspace<Op>(problem, needed, 0)};
  const Checked<Op> call{problem, arguments};
  return launch_with_workspace(request, arguments.stream, Checked<Op>::launch, &call);
}

template <class Op>
Status check_problem(const void* block) {
  typename Op::Problem problem;
  return Op::make_problem(*static_cast<const typename Op::Arguments*>(block), &problem);
}

template <class Op>
size_t needed_workspace(const void* block) {
  typename Op::Problem problem;
  const Status status = Op::make_problem(*static_cast<const typename Op::Arguments*>(block), &problem);
  return status == Status::kOk ? Op::workspace_size(problem) : 0;
}

// A part of an operator within its C function: with the symbol for messages, in the library's float environment.
int32_t answer(const char* symbol, Status (*part)(const void* block), const void* block);
size_t answer(const char* symbol, size_t (*part)(const void* block), const void* block);

template <class Op>
int32_t run(const char* symbol, const typename Op::Arguments& arguments) {
  return answer(symbol, run_checked<Op>, &arguments);
}

template <class Op>
int32_t run_packed(const char* symbol, const void* arguments) {
  return answer(symbol, run_checked<Op>, arguments);
}

template <class Op>
int32_t can_implement(const char* symbol, const typename Op::Arguments& arguments) {
  return answer(symbol, check_problem<Op>, &arguments);
}

template <class Op>
size_t workspace_size(const char* symbol, const typename Op::Arguments& arguments) {
  return answer(symbol, needed_workspace<Op>, &arguments);
}

}  // namespace baracuda
