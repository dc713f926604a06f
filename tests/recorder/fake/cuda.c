/* A CUDA driver and a CUPTI in one, of which nothing is real: enough for the recorder to run without a GPU.
 *
 * fake_init does what cuInit does with CUDA_INJECTION64_PATH. fake_launch makes a call of the runtime and a kernel: it
 * tells the subscriber, as CUPTI does on the calling thread, and puts two records into a buffer that it asked for. Full buffers
 * go back from a worker thread, others when they are asked for. */
#define _GNU_SOURCE
#include <cupti_activity.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_CallbackFunc subscriber;
static void *user;
static int enabled[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *buffer;
static size_t room, used, dropped;
static uint32_t correlation;
static const char *kernel_name = "_Z4workPfmi";

static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

CUptiResult cuptiGetVersion(uint32_t *version) { return *version = 130001, CUPTI_SUCCESS; }
CUptiResult cuptiGetTimestamp(uint64_t *at) { return *at = now(), CUPTI_SUCCESS; }
CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
  return *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR", CUPTI_SUCCESS;
}
CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) { return type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM ? CUPTI_SUCCESS : CUPTI_ERROR_UNKNOWN; }
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc a, CUpti_BuffersCallbackCompleteFunc b) {
  return request = a, complete = b, CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (kind == CUPTI_ACTIVITY_KIND_MEMORY_POOL) return CUPTI_ERROR_NOT_COMPATIBLE;
  return enabled[kind] = 1, CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) { return enabled[kind] = 0, CUPTI_SUCCESS; }
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId call, uint8_t on) { return (void)call, (void)on, CUPTI_SUCCESS; }
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId call, uint8_t on) { return (void)call, (void)on, CUPTI_SUCCESS; }

static int clean;
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *size, void *value) {
  if (attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER && *size == 1) clean = *(uint8_t *)value;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *count) {
  (void)context, (void)stream;
  return *count = dropped, dropped = 0, CUPTI_SUCCESS;
}

static size_t size_of(uint32_t kind) {
  /* eight bytes more than the headers say: a CUPTI newer than the headers that the recorder was built with */
  return kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? sizeof(KERNEL) + 8 : sizeof(CUpti_ActivityAPI);
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *from, size_t valid, CUpti_Activity **record) {
  uint8_t *next = *record ? (uint8_t *)*record + size_of((*record)->kind) : from;
  if (next >= from + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  return *record = (CUpti_Activity *)next, CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback, void *data) {
  if (subscriber || getenv("FAKE_BUSY")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  return *handle = (CUpti_SubscriberHandle)&subscriber, subscriber = callback, user = data, CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle) { return (void)handle, subscriber = NULL, CUPTI_SUCCESS; }

static char watched[8][1024];
CUptiResult cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain, CUpti_CallbackId call) {
  return (void)handle, watched[domain][call] = (char)on, CUPTI_SUCCESS;
}
CUptiResult cuptiEnableDomain(uint32_t on, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain) {
  return (void)handle, memset(watched[domain], (int)on, sizeof watched[domain]), CUPTI_SUCCESS;
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t call, const char **name) {
  if (domain != CUPTI_CB_DOMAIN_RUNTIME_API || call != 211) return CUPTI_ERROR_INVALID_PARAMETER;
  return *name = "cudaLaunchKernel_v7000", CUPTI_SUCCESS;
}

static void hand_over(void) { /* under the lock */
  uint8_t *full = buffer;
  size_t count = used;
  buffer = NULL, used = 0;
  if (full) complete(NULL, 0, full, room, count);
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  if (flag && getenv("FAKE_STUCK")) pause(); /* whoever holds it up never lets go */
  pthread_mutex_lock(&lock);
  hand_over();
  pthread_mutex_unlock(&lock);
  return CUPTI_SUCCESS;
}

static void *put(uint32_t kind) { /* under the lock */
  size_t most, size = size_of(kind);
  if (!enabled[kind]) return NULL;
  if (buffer && used + size > room) hand_over();
  if (!buffer) request(&buffer, &room, &most), used = 0;
  if (!buffer) return dropped++, NULL;
  void *record = buffer + used;
  for (size_t i = 0; clean && i < size; i++)
    if (buffer[used + i]) fprintf(stderr, "the buffer is not clean\n"), abort();
  used += size;
  memset(record, 0, size);
  ((CUpti_Activity *)record)->kind = kind;
  return record;
}

__attribute__((visibility("default"))) int fake_init(void) {
  const char *path = getenv("CUDA_INJECTION64_PATH");
  if (!path) return 0;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*initialize)(void);
  *(void **)&initialize = dlsym(library, "InitializeInjection");
  return initialize ? !initialize() : 1;
}

/* One context, 1, on device 0; its default stream is 7. A stream's number is the last byte of its handle. */
CUptiResult cuptiGetContextId(CUcontext context, uint32_t *id) { return *id = 1, context ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_CONTEXT; }
CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *id) { return (void)context, *id = 0, CUPTI_SUCCESS; }
CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t of_thread, uint32_t *id) {
  return (void)context, *id = of_thread ? 9 : stream ? (uint32_t)(uintptr_t)stream & 255 : 7, CUPTI_SUCCESS;
}

struct launch { void *function; unsigned grid[3], block[3]; void **values; size_t shared; void *stream; };

