#pragma once

#include <cstdint>
#include <span>

#include "engine/heads/device_spans.h"
#include "engine/heads/head.h"
#include "kernels/device.h"

/// A head whose calls stay on a device: a level is asked for and not waited for, so that trees grow from one
/// to the next without the host. What the host has to know of a level comes with the round's only wait.
namespace draftscope {

/// The rows of one sequence in a call: neighbours.
struct SequenceThere {
    HeadState* state = nullptr;  ///< null for stateless heads
    int place = 0;               ///< of the sequence among those of the step, the same at all levels
    int first_row = 0, rows = 0;
    /// Where the tokens that its rows can propose go, rising, and their number; null = not wanted.
    TokenId* set = nullptr;  ///< [set_room()]; the head may keep more behind the tokens
    std::int32_t* set_size = nullptr;
};

/// A level of a step over the rows of all its sequences; whoever asks holds Device::busy().
struct LevelThere {
    kernels::Device& device;
    PhaseRecorder& phases;
    DeviceSpans& spans;
    int level = 0, rows = 0, k = 0;
    std::span<const SequenceThere> sequences;
    const float* inputs =
        nullptr;  ///< where reads_inputs(): [rows, 2d], token and hidden as in Head::begin_level
    const kernels::half_t* x =
        nullptr;  ///< of ask() alone: hidden rows as the LM head reads them, [rows, padded_columns(d)]
    std::int32_t* notes = nullptr;  ///< [note_room()]: what collect() reads
    bool sets_asked = false;        ///< somebody beside the head wants what goes to SequenceThere::set
    /// Where drafts are drawn: in place of the answer below but for `tokens`, the logits of all columns,
    /// [rows, drawn_stride]. Where rows have columns of their own also their tokens, rising, and where
    /// drawn_size() does not say it, how many there are of each row.
    float* drawn_from = nullptr;
    int drawn_stride = 0;
    std::int32_t* drawn_tokens = nullptr;
    std::int32_t* drawn_sizes = nullptr;
    double temperature = 0;  ///< of the draws; 0 = none are made
    // The answer: the k best of each row as MatmulTopKOp leaves them.
    std::int32_t* ids = nullptr;
    float* logits = nullptr;
    float* sums = nullptr;
    const std::int32_t* tokens = nullptr;  ///< of the ids, there; null = they are tokens. Set by ask()
};

/// What came back of it.
struct LevelBack {
    DeviceSpans& spans;
    int level = 0, rows = 0;
    std::span<const SequenceThere> sequences;
    // Of each sequence, where reads_sets(): what lies at SequenceThere::set, all set_room() of it, which
    // comes where somebody asks for what a head covers (else empty), and how many tokens there are.
    std::span<const std::span<const TokenId>> sets;
    std::span<const std::int32_t> set_sizes;
    std::span<const std::int32_t> notes;
};

/// Columns of logits that a head leaves of each row, the first `support` of which count, at every level;
/// with `own` columns at most so many, of tokens that the row says.
struct DrawnColumns {
    int stride = 0, support = 0;
    bool own = false;
};
inline constexpr int said_there = -1;
/// Rows of `cols` numbers of four bytes, of which copy_rows() keeps every bit.
inline kernels::CopyRowsOp copy_of_words(const std::int32_t* from, std::int64_t from_stride, int rows,
                                         int cols, std::int32_t* to, std::int64_t to_stride) {
    return {reinterpret_cast<const float*>(from), from_stride, nullptr, rows, cols,
            reinterpret_cast<float*>(to),         to_stride};
}

class HeadThere {
  public:
    virtual ~HeadThere() = default;
    /// Can it answer every level up to `levels` - 1 with k candidates for each row of these sequences,
    /// whatever the rows are? Behind Head::begin_round(); what that began is done then.
    virtual bool fits(ProposeContext& context, int levels, int k, std::span<HeadState* const> states) = 0;
    /// Of a head that fits() for so many levels and can leave the logits of all that its rows can propose; no
    /// columns = drafts from it are drawn on the host.
    virtual DrawnColumns drawn_columns(int /*levels*/) const { return {}; }
    /// Of rows with columns of their own: how many a row of that sequence has at `level`, or said_there.
    virtual int drawn_size(int /*level*/, const HeadState* /*state*/) const { return said_there; }
    /// Memory for calls of up to `rows` rows of `sequences` sequences; false when there is none.
    virtual bool reserve(kernels::Device& device, int levels, int rows, int k) = 0;
    /// Most tokens that `rows` rows of one sequence can propose at `level`, where that is decided there; 0 =
    /// the host knows them before the round.
    virtual int set_room(int /*level*/, int /*rows*/) const { return 0; }
    /// Does collect() want these tokens, or at least their number?
    virtual bool reads_sets() const { return false; }
    virtual int note_room(int /*level*/, int /*rows*/) const { return 0; }
    virtual bool reads_inputs() const { return false; }
    /// Before the drafter's layer makes the rows: what may run beside it is asked for with Device::aside().
    /// The inputs stay as they are until ask().
    virtual void begin(LevelThere&) {}
    virtual void ask(LevelThere& call) = 0;
    /// After the wait, level by level.
    virtual void collect(const LevelBack&) {}
};

}  // namespace draftscope
