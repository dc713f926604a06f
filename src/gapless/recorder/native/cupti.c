/* libcupti, opened at run time: the recorder builds and loads on machines without CUDA. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct cupti cupti;

static bool find(void *library, const char *name, void *to) {
  void *function = dlsym(library, name);
  memcpy(to, &function, sizeof function);
  return function != NULL;
}

bool cupti_open(const char *path, char *problem, size_t room) {
  /* A framework may have brought its own already: two in one process would only fight. */
  const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (!library) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(problem, room, "libcupti cannot be loaded (%s)", dlerror());
    return false;
  }
#define F(name) find(library, #name, &cupti.name)
#define OR_ELSE(name)                                                               \
  if (!F(name)) {                                                                   \
    snprintf(problem, room, "%s has no function %s: it is too old", path, #name);   \
    return false;                                                                   \
  }
  CUPTI_NEEDED(OR_ELSE)
#define OR_NOT(name) F(name);
  CUPTI_WHERE_THERE(OR_NOT)
  return true;
}

const char *cupti_error(CUptiResult result) {
  const char *text = NULL;
  if (cupti.cuptiGetResultString) cupti.cuptiGetResultString(result, &text);
  return text ? text : "an unknown error";
}

void *cuda_function(const char *name) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library ? dlsym(library, name) : NULL;
}
