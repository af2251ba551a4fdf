#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/draft/eagle_drafter.h"
#include "engine/draft/eagle_on_device.h"
#include "engine/heads/device_spans.h"
#include "engine/heads/direct_there.h"
#include "engine/tree/expansion.h"
#include "profiler/phase.h"

namespace draftscope {

/// A tree that grows on a device.
struct GrowingTree {
    DraftJob* job = nullptr;
    BeamExpansion* beam = nullptr;
    KvCache* cache = nullptr;
    int committed = 0;              ///< stable slots
    int free_slot = 0;              ///< first slot of tree rows
    std::span<const float> output;  ///< [d], the last verified slot's: the root's candidates come from it
    const float* output_there = nullptr;  ///< in place of it
    std::span<const float> input = {};    ///< [2d] of that slot, or there
    const float* input_there = nullptr;
    int place = 0;         ///< among the trees
    int first_row = 0;     ///< in the latest pass
    std::size_t pool = 0;  ///< where its candidates begin
    int proposed = 0;      ///< how many it has
};

/// Grows EAGLE trees level by level without the host in between: candidates, the next level's rows, their
/// inputs and what they see are made on the device, and the host waits once for the candidates of all levels.
/// For heads whose calls stay there (HeadThere); the trees are those that the host would grow.
class EagleGrowth {
  public:
    /// `model` lies on a device when trees are to grow.
    explicit EagleGrowth(EagleModel& model) : model_(model) {}

    /// Would grow() do for these? Trees fixed in advance, drawn drafts, heads that need the host
    /// and steps that somebody watches are the host's.
    bool fits(const DraftContext& context, std::span<const DraftJob* const> jobs);
    /// Proposes all levels of `trees`, whose expansions then hold them, and notes their rows per level.
    /// False, with nothing done, when the device has no memory for the token embeddings.
    Result<bool> grow(DraftContext& context, std::span<GrowingTree> trees);

    /// The same in two steps that wait for nothing, for a caller that holds Device::busy(). Memory first:
    /// false when there is not enough.
    bool prepare(std::span<const GrowingTree> trees, Head& head);
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
    int hidden() const { return model_.shape().hidden; }
    HeadThere& there_of(Head& head);
    bool place_notes(std::span<const GrowingTree> trees);
    std::size_t set_at(int place, int level) const {
        return static_cast<std::size_t>(place) * static_cast<std::size_t>(levels_ + 1) +
               static_cast<std::size_t>(level);
    }
    void begin_head(DraftContext& context, std::span<GrowingTree* const> active, int level, int rows);
    void ask_head(DraftContext& context, int rows);
    LevelThere call_of(DraftContext& context, const Asked& asked);
    void hand_sets(std::span<const GrowingTree> trees, TreeStep& step);
    void place(std::span<GrowingTree> trees);
    void bring_roots(std::span<const GrowingTree> trees);
    void rerank(PhaseRecorder& phases, std::span<const GrowingTree> trees, TreeStep& step);
    Status pass(DraftContext& context, std::span<GrowingTree* const> active, int level, int rows);
    void propose(DraftContext& context, std::vector<GrowingTree*>& active, int level, int rows);
    kernels::BeamOp extend(GrowingTree& tree, int level, bool goes_on, int next_first);
    void fill(std::span<GrowingTree> trees);

    std::int32_t* tails(int level) const {
        return tails_[static_cast<std::size_t>(level % 2)].as<std::int32_t>();
    }

    EagleModel& model_;
    DecoderBatch batch_;
    std::vector<kernels::BeamOp> beams_;  ///< of a level
    const float* embeddings_ = nullptr;   ///< there
    DeviceSpans own_spans_;
    DeviceSpans* spans_ = nullptr;  ///< while asking
    int topk_ = 0;
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
    bool wants_sets_ = false;
    std::vector<std::int32_t> candidates_;  ///< tokens, then log-probabilities, of all levels
    std::size_t cells_ = 0;                 ///< of either
    std::vector<int> slots_, counts_;
    kernels::DeviceBuffer left_there_, sets_there_, best_, logits_, sums_, scores_, places_, tokens_,
        parents_, pool_, roots_, tails_[2];
};

}  // namespace draftscope
