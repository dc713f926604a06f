/* What is older than a recording that begins within a program (gapless.record()): devices, contexts and streams.
 *
 * CUPTI tells of them when they are made, and that was before. So the driver is asked, and what it says is written as records of
 * the same form. Nobody lists the streams: each is asked when a call names it, then and there on the thread that makes the
 * call, while it surely exists. The recorder's thread writes the records. */
#define _GNU_SOURCE
#include "recorder.h"
#include "kinds.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef record_8 device_record;
typedef record_9 context_record;
typedef record_37 stream_record;

enum { CALL_IDS = 2048, ROOM = 4096, DEVICES = 64, LEGACY = 1, PER_THREAD = 2 };

/* Calls that name a stream, and where in their parameters: part of CUDA's ABI. */
enum { IN_CONFIG = 32, BY_CONFIG = 1 << 8 }; /* the parameter is a launch configuration, and the stream stands in that */
static const struct { const char *name; uint16_t at; } known[] = {
    {"cudaLaunchKernel", 48},    {"cudaLaunchCooperativeKernel", 48}, {"cudaLaunchKernelExC", BY_CONFIG},
    {"cudaMemcpyAsync", 32},     {"cudaMemcpy2DAsync", 56},   {"cudaMemcpy3DAsync", 8},    {"cudaMemcpyPeerAsync", 40},
    {"cudaMemsetAsync", 24},     {"cudaMemset2DAsync", 40},   {"cudaMallocAsync", 16},     {"cudaFreeAsync", 8},
    {"cudaEventRecord", 8},      {"cudaEventRecordWithFlags", 8}, {"cudaStreamWaitEvent", 0}, {"cudaStreamSynchronize", 0},
    {"cudaStreamQuery", 0},      {"cudaGraphLaunch", 8},
    {"cuLaunchKernel", 40},      {"cuLaunchCooperativeKernel", 40}, {"cuLaunchKernelEx", BY_CONFIG},
    {"cuMemcpyAsync", 24},       {"cuMemcpyHtoDAsync", 24},   {"cuMemcpyDtoHAsync", 24},   {"cuMemcpyDtoDAsync", 24},
    {"cuMemcpyPeerAsync", 40},   {"cuMemcpy2DAsync", 8},      {"cuMemcpy3DAsync", 8},
    {"cuMemsetD8Async", 24},     {"cuMemsetD16Async", 24},    {"cuMemsetD32Async", 24},
    {"cuMemAllocAsync", 16},     {"cuMemFreeAsync", 8},
    {"cuEventRecord", 8},        {"cuEventRecordWithFlags", 8}, {"cuStreamWaitEvent", 0},  {"cuStreamSynchronize", 0},
    {"cuStreamQuery", 0},        {"cuGraphLaunch", 8},
};
static const CUpti_CallbackDomain domains[] = {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API};
static struct { bool names, per_thread; uint16_t at; } calls[2][CALL_IDS];