__attribute__((visibility("default"))) unsigned fake_launch_in(void *stream) {
  struct launch params = {.stream = stream};
  pthread_mutex_lock(&lock);
  uint32_t mine = ++correlation;
  pthread_mutex_unlock(&lock);
  CUpti_CallbackData call = {.callbackSite = CUPTI_API_ENTER, .functionName = "cudaLaunchKernel", .correlationId = mine, .functionParams = &params,
                             .context = (CUcontext)&correlation, .contextUid = 1};
  uint64_t began = now();
  if (subscriber && watched[CUPTI_CB_DOMAIN_RUNTIME_API][211]) subscriber(user, CUPTI_CB_DOMAIN_RUNTIME_API, 211, &call);
  pthread_mutex_lock(&lock);
  CUpti_ActivityAPI *api = put(CUPTI_ACTIVITY_KIND_RUNTIME);
  if (api) {
    api->cbid = 211, api->start = began, api->end = now(), api->correlationId = mine;
    api->processId = (uint32_t)getpid(), api->threadId = (uint32_t)syscall(SYS_gettid);
  }
  KERNEL *kernel = put(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (kernel) {
    kernel->start = now(), kernel->end = kernel->start + 1000, kernel->correlationId = mine, kernel->name = kernel_name;
    cuptiGetStreamIdEx(NULL, stream, stream == (void *)2, &kernel->streamId);
    kernel->contextId = 1, kernel->gridX = 4, kernel->gridY = kernel->gridZ = 1, kernel->blockX = 128, kernel->blockY = kernel->blockZ = 1;
  }
  pthread_mutex_unlock(&lock);
  return mine;
}

__attribute__((visibility("default"))) unsigned fake_launch(void) { return fake_launch_in(NULL); }

static void *launch_there(void *nothing) {
  prctl(PR_SET_NAME, "pt_autograd_0");
  for (int i = 0; i < 3; i++) fake_launch();
  return nothing;
}
/* Launches on a thread that knows nothing of Python, and waits for it. */
__attribute__((visibility("default"))) void fake_launch_elsewhere(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, launch_there, NULL);
  pthread_join(thread, NULL);
}

/* Another tool takes the records. */
static uint8_t theirs[1 << 20];
static void their_request(uint8_t **at, size_t *size, size_t *most) {
  memset(theirs, 0, sizeof theirs);
  *at = theirs, *size = sizeof theirs, *most = 0;
}
static void their_complete(CUcontext context, uint32_t stream, uint8_t *at, size_t size, size_t valid) {
  (void)context, (void)stream, (void)at, (void)size, (void)valid;
}
__attribute__((visibility("default"))) void fake_take(void) {
  cuptiActivityFlushAll(0);
  cuptiActivityRegisterCallbacks(their_request, their_complete);
}

/* And one that asks for them in the middle, and frees what it is given back, which is not its own. */
static void free_theirs(CUcontext context, uint32_t stream, uint8_t *at, size_t size, size_t valid) {
  (void)context, (void)stream, (void)size, (void)valid;
  if (at != theirs) free(at);
}
__attribute__((visibility("default"))) void fake_take_and_free(void) {
  cuptiActivityRegisterCallbacks(their_request, free_theirs);
  cuptiActivityFlushAll(0);
}

/* NVTX: CUPTI calls back when a call has been made, with what it returned. */
static void tell_of(uint32_t call, const void *params, const void *result) {
  CUpti_NvtxData data = {.functionParams = params, .functionReturnValue = result};
  if (subscriber && watched[CUPTI_CB_DOMAIN_NVTX][call]) subscriber(user, CUPTI_CB_DOMAIN_NVTX, call, &data);
}
static void tell(uint32_t call, const void *params) { tell_of(call, params, NULL); }

struct attributes { uint16_t version, size; uint32_t unused[7]; int32_t message_type; const void *message; };
struct registered { void *domain; char *text; };

__attribute__((visibility("default"))) uint64_t fake_start(const char *name) {
  static uint64_t id = 2;
  tell_of(4, (const void *[]){name}, &(uint64_t){++id});
  return id;
}
__attribute__((visibility("default"))) void fake_end(void *id) { tell(7, (const void *[]){id}); }
__attribute__((visibility("default"))) void *fake_register(void *domain, const char *text) {
  struct registered *string = calloc(1, sizeof *string);
  string->domain = domain, string->text = strdup(text);
  tell_of(39, (const void *[]){domain, text}, &string);
  return string;
}
__attribute__((visibility("default"))) uint64_t fake_domain(uint32_t call, void *domain, void *string) { /* 33 pushes, 31 starts */
  static uint64_t id = 100;
  struct attributes attributes = {.message_type = 3, .message = string};
  tell_of(call, (const void *[]){domain, &attributes}, &(uint64_t){++id});
  return id;
}
__attribute__((visibility("default"))) void fake_domain_end(uint32_t call, void *domain, void *id) { /* 34 pops, 32 ends */
  tell(call, (const void *[]){domain, id});
}
__attribute__((visibility("default"))) void fake_push(const char *name) {
  const void *params[] = {name};
  tell(8, params);
}
__attribute__((visibility("default"))) void fake_pop(void) {
  const void *params[] = {NULL};
  tell(11, params);
}
/* Other text behind the same pointer, as after a module was unloaded. */
__attribute__((visibility("default"))) void fake_rename(const char *name) {
  static char kept[2][64];
  static int turn;
  (void)turn;
  strncpy(kept[0], name, sizeof kept[0] - 1);
  kernel_name = kept[0];
}
__attribute__((visibility("default"))) unsigned fake_time_to_flush(void) { return cuptiActivityFlushAll(0) == CUPTI_SUCCESS; }
