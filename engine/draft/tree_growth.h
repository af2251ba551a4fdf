#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/numel.h"
#include "base/phase.h"
#include "engine/draft/drafter.h"
#include "engine/heads/device_spans.h"
#include "engine/heads/direct_there.h"
#include "engine/tree/expansion.h"
#include "kernels/device_array.h"

namespace draftscope {

/// A row of floats here, or where it lies on a device.
struct RowAnywhere {
    std::span<const float> here;
    const float* there = nullptr;  ///< in place of it
};
/// Brings rows together there, to [rows, width], in one upload and one copy at most. The host's may change as
/// soon as it returns.
void bring_rows(kernels::Device& device, std::span<const RowAnywhere> rows, int width, float* to);

/// A tree that grows on a device.
struct GrowingTree {
    DraftJob* job = nullptr;
    RowAnywhere input;              ///< [2d] of the last verified slot: the next token's embedding, a hidden
    BeamExpansion* beam = nullptr;  ///< of grow()
    // Of a drafter with a layer:
    RowAnywhere output = {};   ///< [d] of that slot, which the root's candidates come from
    KvCache* cache = nullptr;  ///< of the drafter
    int committed = 0;         ///< stable slots
    int free_slot = 0;         ///< first slot of tree rows
    // The growth's own:
    std::vector<int> widths = {};  ///< of each level the nodes that are drafted from, the root's first
    int nodes = 1;                 ///< of the level
    int slots = 0;                 ///< of its nodes of levels before, the root left out
    int place = 0;                 ///< among the trees
    int first_node = 0;            ///< of its nodes among those of the level
    int first_row = 0;             ///< of its rows in the level's head call
    std::size_t pool = 0;          ///< where its candidates begin
    int proposed = 0;              ///< how many it has
};

/// What makes the rows of a level there: a layer over the level before (EAGLE), or a head of each level
/// (Medusa, Hydra). Whoever asks holds Device::busy().
class LevelRows {
  public:
    struct Level {
        DraftContext& context;
        DeviceSpans& spans;
        int level = 0, rows = 0;
        std::span<GrowingTree* const> trees;
        bool inputs_wanted = false;  ///< by the head
        // Of the level's nodes, each tree's from first_node on; null at level 0, whose nodes are the roots.
        const std::int32_t* tokens = nullptr;
        const std::int32_t* parents = nullptr;         ///< nodes of the level before
        const std::int32_t* ancestor_slots = nullptr;  ///< [nodes, level], as BeamOp leaves them
    };
    virtual ~LevelRows() = default;
    virtual kernels::Device& device() = 0;
    virtual int hidden() const = 0;
    /// One row of a tree serves all its nodes of a level, which the rows do not look at.
    virtual bool shared_logits() const { return false; }
    /// Memory for levels of up to `nodes` nodes of `trees` trees; false when there is none.
    virtual bool make_room(int trees, int nodes) = 0;
    /// `tails` of later levels lie elsewhere than those before.
    virtual void tails_moved() {}
    /// Asks for the rows of a level. `inputs_known` behind their inputs, in front of the work that may take
    /// long; not at level 0, where they were known before: [rows, 2d] as in Head::begin_level, where wanted.
    virtual Status ask(const Level& level, FunctionRef<void(const float* inputs)> inputs_known) = 0;
    /// The rows as the LM head reads them, [rows, padded_columns(d)].
    virtual const kernels::half_t* ask_head_rows(int rows) = 0;
};

/// Grows trees level by level without the host in between: candidates, the next level's nodes, their rows and
/// what they see are made on the device, and the host waits once for the candidates of all levels, or for
/// what becomes of them. For heads whose calls stay there (HeadThere); the trees are those that the host
/// would grow.
class TreeGrowth {
  public:
    explicit TreeGrowth(LevelRows& rows) : rows_(rows) {}

    /// Can these be asked for? Heads that need the host and steps that somebody watches are the host's;
    /// so are drawn drafts of heads that do not leave all their logits, and where what they are drawn from
    /// would be too much. Those are for a step alone.
    bool fits(const DraftContext& context, std::span<const DraftJob* const> jobs);
    /// Can the tree of a job that fits become rows of a step?
    static bool fits_step(const DraftJob& job);
    /// Proposes all levels of `trees`, whose expansions then hold them, and notes their rows per level.
    /// False, with nothing done, when the device has no memory for it.
    Result<bool> grow(DraftContext& context, std::span<GrowingTree> trees);

    /// The same in two steps that wait for nothing, for a caller that holds Device::busy(). Memory first:
    /// false when there is not enough.
    bool prepare(const DraftContext& context, std::span<GrowingTree> trees);
    /// Once the roots' inputs are there, or said: the head begins, beside the pass that makes their outputs.
    void begin(DraftContext& context, std::span<GrowingTree> trees, DeviceSpans& spans, const TreeStep* step);
    /// Asks for all levels; with a step, the trees are re-ranked there into its rows.
    Status ask(DraftContext& context, std::span<GrowingTree> trees, TreeStep* step);
    /// After the wait: tells the head what it decided there.
    void collect();

