// The chunk loop as one writes it in CUDA C++: k streams, a buffer pair each, copies and kernel in stream order.
// Compiled with nvcc where there is one, and timed beside the pipeline.

#include <cstddef>
#include <cuda_runtime.h>

namespace {
constexpr int MOST = 64;
cudaStream_t streams[MOST];
cudaEvent_t done[MOST];
float* inputs[MOST];
float* outputs[MOST];

__global__ void axpb(const float* x, float* y, size_t n) {
  size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}
}  // namespace

extern "C" int loop_open(int count, size_t chunk_bytes) {
  for (int s = 0; s < count; s++) {
    if (cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking)) return 1;
    if (cudaEventCreateWithFlags(&done[s], cudaEventDisableTiming)) return 1;
    if (cudaMalloc(&inputs[s], chunk_bytes) || cudaMalloc(&outputs[s], chunk_bytes)) return 2;
  }
  return 0;
}

extern "C" int loop_run(const float* x, float* y, size_t n, size_t chunk, int count) {
  int index = 0;
  for (size_t first = 0; first < n; first += chunk, index++) {
    int s = index % count;
    size_t here = n - first < chunk ? n - first : chunk;
    if (index >= count) cudaEventSynchronize(done[s]);
    cudaMemcpyAsync(inputs[s], x + first, here * sizeof(float), cudaMemcpyHostToDevice, streams[s]);
    axpb<<<static_cast<unsigned>((here + 255) / 256), 256, 0, streams[s]>>>(inputs[s], outputs[s], here);
    cudaMemcpyAsync(y + first, outputs[s], here * sizeof(float), cudaMemcpyDeviceToHost, streams[s]);
    cudaEventRecord(done[s], streams[s]);
  }
  for (int s = 0; s < count && s < index; s++) cudaEventSynchronize(done[s]);
  return static_cast<int>(cudaGetLastError());
}

extern "C" void loop_close(int count) {
  for (int s = 0; s < count; s++) {
    cudaFree(inputs[s]);
    cudaFree(outputs[s]);
    cudaEventDestroy(done[s]);
    cudaStreamDestroy(streams[s]);
  }
}
