/* Which memory calls touch (--addresses): what copies and memsets read and write, and where the arguments of kernels point.
 *
 * A call's parameters are read as it begins, from the structs in which CUPTI hands them over; their shapes are part of
 * CUDA's ABI and written down here, so that no headers of CUDA are needed. How large the arguments of a kernel are the driver
 * tells (cuFuncGetParamInfo, CUDA 12.4); each pointer-sized word of them may be a pointer, and which of them are is for
 * the reader to find, who knows what was allocated. The recorder's thread writes the rows. */
#define _GNU_SOURCE
#include "recorder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { READ = 1, WRITE = 2, ARGUMENT = 3, CALL_IDS = 2048, FUNCTIONS = 4096, MOST_ARGUMENTS = 64, MOST_BYTES = 4096 };
enum shape { NOTHING, COPY, COPY_2D, COPY_PEER, COPY_PEER_DRIVER, FILL, FILL_2, FILL_4, FILL_2D, LAUNCH, LAUNCH_TOGETHER,
             LAUNCH_EX };

struct row { uint64_t address, bytes; uint32_t correlation, how, index, zero; uint64_t pitch; };
struct copy { uint64_t to, from; size_t count; };
struct copy_2d { uint64_t to; size_t to_pitch; uint64_t from; size_t from_pitch, width, height; };
struct copy_peer { uint64_t to; int to_device; uint64_t from; int from_device; size_t count; };
struct copy_peer_driver { uint64_t to; void *to_context; uint64_t from; void *from_context; size_t count; };
struct fill { uint64_t to; int value; size_t count; }; /* a shorter value is padded to the same place */
struct fill_2d { uint64_t to; size_t pitch; int value; size_t width, height; };
struct launch { void *function; unsigned shape[7]; void *stream; void **params, **extra; };
struct launch_ex { const void *config; void *function; void **params, **extra; };

/* Names of calls without version and suffix for per-thread streams, and the shape of their parameters. */
static const struct { const char *name; enum shape shape; } known[] = {
    {"cudaMemcpy", COPY}, {"cudaMemcpyAsync", COPY}, {"cudaMemcpy2D", COPY_2D}, {"cudaMemcpy2DAsync", COPY_2D},
    {"cudaMemcpyPeer", COPY_PEER}, {"cudaMemcpyPeerAsync", COPY_PEER}, {"cudaMemset", FILL}, {"cudaMemsetAsync", FILL},
    {"cudaMemset2D", FILL_2D}, {"cudaMemset2DAsync", FILL_2D},
    {"cuMemcpy", COPY}, {"cuMemcpyAsync", COPY}, {"cuMemcpyHtoD", COPY}, {"cuMemcpyHtoDAsync", COPY},
    {"cuMemcpyDtoH", COPY}, {"cuMemcpyDtoHAsync", COPY}, {"cuMemcpyDtoD", COPY}, {"cuMemcpyDtoDAsync", COPY},
    {"cuMemcpyPeer", COPY_PEER_DRIVER}, {"cuMemcpyPeerAsync", COPY_PEER_DRIVER},
    {"cuMemsetD8", FILL}, {"cuMemsetD8Async", FILL}, {"cuMemsetD16", FILL_2}, {"cuMemsetD16Async", FILL_2},
    {"cuMemsetD32", FILL_4}, {"cuMemsetD32Async", FILL_4},
    {"cuLaunchKernel", LAUNCH}, {"cuLaunchCooperativeKernel", LAUNCH_TOGETHER}, {"cuLaunchKernelEx", LAUNCH_EX},
};
static const CUpti_CallbackDomain domains[] = {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API};
static uint8_t shapes[2][CALL_IDS];

static pthread_mutex_t rows_lock = PTHREAD_MUTEX_INITIALIZER;
static struct bytes rows;

/* What is known of the arguments of each function, by its handle; told once. */
struct signature { void *function; uint32_t count; uint16_t at[MOST_ARGUMENTS], size[MOST_ARGUMENTS]; };
static struct signature *signatures[FUNCTIONS];
static pthread_mutex_t signatures_lock = PTHREAD_MUTEX_INITIALIZER;
static int (*of_function)(void *, size_t, size_t *, size_t *), (*of_kernel)(void *, size_t, size_t *, size_t *);

static enum shape shape_of(const char *name) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (calls_named(name, known[i].name)) return known[i].shape;
  return NOTHING;
}

void accesses_watch(CUpti_SubscriberHandle subscriber) {
  *(void **)&of_function = cuda_function("cuFuncGetParamInfo");
  *(void **)&of_kernel = cuda_function("cuKernelGetParamInfo");
  if (!of_function)
    file_note("no-kernel-arguments", "This driver does not tell the sizes of kernels' arguments (CUDA 12.4 does): what kernels touch is not recorded.");
  for (size_t domain = 0; domain < 2; domain++)
    for (uint32_t call = 1; call < CALL_IDS; call++) {
      const char *name = NULL;
      if (cupti.cuptiGetCallbackName(domains[domain], call, &name) != CUPTI_SUCCESS || !name) continue;
      if (!(shapes[domain][call] = (uint8_t)shape_of(name))) continue;
      cupti.cuptiEnableCallback(1, subscriber, domains[domain], call);
    }
}

