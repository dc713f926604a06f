"""What a host call asks of CUDA, by the name of its API: runtime, driver or HIP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from gapless.model.kinds import CallKind

_LOADING = ("Runtime Triggered Module Loading", "Lazy Function Loading")


def is_loading(overhead: str) -> bool:
    """Whether what a profiler notes as overhead is the driver loading code, which happens without a profiler too."""
    return overhead in _LOADING


# Words that follow cuda, cu or hip, without version suffixes, for each class of section 4 of the specification.
_NAMES: Mapping[CallKind, str] = {
    CallKind.LAUNCH: """
        Launch LaunchKernel LaunchKernelExC LaunchKernelEx LaunchCooperativeKernel LaunchCooperativeKernelMultiDevice
        LaunchGrid LaunchGridAsync ModuleLaunchKernel ModuleLaunchCooperativeKernel HccModuleLaunchKernel
        ModuleLaunchCooperativeKernelMultiDevice ExtLaunchKernel ExtModuleLaunchKernel ExtLaunchMultiKernelMultiDevice
        LaunchByPtr DrvLaunchKernelEx LaunchKernelPtr""",
    CallKind.HOST_FUNCTION: "LaunchHostFunc StreamAddCallback",
    CallKind.GRAPH_LAUNCH: "GraphLaunch",
    CallKind.SYNC_DEVICE: "DeviceSynchronize CtxSynchronize ThreadSynchronize",
    CallKind.SYNC_STREAM: "StreamSynchronize",
    CallKind.SYNC_EVENT: "EventSynchronize",
    CallKind.QUERY: "EventQuery StreamQuery",
    CallKind.RECORD: "EventRecord EventRecordWithFlags",
    CallKind.WAIT_EVENT: "StreamWaitEvent",
    CallKind.ELAPSED: "EventElapsedTime",
    CallKind.MALLOC: """
        Malloc MallocPitch Malloc3D MallocArray Malloc3DArray MallocMipmappedArray MallocManaged MemAlloc MemAllocPitch
        MemAllocManaged ArrayCreate Array3DCreate MipmappedArrayCreate ExtMallocWithFlags MemCreate""",
    CallKind.FREE: "Free FreeArray FreeMipmappedArray MemFree ArrayDestroy MipmappedArrayDestroy",
    CallKind.HOST_MALLOC: "MallocHost HostAlloc MemAllocHost MemHostAlloc HostMalloc",
    CallKind.HOST_FREE: "FreeHost MemFreeHost HostFree",
    CallKind.HOST_REGISTER: "HostRegister MemHostRegister",
    CallKind.HOST_UNREGISTER: "HostUnregister MemHostUnregister",
    CallKind.MALLOC_ASYNC: "MallocAsync MallocFromPoolAsync MemAllocAsync MemAllocFromPoolAsync",
    CallKind.FREE_ASYNC: "FreeAsync MemFreeAsync",
    CallKind.CAPTURE: """
        StreamBeginCapture StreamBeginCaptureToGraph StreamEndCapture StreamBeginRecaptureToGraph
        StreamUpdateCaptureDependencies ThreadExchangeStreamCaptureMode""",
    CallKind.STREAM_CREATE: """
        StreamCreate StreamCreateWithFlags StreamCreateWithPriority ExtStreamCreateWithCUMask GreenCtxStreamCreate
        ExecutionCtxStreamCreate""",
    CallKind.STREAM_DESTROY: "StreamDestroy",
    CallKind.EVENT_CREATE: "EventCreate EventCreateWithFlags",
    CallKind.EVENT_DESTROY: "EventDestroy",
    CallKind.FUNCTION_ATTRIBUTES: """
        FuncGetAttributes FuncGetAttribute FuncSetAttribute FuncSetCacheConfig FuncSetSharedMemConfig FuncLoad
        KernelGetAttribute KernelSetAttribute KernelSetCacheConfig""",
    CallKind.DEVICE_LIMIT: "DeviceSetLimit CtxSetLimit ThreadSetLimit",
    CallKind.DEVICE: """
        SetDevice InitDevice DeviceReset ThreadExit CtxCreate CtxDestroy CtxSetCurrent DevicePrimaryCtxRetain
        DevicePrimaryCtxRelease DevicePrimaryCtxReset DevicePrimaryCtxSetFlags SetDeviceFlags CtxPushCurrent
        CtxPopCurrent SetValidDevices Init""",
}
_KINDS: Mapping[str, CallKind] = {word: kind for kind, words in _NAMES.items() for word in words.split()}

_MODULE = re.compile(
    r"(Module|Library)(Load|Unload|GetFunction|GetGlobal|GetKernel|GetManaged|GetUnifiedFunction|Enum)"
)
_PREFIX = re.compile(r"(?:__)?(?:cuda|cu|hip)(?=[A-Z])")
_SUFFIX = re.compile(r"(?:_v\d+|_ptds|_ptsz|_spt|_?R\d{4})+$")

# Calls that ask for nothing and wait for nothing: a timeline has thousands of them and they say little.
_NOISY = re.compile(
    r"""(?:Get|PeekAt)LastError | GetError(?:String|Name) | Get(?:Device|DeviceCount|DeviceProperties|DeviceFlags)$
      | (?:Device|Ctx|Pointer|Kernel|Func|Stream|Mem)Get | PointerGetAttributes? | Occupancy | StreamIsCapturing
      | StreamGetCaptureInfo | ModuleGetLoadingMode | (?:Runtime|Driver)GetVersion | GetSymbol | MemGetInfo | HostGet
      | (?:Event|Stream)Query
      | (?:Push|Pop)CallConfiguration | TensorMapEncode | Profiler(?:Start|Stop) | GetProcAddress
      | GetExportTable | GetDriverEntryPoint | FuncIsLoaded | RegisterFatBinary | CtxPushCurrent | CtxPopCurrent""",
    re.VERBOSE,
)


@lru_cache(maxsize=4096)
def call_kind(api: str) -> CallKind:
    """Give the class of an API by its name, such as ``cudaMemcpyAsync_v3020``, ``cuMemcpyHtoDAsync_v2``, ``hipMemcpy``.

    Names that no list knows are ``OTHER``.
    """
    word = _word(api)
    if (kind := _KINDS.get(word)) is not None:
        return kind
    if word.startswith("Memcpy"):  # table 3.1; hipMemcpyWithStream too waits for its stream
        return CallKind.COPY_ASYNC if "Async" in word else CallKind.COPY_SYNC
    if word.startswith("Memset"):
        return CallKind.MEMSET_ASYNC if "Async" in word else CallKind.MEMSET_SYNC
    if _MODULE.match(word):
        return CallKind.MODULE
    if word.startswith("Graph"):
        return CallKind.GRAPH_BUILD
    return CallKind.OTHER


@lru_cache(maxsize=4096)
def is_noisy(api: str) -> bool:
    """Tell whether a call is a mere question to the library (a query, an attribute, the last error)."""
    return _NOISY.match(_word(api)) is not None


def _word(api: str) -> str:
    """Take prefix and version suffixes off: ``cuMemcpyHtoDAsync_v2_ptsz`` gives ``MemcpyHtoDAsync``."""
    return _SUFFIX.sub("", _PREFIX.sub("", api, count=1))
