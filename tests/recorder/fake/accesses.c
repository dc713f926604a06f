/* Hands parameters of calls to accesses.c, as CUPTI would, and prints the rows that it makes of them. */
#define _GNU_SOURCE
#include "recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cupti cupti;
const char *cupti_error(CUptiResult result) { return result ? "an error" : "none"; }
void bytes_text(struct bytes *bytes, const char *format, ...) { (void)bytes, (void)format; }
struct row { uint64_t address, bytes; uint32_t correlation, how, index, zero; uint64_t pitch; };
static const char *const runtime[] = {"", "cudaMemcpyAsync_v3020", "cudaMemcpy2D_ptds_v7000", "cudaMemset_v3020",
                                      "cudaMemcpyPeer_v4000", "cudaMemcpy3D_v3020", "cudaLaunchKernel_v7000",
                                      "cudaMemset2DAsync_ptsz_v7000"};
static const char *const driver[] = {"", "cuMemcpyHtoDAsync_v2_ptsz", "cuLaunchKernel", "cuMemsetD32Async_ptsz",
                                     "cuLaunchKernelEx_ptsz", "cuMemcpyPeer_ptds", "cuLaunchCooperativeKernel"};

void bytes_add(struct bytes *bytes, const void *data, size_t count) {
  bytes->at = realloc(bytes->at, bytes->count + count);
  memcpy(bytes->at + bytes->count, data, count);
  bytes->count += count;
}
bool file_note(const char *what, const char *text) { return printf("note %s %s\n", what, text), true; }
bool file_block(enum block type, const struct iovec *parts, int count) {
  (void)type, (void)count;
  const struct row *row = parts->iov_base;
  for (size_t i = 0; i < parts->iov_len / sizeof *row; i++)
    printf("%u %u %llx %llu %u %llu\n", row[i].correlation, row[i].how, (unsigned long long)row[i].address,
           (unsigned long long)row[i].bytes, row[i].index, (unsigned long long)row[i].pitch);
  return true;
}

static int info(void *function, size_t index, size_t *at, size_t *size) { /* (pointer, int, struct of 24 bytes, pointer) */
  static const size_t places[] = {0, 8, 16, 40}, sizes[] = {8, 4, 24, 8};
  if (!function || index >= 4) return 1;
  return *at = places[index], *size = sizes[index], 0;
}
static bool old;
void *cuda_function(const char *name) { return !old && strcmp(name, "cuFuncGetParamInfo") == 0 ? (void *)info : NULL; }

static CUptiResult name_of(CUpti_CallbackDomain domain, uint32_t call, const char **name) {
  const char *const *names = domain == CUPTI_CB_DOMAIN_RUNTIME_API ? runtime : driver;
  size_t count = domain == CUPTI_CB_DOMAIN_RUNTIME_API ? sizeof runtime / sizeof *runtime : sizeof driver / sizeof *driver;
  return call < count ? (*name = names[call], CUPTI_SUCCESS) : CUPTI_ERROR_INVALID_PARAMETER;
}
static CUptiResult enable(uint32_t on, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain, CUpti_CallbackId call) {
  const char *name = NULL;
  (void)handle;
  return name_of(domain, call, &name), printf("%s %s\n", on ? "watch" : "leave", name), CUPTI_SUCCESS;
}

static void call(CUpti_CallbackDomain domain, uint32_t number, uint32_t correlation, const void *params) {
  CUpti_CallbackData data = {.callbackSite = CUPTI_API_ENTER, .functionParams = params, .correlationId = correlation};
  accesses_call(domain, number, &data);
}

int main(int count, char **words) {
  static const CUpti_CallbackDomain R = CUPTI_CB_DOMAIN_RUNTIME_API, D = CUPTI_CB_DOMAIN_DRIVER_API;
  old = count > 1 && strcmp(words[1], "old") == 0;
  cupti.cuptiGetCallbackName = name_of, cupti.cuptiEnableCallback = enable;
  accesses_watch(NULL);
  struct { void *dst; const void *src; size_t count; int kind; void *stream; } copy = {(void *)0x10000, (void *)0x20000, 256, 1, NULL};
  call(R, 1, 1, &copy);
  call(D, 1, 1, &copy); /* within the one before: says nothing new */
  struct { void *dst; size_t dpitch; const void *src; size_t spitch, width, height; int kind; } two = {(void *)0x30000, 64, (void *)0x40000, 128, 64, 4, 1};
  call(R, 2, 2, &two);
  struct { void *to; int value; size_t count; } fill = {(void *)0x50000, 7, 100};
  call(R, 3, 3, &fill);
  struct { void *dst; int to; const void *src; int from; size_t count; } peer = {(void *)0x60000, 1, (void *)0x70000, 0, 32};
  call(R, 4, 4, &peer);
  call(R, 5, 5, &peer); /* of a shape that is not read */
  struct { unsigned long long to; unsigned value; size_t count; void *stream; } words_ = {0x80000, 1, 10, NULL};
  call(D, 3, 6, &words_);
  struct { uint64_t a, b, c; } inside = {0x7f0000000100, 12, 0x7f0000000200};
  uint64_t first = 0x7f0000000000, last = ~0ull; /* no address */
  int number = 0x7fffffff;
  void *values[] = {&first, &number, &inside, &last};
  struct { void *f; unsigned shape[6], shared; void *stream; void **params, **extra; } launch = {(void *)0x1234560, {0}, 0, NULL, values, NULL};
  call(R, 6, 7, &launch); /* the runtime's own launch hides the sizes: the driver's within tells them */
  call(D, 2, 7, &launch);
  struct { uint64_t first; int number; struct { uint64_t a, b, c; } inside; uint64_t last; } packed = {0x7f0000000300, 1, {5, 6, 7}, 0x7f0000000400};
  size_t size = sizeof packed;
  void *extra[] = {(void *)1, &packed, (void *)2, &size, NULL};
  struct { const void *config; void *f; void **params, **extra; } ex = {NULL, (void *)0x1234560, NULL, extra};
  call(D, 4, 8, &ex);
  call(D, 6, 9, &launch);
  struct { unsigned long long to; void *to_context; unsigned long long from; void *from_context; size_t count; } contexts = {0x90000, NULL, 0xa0000, NULL, 8};
  call(D, 5, 10, &contexts);
  struct { void *to; size_t pitch; int value; size_t width, height; void *stream; } plane = {(void *)0xb0000, 64, 0, 16, 2, NULL};
  call(R, 7, 11, &plane);
  copy.count = 0;
  call(R, 1, 12, &copy); /* touches nothing */
  accesses_drain();
  accesses_drain();
  return 0;
}
