/* The few names of cuda.h that CUPTI's headers need. The recorder calls libcuda through dlsym and only passes handles on,
 * so that it builds where there are CUPTI's headers but no CUDA toolkit. */
#ifndef GAPLESS_SHIM_CUDA_H
#define GAPLESS_SHIM_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmod_st *CUmodule;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { void *base_ptr; size_t num_bytes; float hitRatio; int hitProp, missProp; } CUaccessPolicyWindow;
typedef int CUdevice_attribute;
typedef int CUgraphNodeType;
typedef int CUstreamAttrID;
typedef union { char pad[64]; } CUstreamAttrValue;
typedef CUstreamAttrID CUlaunchAttributeID;
typedef CUstreamAttrValue CUlaunchAttributeValue;
typedef int CUmemDecompressAlgorithm;

#endif