  private:
    struct Asked {
        int level, rows;
        std::vector<SequenceThere> sequences;
        std::size_t notes, note_count;
    };
    static int nodes_at(const GrowingTree& tree, int level) { return tree.widths[level]; }
    int rows_at(const GrowingTree& tree, int level) const {
        return rows_.shared_logits() ? 1 : nodes_at(tree, level);
    }
    bool place_choices(std::span<const GrowingTree> trees);
    HeadThere& there_of(LmHead& head);
    bool place_notes(std::span<const GrowingTree> trees);
    bool place_draws(std::span<const GrowingTree> trees);
    void draw(DraftContext& context, std::span<GrowingTree* const> active, int level);
    void give_each_node_a_row(std::span<GrowingTree* const> active, int level);
    std::size_t set_at(int place, int level) const { return numel(place, levels_ + 1) + level; }
    void begin_head(DraftContext& context, std::span<GrowingTree* const> active, int level, int rows,
                    const float* inputs);
    void ask_head(DraftContext& context, int rows);
    LevelThere call_of(DraftContext& context, const Asked& asked);
    void hand_sets(std::span<const GrowingTree> trees, TreeStep& step);
    void place(std::span<GrowingTree> trees);
    void rerank(PhaseRecorder& phases, std::span<const GrowingTree> trees, TreeStep& step);
    Status ask_rows(DraftContext& context, std::span<GrowingTree* const> active, int level, int rows);
    void propose(DraftContext& context, std::vector<GrowingTree*>& active, int level, int rows);
    kernels::BeamOp extend(GrowingTree& tree, int level, bool goes_on, int next_first);
    void fill(std::span<GrowingTree> trees);

    std::int32_t* ancestor_slots(int level) const { return tails_[level % 2].as<std::int32_t>(); }

    /// Of the level's first row, among those that drafts are drawn from.
    int first_drawn(int level) const { return first_drawn_[level]; }
    float* drawn_row(int row) const {
        return drawn_from_.as<float>() + static_cast<std::ptrdiff_t>(row) * columns_.stride;
    }
    std::int32_t* drawn_tokens(int row) const {
        return drawn_tokens_.as<std::int32_t>() + static_cast<std::ptrdiff_t>(row) * columns_.stride;
    }
    /// Where a head leaves a level's rows: behind all others, where one is to serve several nodes.
    int left_at(int level) const {
        return level > 0 && rows_.shared_logits() ? first_drawn_.back() : first_drawn(level);
    }

    LevelRows& rows_;
    // Where drafts are drawn: from the rows of all levels, one behind the other.
    const DraftSampling* sampled_ = nullptr;
    DrawnColumns columns_;
    std::vector<int> first_drawn_;           ///< [levels_ + 1]
    std::vector<double> uniforms_;           ///< [rows, topk_]
    std::vector<std::int32_t> drawn_sizes_;  ///< of the rows, where they have columns of their own
    kernels::DeviceBuffer drawn_from_, drawn_tokens_;
    kernels::DeviceArray<double> uniforms_there_;
    kernels::DeviceArray<float> lowest_;
    kernels::DeviceArray<std::int32_t> last_, drawn_sizes_there_;
    std::vector<kernels::BeamOp> beams_;  ///< of a level
    std::vector<RowAnywhere> inputs_;     ///< of the roots
    DeviceSpans own_spans_;
    DeviceSpans* spans_ = nullptr;  ///< while asking
    int topk_ = 0;                  ///< candidates of a row, the most that a tree wants
    DirectThere direct_;
    HeadThere* head_ = nullptr;            ///< while asking, and until collect()
    const std::int32_t* names_ = nullptr;  ///< of the level's ids
    std::vector<Asked> asked_;             ///< levels; as many as asked_levels_ count
    std::size_t asked_levels_ = 0;
    int levels_ = 0;
    // Words that the head leaves there: sizes of sets and notes of the levels, then the sets.
    std::vector<std::int32_t> set_first_;  ///< [trees, levels_ + 1], from the sets' begin
    std::vector<std::size_t> note_first_;  ///< [levels_ + 1]
    std::size_t words_ = 0, set_words_ = 0;
    std::vector<std::int32_t> left_;  ///< as downloaded
    bool wants_sets_ = false, sets_asked_ = false, sets_here_ = false;
    std::vector<std::int32_t> candidates_;  ///< tokens, then log-probabilities, of all levels
    std::size_t cells_ = 0;                 ///< of either
    std::vector<int> counts_;
    // Of trees fixed in advance, one behind the other: of each level BeamOp's `chosen`, then `static_next`.
    std::vector<std::int32_t> choices_;
    std::vector<std::size_t> choices_first_;  ///< [trees, levels_ + 1]
    kernels::DeviceArray<std::int32_t> choices_there_, left_there_, sets_there_;
    kernels::DeviceBuffer best_, logits_, sums_, scores_, places_, tokens_, parents_, pool_, roots_,
        tails_[2];
};

}  // namespace draftscope
