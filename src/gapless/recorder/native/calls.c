/* Which calls are recorded, and which are asked where they came from. Calls are known by name, so that no CUPTI version's
 * numbers matter. */
#define _GNU_SOURCE
#include "recorder.h"

#include <string.h>

enum { CALL_IDS = 2048 };

static const CUpti_ActivityKind recorded[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,          CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,            CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_CUDA_EVENT,
    CUPTI_ACTIVITY_KIND_MEMORY2,           CUPTI_ACTIVITY_KIND_MEMORY_POOL,     CUPTI_ACTIVITY_KIND_OVERHEAD,
    CUPTI_ACTIVITY_KIND_MARKER,            CUPTI_ACTIVITY_KIND_RUNTIME,
};

/* What is told once, when it is made: recorded from the start, also where the recording begins later. */
static const CUpti_ActivityKind born[] = {CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT, CUPTI_ACTIVITY_KIND_STREAM};

/* Calls of the runtime that say nothing about engines and are made so often that they would be most of a recording. */
static const char *const noisy[] = {
    "cudaGetDevice", "cudaSetDevice_", "cudaGetLastError", "cudaPeekAtLastError", "cudaGetError", "cudaFuncGetAttributes",
    "cudaFuncSetAttribute", "cudaOccupancy", "cudaPointerGetAttributes", "cudaDeviceGetAttribute", "cudaStreamIsCapturing",
    "cudaStreamGetCaptureInfo", "cudaStreamGetPriority", "cudaStreamGetFlags", "cudaStreamGetDevice", "cudaStreamGetId",
    "cudaDeviceGetStreamPriorityRange", "cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaEventCreate",
    "cudaThreadExchangeStreamCaptureMode", "cudaGetDriverEntryPoint", "cudaGetFuncBySymbol", "cudaFuncGetName",
    "cudaDeviceGetPCIBusId", "cudaDeviceCanAccessPeer", "cudaGetExportTable", "cudaCtxResetPersistingL2Cache", "cudaGetKernel",
    "__cuda",
};

/* Calls of the driver that do. They are those that programs make which do not use the runtime (Triton, Numba). */
static const char *const telling[] = {
    "cuLaunch",        "cuGraphLaunch",   "cuMemcpy",         "cuMemset",        "cuMemAlloc",    "cuMemFree",
    "cuMemHost",       "cuMemPrefetch",   "cuStreamSync",     "cuStreamWait",    "cuStreamCreate", "cuStreamQuery",
    "cuStreamDestroy", "cuEventRecord",   "cuEventSync",      "cuEventQuery",    "cuCtxSync",     "cuCtxCreate",
    "cuModuleLoad",    "cuLibraryLoad",   "cuDevicePrimaryCtxRetain", "cuMemMap",   "cuMemPoolImport", "cuIpcOpen",
    "cuStreamBatchMemOp", "cuStreamAddCallback", "cuWaitExternal",
};

/* Calls of either that are asked for their source line: they launch, copy, fill, wait or allocate. */
static const char *const placed[] = {
    "cudaGraphLaunch", "cudaGraphInstantiate", "cudaMemcpy",
    "cudaMemset", "cudaMemPrefetch", "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister",
    "cudaDeviceSync", "cudaStreamSync", "cudaEventSync", "cudaStreamQuery", "cudaEventQuery", "cudaStreamWait", "cudaEventRecord",
    "cudaStreamCreate",
    "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemFree", "cuMemHost", "cuStreamSync", "cuEventSync",
    "cuCtxSync", "cuStreamWait", "cuEventRecord", "cuStreamQuery", "cuEventQuery",
};

/* Launches are asked some of the time: they are many and cheap, and all of one kernel mostly come from one place. */
static const char *const launches[] = {"cudaLaunchKernel", "cudaLaunchCooperative", "__cudaLaunchKernel", "cuLaunch"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static bool starts(const char *name, const char *const *list, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strncmp(name, list[i], strlen(list[i])) == 0) return true;
  return false;
}

