#pragma once

#include <cstdint>
#include <span>

#include "engine/heads/device_spans.h"
#include "engine/heads/head.h"
#include "kernels/device.h"

/// LM heads on a device. A level is enqueued without waiting, so that trees grow from level to level without
/// the host. Values that the host needs are downloaded and valid after the round's only
/// Device::synchronize().
namespace draftscope {

/// The adjacent rows of one sequence in a call.
struct DeviceSequence {
    HeadState* state = nullptr;  ///< null for stateless heads
    int place = 0;               ///< index of the sequence in the step, the same at all levels
    int first_row = 0, rows = 0;
    /// Receives the tokens that the rows can propose, ascending, and their number; null = not requested.
    TokenId* set = nullptr;  ///< [max_set_size()]; the head may store other values after the tokens
    std::int32_t* set_size = nullptr;
};

/// A level of a step over the rows of all its sequences. The caller holds Device::submit_mutex().
struct DeviceLevel {
    kernels::Device& device;
    PhaseRecorder& phases;
    DeviceSpans& spans;
    int level = 0, rows = 0, k = 0;
    std::span<const DeviceSequence> sequences;
    const float* inputs =
        nullptr;  ///< if reads_inputs(): [rows, 2d], embedding and hidden as in LmHead::begin_level()
    const kernels::half_t* x =
        nullptr;  ///< for enqueue() only: input of the LM head in 16 bits, [rows, padded_columns(d)]
    std::int32_t* downloads = nullptr;  ///< [num_downloads()] values that the head downloads for collect()
    bool sets_requested = false;        ///< DeviceSequence::set is also read outside the head
    /// For sampled drafts: receives the logits of all columns, [rows, support_stride], and of the results
    /// below only `tokens` is set. Rows with columns of their own also store their tokens, ascending. They
    /// store their number of columns if support_size() is size_on_device.
    float* support_logits = nullptr;
    int support_stride = 0;
    std::int32_t* support_tokens = nullptr;
    std::int32_t* support_sizes = nullptr;
    double temperature = 0;  ///< of sampling; 0 = drafts are not sampled
    // Results: the k best of each row, as from MatmulTopKOp; missing candidates have id -1.
    std::int32_t* ids = nullptr;
    float* logits = nullptr;
    float* sums = nullptr;
    const std::int32_t* tokens = nullptr;  ///< set by enqueue(): token of each id; null = ids are tokens
};

/// Downloaded results of a level.
struct DeviceLevelResult {
    DeviceSpans& spans;
    int level = 0, rows = 0;
    std::span<const DeviceSequence> sequences;
    // For each sequence, if reads_sets(): all max_set_size() values at DeviceSequence::set, and the number of
    // its tokens. The values are downloaded only if the step reports what the head covered; else they are
    // empty.
    std::span<const std::span<const TokenId>> sets;
    std::span<const std::int32_t> set_sizes;
    std::span<const std::int32_t> downloads;
};

/// Size of the logits that a head stores for each row, at every level: `stride` columns, `support` of them
/// valid. With `own`, each row has its own tokens, and `support` is their maximum number.
struct SupportColumns {
    int stride = 0, support = 0;
    bool own = false;
};
inline constexpr int size_on_device = -1;
/// Returns the op that copies rows of `cols` 4-byte integers; copy_rows() preserves their bits.
inline kernels::CopyRowsOp copy_of_words(const std::int32_t* from, std::int64_t from_stride, int rows,
                                         int cols, std::int32_t* to, std::int64_t to_stride) {
    return {reinterpret_cast<const float*>(from), from_stride, nullptr, rows, cols,
            reinterpret_cast<float*>(to),         to_stride};
}

/// Enqueues the results of rows without candidates: ids -1, logits -inf. Sampled drafts need none.
void leave_no_candidates(DeviceLevel& call, int first_row, int rows);

class DeviceHead {
  public:
    virtual ~DeviceHead() = default;
    /// Completes LmHead::begin_round() for these sequences. Call it before Device::submit_mutex() is locked.
    virtual void finish_begin_round(ProposeContext& /*context*/, std::span<HeadState* const> /*states*/) {}
    /// Returns the columns of the logits that drafts of `levels` levels are sampled from.
    virtual SupportColumns support_columns(int levels) const = 0;
    /// Returns the number of columns of a sequence's rows at `level`, or size_on_device. Called only for rows
    /// with columns of their own.
    virtual int support_size(int /*level*/, const HeadState* /*state*/) const { return size_on_device; }
    /// Reserves memory for calls of up to `rows` rows with `k` candidates. Returns false if memory runs out.
    virtual bool reserve(kernels::Device& device, int levels, int rows, int k) = 0;
    /// Returns the capacity of DeviceSequence::set for `rows` rows of one sequence at `level`. 0 = the tokens
    /// are known on the host before the round.
    virtual int max_set_size(int /*level*/, int /*rows*/) const { return 0; }
    /// Returns whether collect() reads these tokens, or at least their number.
    virtual bool reads_sets() const { return false; }
    virtual int num_downloads(int /*level*/, int /*rows*/) const { return 0; }
    virtual bool reads_inputs() const { return false; }
    /// Called before the drafter's layer computes the rows. Work that may run concurrently with it is
    /// enqueued with Device::on_side_stream(). The inputs do not change before enqueue().
    virtual void begin(DeviceLevel&) {}
    virtual void enqueue(DeviceLevel& call) = 0;
    /// Called after Device::synchronize(), for one level after another.
    virtual void collect(const DeviceLevelResult&) {}
};

}  // namespace draftscope