/* --- the driver */
#define DRIVER(F)                                                                                         \
  F(int, cuCtxGetCurrent, (CUcontext *)) F(int, cuDeviceGetCount, (int *)) F(int, cuDeviceGet, (CUdevice *, int))      \
  F(int, cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) F(int, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
  F(int, cuDevicePrimaryCtxRelease_v2, (CUdevice)) F(int, cuDeviceGetName, (char *, int, CUdevice))                    \
  F(int, cuDeviceGetAttribute, (int *, int, CUdevice)) F(int, cuDeviceTotalMem_v2, (size_t *, CUdevice))               \
  F(int, cuDeviceGetUuid, (CUuuid *, CUdevice)) F(int, cuStreamGetFlags, (CUstream, unsigned *))                       \
  F(int, cuStreamGetPriority, (CUstream, int *)) F(int, cuStreamGetCtx, (CUstream, CUcontext *))
static struct {
#define F(result, name, parameters) result (*name) parameters;
  DRIVER(F)
#undef F
} cuda;

static bool find_driver(void) {
  bool all = cupti.cuptiGetContextId && cupti.cuptiGetDeviceId && cupti.cuptiGetStreamIdEx;
#define F(result, name, parameters) all = (*(void **)&cuda.name = cuda_function(#name)) && all;
  DRIVER(F)
#undef F
  return all;
}

/* --- what was found, in the order in which it was: a row is claimed by its number, filled in, then marked as ready */
struct row { _Atomic bool ready; bool context; uint32_t context_id, device, stream, flag; int32_t priority; };
static struct row rows[ROOM];
static _Atomic uint32_t row_count;
static uint32_t rows_written;
static _Atomic uint64_t met[ROOM * 2]; /* what was asked already, in an open table */
static bool usable, devices_told[DEVICES];

static bool first_time(uint64_t key) {
  key = (key * 0x9E3779B97F4A7C15u) | 1;
  size_t at = (size_t)(key >> 40) % (ROOM * 2);
  for (int tries = 0; tries < 64; tries++, at = (at + 1) % (ROOM * 2)) {
    uint64_t there = atomic_load_explicit(&met[at], memory_order_relaxed);
    if (there == key) return false;
    if (there) continue;
    if (atomic_compare_exchange_strong(&met[at], &there, key)) return true;
    if (there == key) return false;
  }
  return false; /* too many to tell of all */
}

static struct row *claim(void) {
  uint32_t number = atomic_fetch_add(&row_count, 1);
  return number < ROOM ? &rows[number] : NULL;
}

static void meet_context(CUcontext context) {
  uint32_t id, device, null_stream;
  if (!context || cupti.cuptiGetContextId(context, &id) != CUPTI_SUCCESS || !first_time((uint64_t)id << 32)) return;
  if (cupti.cuptiGetDeviceId(context, &device) != CUPTI_SUCCESS) return;
  if (cupti.cuptiGetStreamIdEx(context, NULL, 0, &null_stream) != CUPTI_SUCCESS) return;
  struct row *row = claim();
  if (!row) return;
  row->context = true, row->context_id = id, row->device = device, row->stream = null_stream;
  atomic_store_explicit(&row->ready, true, memory_order_release);
}

static void meet_stream(CUcontext context, uint32_t context_uid, CUstream stream, bool of_thread) {
  uint64_t key = of_thread ? thread_number() : (uint64_t)(uintptr_t)stream;
  unsigned flags = 0;
  int priority = 0;
  uint32_t id, context_id;
  if (!first_time(key ^ (uint64_t)context_uid << 48)) return;
  if (!of_thread) {
    CUcontext own = NULL;
    if (cuda.cuStreamGetFlags(stream, &flags) != 0 || cuda.cuStreamGetPriority(stream, &priority) != 0) return;
    if (cuda.cuStreamGetCtx(stream, &own) == 0 && own) context = own;
  }
  meet_context(context);
  if (cupti.cuptiGetContextId(context, &context_id) != CUPTI_SUCCESS) return;
  if (cupti.cuptiGetStreamIdEx(context, of_thread ? NULL : stream, of_thread, &id) != CUPTI_SUCCESS) return;
  struct row *row = claim();
  if (!row) return;
  row->context = false, row->context_id = context_id, row->stream = id, row->priority = priority;
  row->flag = flags & 1 ? CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING : CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT;
  atomic_store_explicit(&row->ready, true, memory_order_release);
}

void older_call(CUpti_CallbackDomain domain, uint32_t call, const CUpti_CallbackData *data) {
  if (!usable || call >= CALL_IDS || (domain != domains[0] && domain != domains[1])) return;
  const char *params = data->functionParams;
  size_t of = domain == domains[1];
  if (!params || !calls[of][call].names) return;
  uint16_t at = calls[of][call].at;
  if (at == BY_CONFIG) memcpy(&params, params, sizeof params), at = IN_CONFIG;
  if (!params) return;
  uintptr_t handle;
  memcpy(&handle, params + at, sizeof handle);
  if (handle > PER_THREAD) meet_stream(data->context, data->contextUid, (CUstream)handle, false);
  else if (handle == PER_THREAD || (handle == 0 && calls[of][call].per_thread)) meet_stream(data->context, data->contextUid, NULL, true);
}

/* --- at the start */
void older_start(void) {
  memset(devices_told, 0, sizeof devices_told);
  memset(rows, 0, sizeof rows);
  memset(met, 0, sizeof met);
  atomic_store(&row_count, 0);
  rows_written = 0;
  if (!(usable = find_driver())) return;
  for (size_t of = 0; of < 2; of++)
    for (uint32_t call = 1; call < CALL_IDS; call++) {
      const char *name = NULL;
      if (cupti.cuptiGetCallbackName(domains[of], call, &name) != CUPTI_SUCCESS || !name) continue;
      for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (calls_named(name, known[i].name)) {
          calls[of][call].names = true, calls[of][call].at = known[i].at;
          calls[of][call].per_thread = strstr(name, "_ptsz") || strstr(name, "_ptds");
        }
    }
  CUcontext context = NULL;
  int count = 0;
  if (cuda.cuCtxGetCurrent(&context) == 0) meet_context(context);
  if (cuda.cuDeviceGetCount(&count) != 0) return;
  for (int i = 0; i < count; i++) {
    CUdevice device;
    unsigned flags;
    int active = 0;
    if (cuda.cuDeviceGet(&device, i) != 0 || cuda.cuDevicePrimaryCtxGetState(device, &flags, &active) != 0 || !active) continue;
    if (cuda.cuDevicePrimaryCtxRetain(&context, device) != 0) continue; /* it is there already: only counted */
    meet_context(context);
    cuda.cuDevicePrimaryCtxRelease_v2(device);
  }
}

/* --- on the recorder's thread: records like CUPTI's */
static uint32_t attribute(CUdevice device, int which) {
  int value = 0;
  return cuda.cuDeviceGetAttribute(&value, which, device) == 0 && value > 0 ? (uint32_t)value : 0;
}

static void write_device(uint32_t number) {
  enum { THREADS_PER_WARP = 10, CLOCK_KHZ = 13, MULTIPROCESSORS = 16, L2_BYTES = 38, THREADS_PER_SM = 39, ENGINES = 40,
         MAJOR = 75, MINOR = 76, SHARED_PER_SM = 81, REGISTERS_PER_SM = 82, BLOCKS_PER_SM = 106 }; /* CUdevice_attribute */
  static char names[DEVICES][128];
  device_record record;
  CUdevice device;
  size_t memory = 0;
  if (number >= DEVICES || devices_told[number] || cuda.cuDeviceGet(&device, (int)number) != 0) return;
  devices_told[number] = true;
  memset(&record, 0, sizeof record);
  cuda.cuDeviceGetName(names[number], sizeof names[number], device);
  cuda.cuDeviceTotalMem_v2(&memory, device);
  cuda.cuDeviceGetUuid((CUuuid *)&record.uuid, device);
  record.kind = CUPTI_ACTIVITY_KIND_DEVICE;
  record.id = number, record.name = names[number], record.globalMemorySize = memory;
  record.numMultiprocessors = attribute(device, MULTIPROCESSORS), record.numMemcpyEngines = attribute(device, ENGINES);
  record.numThreadsPerWarp = attribute(device, THREADS_PER_WARP);
  if (record.numThreadsPerWarp) record.maxWarpsPerMultiprocessor = attribute(device, THREADS_PER_SM) / record.numThreadsPerWarp;
  record.maxBlocksPerMultiprocessor = attribute(device, BLOCKS_PER_SM);
  record.maxSharedMemoryPerMultiprocessor = attribute(device, SHARED_PER_SM);
  record.maxRegistersPerMultiprocessor = attribute(device, REGISTERS_PER_SM);
  record.computeCapabilityMajor = attribute(device, MAJOR), record.computeCapabilityMinor = attribute(device, MINOR);
  record.coreClockRate = attribute(device, CLOCK_KHZ), record.l2CacheSize = attribute(device, L2_BYTES);
  records_add(CUPTI_ACTIVITY_KIND_DEVICE, &record, sizeof record);
}

void older_drain(void) {
  for (; rows_written < ROOM && atomic_load_explicit(&rows[rows_written].ready, memory_order_acquire); rows_written++) {
    const struct row *row = &rows[rows_written];
    if (row->context) {
      context_record record = {.kind = CUPTI_ACTIVITY_KIND_CONTEXT, .contextId = row->context_id, .deviceId = row->device};
      record.computeApiKind = CUPTI_ACTIVITY_COMPUTE_API_CUDA, record.nullStreamId = (__typeof__(record.nullStreamId))row->stream;
      write_device(row->device);
      records_add(CUPTI_ACTIVITY_KIND_CONTEXT, &record, sizeof record);
    } else {
      stream_record record = {.kind = CUPTI_ACTIVITY_KIND_STREAM, .contextId = row->context_id, .streamId = row->stream};
      record.priority = (__typeof__(record.priority))row->priority, record.flag = (__typeof__(record.flag))row->flag;
      records_add(CUPTI_ACTIVITY_KIND_STREAM, &record, sizeof record);
    }
  }
}
