/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the address of every function of the ABI's table: one that is not declared does not compile, one that is
   missing in the library does not link. */
#include <baracuda_kernels.h>
#include <stdio.h>

#include "symbols.h"

typedef void (*function)(void);

#define ADDRESS(NAME) (function)baracuda_kernels_##NAME,
#define ADDRESSES(SYMBOL, TENSORS, ...) \
  ADDRESS(SYMBOL##_run) ADDRESS(SYMBOL##_can_implement) ADDRESS(SYMBOL##_workspace_size) ADDRESS(SYMBOL##_run_packed)

static const function functions[] = {BARACUDA_LIBRARY_FUNCTIONS(ADDRESS) BARACUDA_SYMBOLS(ADDRESSES)};

int main(void) {
  size_t count = sizeof functions / sizeof functions[0];
  for (size_t i = 0; i < count; ++i) {
    if (functions[i] == NULL) return 1;
  }
  if (baracuda_kernels_abi_hash() != BARACUDA_KERNELS_ABI_HASH) return 2;
  printf("%zu functions linked\n", count);
  return 0;
}