static void add(uint32_t correlation, uint32_t how, uint64_t address, uint64_t count, uint32_t index, uint64_t pitch) {
  if (!address || (!count && how != ARGUMENT)) return;
  struct row row = {.address = address, .bytes = count, .correlation = correlation, .how = how, .index = index, .pitch = pitch};
  bytes_add(&rows, &row, sizeof row);
}

static void add_2d(uint32_t correlation, uint32_t how, uint64_t address, size_t pitch, size_t width, size_t height) {
  if (!width || !height) return;
  add(correlation, how, address, (height - 1) * pitch + width, 0, pitch == width || height == 1 ? 0 : pitch);
}

static const struct signature *signature_of(void *function) {
  size_t at = ((uintptr_t)function >> 4) * 0x9E3779B97F4A7C15u >> 52, tries = 0;
  pthread_mutex_lock(&signatures_lock);
  while (signatures[at] && signatures[at]->function != function && tries++ < 64) at = (at + 1) % FUNCTIONS;
  struct signature *found = signatures[at];
  if (!found || found->function != function) {
    found = calloc(1, sizeof *found);
    if (found) {
      found->function = function;
      for (size_t i = 0, place, size; i < MOST_ARGUMENTS; i++, found->count++) {
        if (of_function(function, i, &place, &size) != 0 && (!of_kernel || of_kernel(function, i, &place, &size) != 0)) break;
        found->at[i] = (uint16_t)(place < MOST_BYTES ? place : MOST_BYTES);
        found->size[i] = (uint16_t)(size < MOST_BYTES ? size : MOST_BYTES);
      }
      if (!signatures[at]) signatures[at] = found;
    }
  }
  pthread_mutex_unlock(&signatures_lock);
  return found;
}

/* The arguments of a launch: one by one, or packed into a buffer (1: it follows, 2: its size follows, 0: the end). */
static void add_arguments(uint32_t correlation, void *function, void **params, void **extra) {
  const char *packed = NULL;
  if (!function || !of_function) return;
  const struct signature *known_of = signature_of(function);
  for (int i = 0; !params && extra && i < 8 && extra[i] != NULL; i += 2)
    if ((uintptr_t)extra[i] == 1) packed = extra[i + 1];
  for (uint32_t i = 0; known_of && i < known_of->count; i++) {
    const char *value = params ? params[i] : packed ? packed + known_of->at[i] : NULL;
    for (size_t at = 0; value && at + 8 <= known_of->size[i]; at += 8) {
      uint64_t word;
      memcpy(&word, value + at, 8);
      if (word >= 1 << 16 && word >> 57 == 0) add(correlation, ARGUMENT, word, 0, i, 0);
    }
  }
}

void accesses_call(CUpti_CallbackDomain domain, uint32_t call, const CUpti_CallbackData *data) {
  static __thread uint32_t last; /* a call of the driver within one of the runtime says the same again */
  if (call >= CALL_IDS || (domain != domains[0] && domain != domains[1])) return;
  enum shape shape = shapes[domain == domains[1]][call];
  const void *params = data->functionParams;
  uint32_t id = data->correlationId;
  if (!shape || !params || last == id) return;
  last = id;
  pthread_mutex_lock(&rows_lock);
  switch (shape) {
    case COPY: {
      const struct copy *copy = params;
      add(id, READ, copy->from, copy->count, 0, 0), add(id, WRITE, copy->to, copy->count, 0, 0);
      break;
    }
    case COPY_2D: {
      const struct copy_2d *copy = params;
      add_2d(id, READ, copy->from, copy->from_pitch, copy->width, copy->height);
      add_2d(id, WRITE, copy->to, copy->to_pitch, copy->width, copy->height);
      break;
    }
    case COPY_PEER: {
      const struct copy_peer *copy = params;
      add(id, READ, copy->from, copy->count, 0, 0), add(id, WRITE, copy->to, copy->count, 0, 0);
      break;
    }
    case COPY_PEER_DRIVER: {
      const struct copy_peer_driver *copy = params;
      add(id, READ, copy->from, copy->count, 0, 0), add(id, WRITE, copy->to, copy->count, 0, 0);
      break;
    }
    case FILL: case FILL_2: case FILL_4: {
      const struct fill *fill = params;
      add(id, WRITE, fill->to, fill->count * (shape == FILL ? 1 : shape == FILL_2 ? 2 : 4), 0, 0);
      break;
    }
    case FILL_2D: {
      const struct fill_2d *fill = params;
      add_2d(id, WRITE, fill->to, fill->pitch, fill->width, fill->height);
      break;
    }
    case LAUNCH: case LAUNCH_TOGETHER: { /* the latter has no extra */
      const struct launch *launch = params;
      add_arguments(id, launch->function, launch->params, shape == LAUNCH ? launch->extra : NULL);
      break;
    }
    case LAUNCH_EX: {
      const struct launch_ex *launch = params;
      add_arguments(id, launch->function, launch->params, launch->extra);
      break;
    }
    case NOTHING: break;
  }
  pthread_mutex_unlock(&rows_lock);
}

void accesses_drain(void) {
  pthread_mutex_lock(&rows_lock);
  struct bytes full = rows;
  rows = (struct bytes){0};
  pthread_mutex_unlock(&rows_lock);
  if (full.count) file_block(ACCESSES, &(struct iovec){full.at, full.count}, 1);
  free(full.at);
}