bool calls_named(const char *name, const char *plain) {
  static const char *const suffixes[] = {"_v", "_ptds", "_ptsz"};
  size_t length = strlen(name);
  for (size_t i = 0; i < COUNT(suffixes); i++) {
    const char *found = strstr(name, suffixes[i]);
    if (found && (size_t)(found - name) < length) length = (size_t)(found - name);
  }
  return strlen(plain) == length && strncmp(plain, name, length) == 0;
}

static const char *name_of(CUpti_CallbackDomain domain, uint32_t call) {
  const char *name = NULL;
  return cupti.cuptiGetCallbackName(domain, call, &name) == CUPTI_SUCCESS ? name : NULL;
}

static uint64_t refusals; /* a bit a kind: said once in a recording */

static void refused(CUpti_ActivityKind kind, CUptiResult result) {
  struct bytes text = {0};
  if (refusals >> kind & 1) return;
  refusals |= 1ull << kind;
  bytes_text(&text, "CUPTI does not record activity kind %d here: %s", (int)kind, cupti_error(result));
  bytes_add(&text, "", 1);
  if (text.at) file_note("kind-refused", text.at);
}

static void record_kinds(bool on, const CUpti_ActivityKind *list, size_t count) {
  for (size_t i = 0; i < count; i++) {
    CUptiResult result = on ? cupti.cuptiActivityEnable(list[i]) : cupti.cuptiActivityDisable(list[i]);
    if (on && result != CUPTI_SUCCESS) refused(list[i], result);
  }
}

void calls_record_births(bool on) {
  refusals = 0;
  record_kinds(on, born, COUNT(born));
}

void calls_record(bool on, bool attached) {
  record_kinds(on, recorded, COUNT(recorded));
  if (on && cupti.cuptiActivityEnableCudaEventDeviceTimestamps) cupti.cuptiActivityEnableCudaEventDeviceTimestamps(1);
  if (!cupti.cuptiActivityEnableRuntimeApi || !cupti.cuptiActivityEnableDriverApi) { /* before CUPTI 12.6 */
    if (on) cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER);
    else cupti.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_DRIVER);
    return;
  }
  if (attached) { /* calls of the driver by name are not recorded where its contexts are older: by kind, less the others */
    if (on) cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER);
    else cupti.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_DRIVER);
  }
  for (uint32_t call = 1; call < CALL_IDS; call++) {
    const char *name = name_of(CUPTI_CB_DOMAIN_RUNTIME_API, call);
    if (on && name && starts(name, noisy, COUNT(noisy)) && strncmp(name, "__cudaLaunch", 12) != 0)
      cupti.cuptiActivityEnableRuntimeApi(call, 0);
    name = name_of(CUPTI_CB_DOMAIN_DRIVER_API, call);
    bool tells = name && starts(name, telling, COUNT(telling));
    if (tells || (name && attached && on)) cupti.cuptiActivityEnableDriverApi(call, on && tells);
  }
}

static const CUpti_CallbackDomain domains[] = {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API};

void calls_watch(CUpti_SubscriberHandle subscriber) {
  for (size_t i = 0; i < COUNT(domains); i++)
    for (uint32_t call = 1; call < CALL_IDS; call++) {
      const char *name = name_of(domains[i], call);
      if (name && starts(name, placed, COUNT(placed))) cupti.cuptiEnableCallback(1, subscriber, domains[i], call);
    }
}

/* Some times a second: they are looked up by name once. */
void calls_watch_launches(CUpti_SubscriberHandle subscriber, bool on) {
  static struct { CUpti_CallbackDomain domain; uint32_t call; } found[64];
  static size_t count;
  static bool looked;
  for (size_t i = 0; !looked && i < COUNT(domains); i++)
    for (uint32_t call = 1; call < CALL_IDS && count < COUNT(found); call++) {
      const char *name = name_of(domains[i], call);
      if (name && starts(name, launches, COUNT(launches))) found[count].domain = domains[i], found[count++].call = call;
    }
  looked = true;
  for (size_t i = 0; i < count; i++) cupti.cuptiEnableCallback(on, subscriber, found[i].domain, found[i].call);
}
