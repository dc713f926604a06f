/* What a recording says of its process: the program, the machine, what changes how CUDA behaves. */
#define _GNU_SOURCE
#include "recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void add_command(struct bytes *json) {
  char command[16384];
  FILE *file = fopen("/proc/self/cmdline", "re");
  size_t length = file ? fread(command, 1, sizeof command - 1, file) : 0;
  if (file) fclose(file);
  command[length] = 0;
  bytes_text(json, ", \"command\": [");
  for (size_t at = 0; at < length; at += strlen(command + at) + 1) {
    if (at) bytes_text(json, ", ");
    bytes_json(json, command + at, strlen(command + at));
  }
  bytes_text(json, "]");
}

static void add_environment(struct bytes *json) {
  static const char *const names[] = {
      "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING",
      "CUDA_DEVICE_MAX_COPY_CONNECTIONS", "CUDA_SCALE_LAUNCH_QUEUES", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
      "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUPY_ACCELERATORS", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
      "NCCL_LAUNCH_MODE", "RANK", "LOCAL_RANK", "WORLD_SIZE",
  };
  const char *comma = "";
  bytes_text(json, ", \"environment\": {");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    if (!value) continue;
    bytes_text(json, "%s\"%s\": ", comma, names[i]);
    bytes_json(json, value, strlen(value));
    comma = ", ";
  }
  bytes_text(json, "}");
}

void process_write(void) {
  struct bytes json = {0};
  char executable[4096], host[256] = "", python[32] = "";
  ssize_t length = readlink("/proc/self/exe", executable, sizeof executable);
  uint32_t version = 0;
  int driver = 0;
  int (*driver_version)(int *) = (int (*)(int *))cuda_function("cuDriverGetVersion");
  cupti.cuptiGetVersion(&version);
  if (driver_version) driver_version(&driver);
  gethostname(host, sizeof host - 1);
  python_version(python, sizeof python);
  bytes_text(&json, "{\"pid\": %d, \"parent\": %d", (int)getpid(), (int)getppid());
  add_command(&json);
  bytes_text(&json, ", \"executable\": ");
  bytes_json(&json, executable, length > 0 ? (size_t)length : 0);
  bytes_text(&json, ", \"host\": ");
  bytes_json(&json, host, strlen(host));
  bytes_text(&json, ", \"started\": %llu, \"gapless\": ", (unsigned long long)now_ns(CLOCK_REALTIME));
  bytes_json(&json, options.version, strlen(options.version));
  bytes_text(&json, ", \"cupti\": %u, \"headers\": %u, \"driver\": %d, \"how\": \"%s\", \"begins\": \"%s\", \"python\": ",
             version, (unsigned)CUPTI_API_VERSION, driver, options.attached ? "attached" : "injected",
             options.range ? "range" : options.after > 0 ? "after" : "start");
  bytes_json(&json, python, strlen(python));
  add_environment(&json);
  bytes_text(&json, "}");
  file_block(PROCESS, &(struct iovec){json.at, json.count}, 1);
  free(json.at);
}
