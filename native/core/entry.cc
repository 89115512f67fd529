// SPDX-License-Identifier: Apache-2.0
// What every C function does around its operator: the checks of operands and workspace, scratch, the float environment.
#include "core/entry.h"

#include "core/float_environment.h"

namespace baracuda {
namespace {

// Elements lie at multiples of their size; those of 16 bytes are pairs of words, as baracuda_kernels_bits128 is.
size_t alignment_of(size_t element_bytes) { return element_bytes < 8 ? element_bytes : 8; }

bool share_a_byte(const Operand& a, const Operand& b) {
  if (a.numel == 0 || b.numel == 0) return false;
  const uintptr_t start = reinterpret_cast<uintptr_t>(a.pointer), other = reinterpret_cast<uintptr_t>(b.pointer);
  // A difference of the wrong sign wraps to more than any size.
  return start - other < static_cast<size_t>(b.numel) * b.element_bytes ||
         other - start < static_cast<size_t>(a.numel) * a.element_bytes;
}

}  // namespace

Status check_operands(const Operands& operands) {
  for (int i = 0; i < operands.count; ++i) {
    const Operand& operand = operands.items[i];
    if (operand.pointer == nullptr && operand.numel > 0) {
      return fail(Status::kInvalidProblem, "%s is NULL; wanted a pointer to %lld elements", operand.name,
                  static_cast<long long>(operand.numel));
    }
  }
  for (int i = 0; i < operands.count; ++i) {
    const Operand& operand = operands.items[i];
    const size_t alignment = alignment_of(operand.element_bytes);
    if (operand.numel > 0 && reinterpret_cast<uintptr_t>(operand.pointer) % alignment != 0) {
      return fail(Status::kMisalignedOperand, "%s is at %p; wanted an address aligned to %zu bytes", operand.name,
                  operand.pointer, alignment);
    }
  }
  return Status::kOk;
}

Status check_overlap(const Operands& operands) {
  for (int i = 0; i < operands.count; ++i) {
    const Operand& output = operands.items[i];
    if (!output.is_output) continue;
    for (int j = 0; j < operands.count; ++j) {
      const Operand& other = operands.items[j];
      // Two outputs meet once.
      if ((other.is_output && j >= i) || !share_a_byte(output, other)) continue;
      if (j == output.in_place_of && other.pointer == output.pointer) continue;
      return fail_for_overlap(output.name, other.name);
    }
  }
  return Status::kOk;
}

bool every_output_is_empty(const Operands& operands) {
  for (int i = 0; i < operands.count; ++i) {
    if (operands.items[i].is_output && operands.items[i].numel > 0) return false;
  }
  return true;
}

namespace {

Status check_workspace(const void* workspace, size_t bytes, size_t needed) {
  if (workspace == nullptr) {
    if (bytes == 0) return Status::kOk;
    return fail(Status::kInvalidProblem, "workspace is NULL with workspace_bytes %zu; wanted a pointer or 0 bytes",
                bytes);
  }
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    return fail(Status::kMisalignedOperand, "workspace is at %p; wanted an address aligned to %zu bytes", workspace,
                kWorkspaceAlignment);
  }
  if (bytes < needed) {
    return fail(Status::kWorkspaceTooSmall, "workspace has %zu bytes; wanted %zu", bytes, needed);
  }
  return Status::kOk;
}

}  // namespace

Status launch_with_workspace(const WorkspaceRequest& request, Stream stream, LaunchChecked launch, const void* call) {
  const bool is_given = request.workspace != nullptr;
  const bool is_frozen_size = is_given && request.least <= request.bytes && request.bytes < request.needed;
  BARACUDA_RETURN_IF_FAILED(
      check_workspace(request.workspace, request.bytes, is_frozen_size ? request.least : request.needed));
  LaunchScope scope;
  BARACUDA_RETURN_IF_FAILED(scope.enter(stream));
  if ((is_given && !is_frozen_size) || request.needed == 0) return launch(call, request.workspace, stream);
  Scratch scratch;  // after a failed launch it gives its memory back in silence: the text is the launch's
  BARACUDA_RETURN_IF_FAILED(scratch.acquire(request.needed, stream));
  BARACUDA_RETURN_IF_FAILED(launch(call, scratch.pointer(), stream));
  return scratch.release();
}

int32_t answer(const char* symbol, Status (*part)(const void* block), const void* block) {
  begin_call(symbol);
  const ScopedFloatEnvironment environment;
  return static_cast<int32_t>(part(block));
}

size_t answer(const char* symbol, size_t (*part)(const void* block), const void* block) {
  begin_call(symbol);
  const ScopedFloatEnvironment environment;
  return part(block);
}

}  // namespace baracuda
