/* What a driver says of one device, of its context and its streams: the last bits of a stream's handle are its number, the bit above
 * them whether it waits for the default stream. */
#include <stddef.h>
#include <string.h>

int cuCtxGetCurrent(void **context) { return *context = (void *)"context", 0; }
int cuCtxSynchronize(void) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 2, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, number < 2 ? 0 : 101; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *flags = 0, *active = device == 0, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)"context", device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
int cuDeviceGetName(char *name, int room, int device) { return (void)device, strncpy(name, "A fake of a GPU", (size_t)room), 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = (size_t)8 << 30, 0; }
int cuDeviceGetUuid(void *uuid, int device) { return memset(uuid, 17 + device, 16), 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
  (void)device;
  return *value = which == 16 ? 132 : which == 39 ? 2048 : which == 10 ? 32 : which == 75 ? 9 : which, 0;
}
int cuStreamGetFlags(void *stream, unsigned *flags) { return *flags = (size_t)stream >> 8 & 1, 0; }
int cuStreamGetPriority(void *stream, int *priority) { return *priority = (size_t)stream >> 8 & 1 ? -5 : 0, 0; }
int cuStreamGetCtx(void *stream, void **context) { return (void)stream, *context = (void *)"context", 0; }
