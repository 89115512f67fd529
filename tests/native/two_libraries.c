/* SPDX-License-Identifier: Apache-2.0 */
/* Linked with the CPU library, opens every library named on the command line beside it: each must call itself by its
   own name and keep its own error text, although all export one set of symbols. */
#include <baracuda_kernels.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef const char* text_function(void);
typedef int32_t can_implement_function(int32_t, int32_t, int32_t, const void*, const void*);

struct library {
  text_function* backend_name;
  text_function* last_error;
  can_implement_function* can_implement;
};

/* ISO C has no cast from an object pointer to a function pointer; copying is what POSIX suggests. */
static int find(void* handle, const char* name, void* function) {
  void* found = dlsym(handle, name);
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 0;
  }
  memcpy(function, &found, sizeof found);
  return 1;
}

static int load(const char* path, struct library* library) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* global: the harder case for symbols of one name */
  if (handle == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 0;
  }
  return find(handle, "baracuda_kernels_backend_name", &library->backend_name) &&
         find(handle, "baracuda_kernels_last_error", &library->last_error) &&
         find(handle, "baracuda_kernels_affine_grid_2d_f32_can_implement", &library->can_implement);
}

int main(int count, char** arguments) {
  struct library linked = {baracuda_kernels_backend_name, baracuda_kernels_last_error,
                           baracuda_kernels_affine_grid_2d_f32_can_implement};
  if (strcmp(linked.backend_name(), "cpu") != 0) return 2;
  for (int i = 1; i + 1 < count; i += 2) {
    const char* name = arguments[i];
    struct library other;
    if (!load(arguments[i + 1], &other)) return 3;
    printf("linked: %s, opened: %s\n", linked.backend_name(), other.backend_name());
    if (strcmp(other.backend_name(), name) != 0 || strcmp(linked.backend_name(), "cpu") != 0) return 4;
    /* A failure in one is not seen in the other. */
    if (linked.can_implement(1, 1, 1, NULL, NULL) != 0 || other.can_implement(-7, 1, 1, NULL, NULL) != 2) return 5;
    if (strstr(other.last_error(), "n is -7") == NULL || strlen(linked.last_error()) != 0) return 6;
    if (other.can_implement(1, 1, 1, NULL, NULL) != 0 || linked.can_implement(-8, 1, 1, NULL, NULL) != 2) return 7;
    if (strlen(other.last_error()) != 0 || strstr(linked.last_error(), "n is -8") == NULL) return 8;
  }
  return 0;
}
