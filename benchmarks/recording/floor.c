/* What CUPTI alone costs: an injection library that has it record and throws the records away. benchmarks/recording.py floor
 * builds it with CUPTI's headers and compares the recorder with it.
 *
 * FLOOR_CUPTI is the libcupti, FLOOR_KINDS the activity kinds by number ("10" kernels, "5" calls of the runtime). No callback is
 * enabled; buffers are kept in a ring and never allocated anew, and CUPTI need not clear them. */
#define _GNU_SOURCE
#include <cupti_activity.h>
#include <cupti_callbacks.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 256 << 10, BUFFERS = 512 };

static uint8_t *pool;
static unsigned next;

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  *buffer = pool + (size_t)(__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % BUFFERS) * BUFFER, *size = BUFFER, *most = 0;
}

static void completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)context, (void)stream, (void)size;
  memset(buffer, 0, valid);
}

static void nothing(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId call, const void *data) {
  (void)user, (void)domain, (void)call, (void)data;
}

__attribute__((visibility("default"))) int InitializeInjection(void) {
  void *library = dlopen(getenv("FLOOR_CUPTI"), RTLD_NOW);
  if (!library || pool) return 1;
#define F(name) __typeof__(&name) my_##name = (__typeof__(&name))dlsym(library, #name)
  F(cuptiSubscribe);
  F(cuptiActivitySetAttribute);
  F(cuptiActivityRegisterCallbacks);
  F(cuptiActivityEnable);
  CUpti_SubscriberHandle subscriber;
  uint8_t clean = 1;
  size_t size = sizeof clean;
  pool = aligned_alloc(4096, (size_t)BUFFER * BUFFERS);
  memset(pool, 0, (size_t)BUFFER * BUFFERS);
  my_cuptiSubscribe(&subscriber, nothing, NULL);
  my_cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &clean);
  my_cuptiActivityRegisterCallbacks(requested, completed);
  const char *kinds = getenv("FLOOR_KINDS");
  char *words = strdup(kinds ? kinds : "");
  for (char *word = strtok(words, ","); word; word = strtok(NULL, ",")) my_cuptiActivityEnable((CUpti_ActivityKind)atoi(word));
  return 1;
}
