from __future__ import annotations

import pytest

from gapless.model.kinds import CallKind
from gapless.timeline.apis import call_kind, is_noisy

KINDS = {
    CallKind.LAUNCH: """
        cudaLaunchKernel cudaLaunchKernel_v7000 cudaLaunchKernel_ptsz cudaLaunchKernelExC cudaLaunchKernelExC_v11060
        cudaLaunchCooperativeKernel cudaLaunchCooperativeKernelMultiDevice cudaLaunch cuLaunchKernel
        cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchCooperativeKernel cuLaunchGridAsync hipLaunchKernel
        hipModuleLaunchKernel hipExtModuleLaunchKernel hipExtLaunchKernel hipHccModuleLaunchKernel
        hipLaunchCooperativeKernel""",
    CallKind.COPY_SYNC: """
        cudaMemcpy cudaMemcpy_v3020 cudaMemcpy_ptds cudaMemcpy2D cudaMemcpy3D cudaMemcpyToSymbol
        cudaMemcpyFromSymbol cudaMemcpyToArray cudaMemcpyPeer cudaMemcpy3DPeer cuMemcpy cuMemcpyHtoD_v2
        cuMemcpyDtoH_v2_ptds cuMemcpyAtoH cuMemcpy2DUnaligned hipMemcpy hipMemcpyDtoH hipMemcpyWithStream""",
    CallKind.COPY_ASYNC: """
        cudaMemcpyAsync cudaMemcpyAsync_v3020 cudaMemcpyAsync_ptsz cudaMemcpy2DAsync cudaMemcpyPeerAsync
        cudaMemcpyToSymbolAsync cudaMemcpyBatchAsync cudaMemcpy3DBatchAsync cuMemcpyHtoDAsync_v2
        cuMemcpyDtoHAsync_v2_ptsz cuMemcpyAsync cuMemcpyPeerAsync cuMemcpy3DAsync_v2 hipMemcpyAsync
        hipMemcpyHtoDAsync hipMemcpyPeerAsync""",
    CallKind.MEMSET_SYNC: "cudaMemset cudaMemset2D cuMemsetD8_v2 cuMemsetD32_v2 cuMemsetD2D16 hipMemset hipMemsetD8",
    CallKind.MEMSET_ASYNC: "cudaMemsetAsync cudaMemset3DAsync cuMemsetD8Async cuMemsetD32Async_ptsz hipMemsetAsync",
    CallKind.SYNC_DEVICE: "cudaDeviceSynchronize cuCtxSynchronize cuCtxSynchronize_v2 hipDeviceSynchronize",
    CallKind.SYNC_STREAM: "cudaStreamSynchronize cudaStreamSynchronize_ptsz cuStreamSynchronize hipStreamSynchronize",
    CallKind.SYNC_EVENT: "cudaEventSynchronize cuEventSynchronize hipEventSynchronize",
    CallKind.QUERY: "cudaEventQuery cudaStreamQuery cuEventQuery cuStreamQuery_ptsz hipEventQuery",
    CallKind.RECORD: """
        cudaEventRecord cudaEventRecordWithFlags cuEventRecord_ptsz cuEventRecordWithFlags hipEventRecord""",
    CallKind.WAIT_EVENT: "cudaStreamWaitEvent cudaStreamWaitEvent_v3020 cuStreamWaitEvent hipStreamWaitEvent",
    CallKind.ELAPSED: "cudaEventElapsedTime cudaEventElapsedTime_v2 cuEventElapsedTime_v2 hipEventElapsedTime",
    CallKind.MALLOC: """
        cudaMalloc cudaMallocPitch cudaMalloc3D cudaMallocManaged cuMemAlloc_v2 cuMemAllocManaged hipMalloc""",
    CallKind.FREE: "cudaFree cudaFree_v3020 cudaFreeArray cuMemFree_v2 hipFree",
    CallKind.HOST_MALLOC: "cudaHostAlloc cudaMallocHost cuMemHostAlloc cuMemAllocHost_v2 hipHostMalloc hipHostAlloc",
    CallKind.HOST_FREE: "cudaFreeHost cuMemFreeHost hipHostFree",
    CallKind.HOST_REGISTER: "cudaHostRegister cuMemHostRegister_v2 hipHostRegister",
    CallKind.HOST_UNREGISTER: "cudaHostUnregister cuMemHostUnregister hipHostUnregister",
    CallKind.MALLOC_ASYNC: "cudaMallocAsync cudaMallocFromPoolAsync cuMemAllocAsync_ptsz hipMallocAsync",
    CallKind.FREE_ASYNC: "cudaFreeAsync cuMemFreeAsync hipFreeAsync",
    CallKind.GRAPH_LAUNCH: "cudaGraphLaunch cudaGraphLaunch_ptsz cuGraphLaunch hipGraphLaunch",
    CallKind.GRAPH_BUILD: """
        cudaGraphInstantiate cudaGraphCreate cudaGraphAddMemcpyNode cuGraphUpload hipGraphInstantiate""",
    CallKind.CAPTURE: "cudaStreamBeginCapture cuStreamBeginCapture_v2 cudaStreamEndCapture hipStreamEndCapture",
    CallKind.HOST_FUNCTION: "cudaLaunchHostFunc cuLaunchHostFunc_v2 cudaStreamAddCallback hipLaunchHostFunc",
    CallKind.STREAM_CREATE: "cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority hipStreamCreate",
    CallKind.STREAM_DESTROY: "cudaStreamDestroy cudaStreamDestroy_v5050 cuStreamDestroy_v2 hipStreamDestroy",
    CallKind.EVENT_CREATE: "cudaEventCreate cudaEventCreateWithFlags cuEventCreate hipEventCreateWithFlags",
    CallKind.EVENT_DESTROY: "cudaEventDestroy cuEventDestroy_v2 hipEventDestroy",
    CallKind.MODULE: """
        cuModuleLoadData cuModuleLoadDataEx cuLibraryLoadData cuModuleUnload cudaLibraryLoadData hipModuleLoad""",
    CallKind.FUNCTION_ATTRIBUTES: """
        cudaFuncGetAttributes cudaFuncSetAttribute cuFuncSetAttribute cuFuncSetCacheConfig""",
    CallKind.DEVICE_LIMIT: "cudaDeviceSetLimit cuCtxSetLimit hipDeviceSetLimit",
    CallKind.DEVICE: "cudaSetDevice cudaDeviceReset cuCtxSetCurrent cuDevicePrimaryCtxRetain hipSetDevice cuInit",
    CallKind.OTHER: """
        cudaGetLastError cudaStreamIsCapturing cudaPointerGetAttributes cudaMemGetInfo cudaGetDeviceCount INVALID
        cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cudaMemPrefetchAsync cuMemAdvise
        hipGetDevicePropertiesR0600 cudaStreamGetCaptureInfo_v2 cudaMemPoolTrimTo malloc memcpy
        cudnnConvolutionForward""",
}


