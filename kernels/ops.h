#pragma once

#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/sampling.h"
#include "kernels/ops/sets.h"
#include "kernels/ops/topk.h"
#include "kernels/ops/tree.h"

/// The list of all device ops. Ops are plain structs whose operands are addresses in device memory; device
/// code may include this file. Every op keeps the contract of kernels/thread_pool.h: a row's result depends
/// only on that row's inputs.
///
/// The list generates Backend::enqueue(op) and Backend::name(op), the declaration of cuda::launch(op), and
/// the overrides in CudaBackend and TwinDevice. A new op is a struct in kernels/ops and a line
/// here, `launch` in kernels/cuda/NAME.cu, the reference TwinDevice::run in tests/support, and a test in
/// tests/gpu.
///
/// SINGLE(name, Op): one op per call. BATCH(name, Op): several ops per call, one for each sequence. No op of
/// a batch reads what another one writes.
#define DS_DEVICE_OPS(SINGLE, BATCH)                               \
    /* matmul.h */                                                 \
    SINGLE(matmul, MatmulOp)                                       \
    SINGLE(gather, GatherOp)                                       \
    /* elementwise.h */                                            \
    SINGLE(rms_norm, RmsNormOp)                                    \
    SINGLE(cast, CastOp)                                           \
    SINGLE(add, AddOp)                                             \
    SINGLE(silu_mul, SiluMulOp)                                    \
    BATCH(copy_rows, CopyRowsOp)                                   \
    /* attention.h */                                              \
    SINGLE(rope_store, RopeStoreOp)                                \
    SINGLE(attention, AttentionOp)                                 \
    /* topk.h */                                                   \
    SINGLE(topk, TopKOp)                                           \
    SINGLE(matmul_topk, MatmulTopKOp)                              \
    SINGLE(topk_set, TopKSetOp)                                    \
    SINGLE(matmul_topk_set, MatmulTopKSetOp)                       \
    /* sampling.h */                                               \
    SINGLE(mask_top_k_top_p, TopKTopPMaskOp)                       \
    SINGLE(sample, SampleOp)                                       \
    SINGLE(sample_without_replacement, SampleWithoutReplacementOp) \
    SINGLE(gather_columns, GatherColumnsOp)                        \
    SINGLE(rejection_sample, RejectionSampleOp)                    \
    SINGLE(rank, RankOp)                                           \
    BATCH(sum_set_probability, SetProbabilityOp)                   \
    SINGLE(entropy, EntropyOp)                                     \
    SINGLE(redistribute, RedistributeOp)                           \
    SINGLE(list_reachable_tokens, ReachableTokensOp)               \
    /* tree.h */                                                   \
    BATCH(beam, BeamOp)                                            \
    BATCH(rerank, RerankOp)                                        \
    BATCH(follow_argmax, FollowArgmaxOp)                           \
    BATCH(accept_typical, AcceptTypicalOp)                         \
    BATCH(list_children, ListChildrenOp)                           \
    BATCH(follow_accepted, FollowAcceptedOp)                       \
    /* sets.h */                                                   \
    SINGLE(list_unique_tokens, UniqueTokensOp)                     \
    SINGLE(update_index_set, UpdateIndexSetOp)                     \
    SINGLE(clusters, ClustersOp)                                   \
    SINGLE(cluster_tokens, ClusterTokensOp)                        \
    SINGLE(remap_ids, RemapIdsOp)