@pytest.mark.parametrize(("api", "kind"), [(api, kind) for kind, apis in KINDS.items() for api in apis.split()])
def test_every_class_of_call(api: str, kind: CallKind) -> None:
    assert call_kind(api) is kind


def test_every_class_is_named_by_some_api() -> None:
    assert set(KINDS) == {kind for kind in CallKind if kind <= CallKind.DEVICE}  # those after it only programs have


@pytest.mark.parametrize(
    "api",
    [
        "cudaGetLastError",
        "cudaPeekAtLastError",
        "cudaGetDevice",
        "cudaDeviceGetAttribute",
        "cudaStreamIsCapturing",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        "cudaPointerGetAttributes",
        "cudaEventQuery",
        "cudaStreamQuery",
        "cudaStreamGetCaptureInfo_v2",
        "cudaFuncGetAttributes",
        "cudaRuntimeGetVersion",
        "hipGetDevicePropertiesR0600",
        "__cudaPushCallConfiguration",
        "cuCtxGetCurrent",
        "cuPointerGetAttribute",
        "cudaHostGetDevicePointer",
        "cuModuleGetLoadingMode",
        "hipGetLastError",
    ],
)
def test_questions_are_noisy(api: str) -> None:
    assert is_noisy(api)


@pytest.mark.parametrize(
    "api",
    [
        "cudaMemcpyAsync",
        "cudaLaunchKernel",
        "cudaFree",
        "cudaEventRecord",
        "cudaSetDevice",
        "hipMemcpy",
        "cuModuleLoadData",
    ],
)
def test_what_does_something_is_not_noisy(api: str) -> None:
    assert not is_noisy(api)
