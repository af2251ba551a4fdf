#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/draft/eagle_drafter.h"
#include "engine/draft/eagle_on_device.h"
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
    int place = 0;                  ///< among the trees
    int first_row = 0;              ///< in the latest pass
    std::size_t pool = 0;           ///< where its candidates of the level begin
};

/// Grows EAGLE trees level by level without the host in between: candidates, the next level's rows, their
/// inputs and what they see are made on the device, and the host waits once for the candidates of all levels.
/// For heads that are one product (Head::direct); the trees are those that the host would grow.
class EagleGrowth {
  public:
    /// `model` lies on a device when trees are to grow.
    explicit EagleGrowth(EagleModel& model) : model_(model) {}

    /// Would grow() do for these? Trees fixed in advance, drawn drafts, heads with more to do than a product
    /// and steps that somebody watches are the host's.
    bool fits(const DraftContext& context, std::span<const GrowingTree> trees) const;
    /// Proposes all levels of `trees`, whose expansions then hold them, and notes their rows per level.
    /// False, with nothing done, when the device has no memory for the token embeddings.
    Result<bool> grow(DraftContext& context, std::span<GrowingTree> trees);

  private:
    struct Timed {
        SpanEvent event;
        std::uint32_t from = 0, to = 0;  ///< marks
    };
    /// A phase whose work is being asked for; its times come from the device.
    class Asked;

    int hidden() const { return model_.shape().hidden; }
    bool prepare(std::span<const GrowingTree> trees, const Head& head);
    bool keep_embeddings();
    bool keep_ids(std::span<const TokenId> ids);
    bool reserve_head(const DirectHead& direct, int rows);
    void start(std::span<GrowingTree> trees);
    Status pass(DraftContext& context, std::span<GrowingTree* const> active, int level, int rows);
    void propose(DraftContext& context, std::vector<GrowingTree*>& active, int level, int rows);
    void extend(GrowingTree& tree, int level, bool goes_on, int next_first);
    void fill(std::span<GrowingTree> trees);
    void record(PhaseRecorder& phases, std::uint64_t start_ticks);

    std::int32_t* tails(int level) const {
        return tails_[static_cast<std::size_t>(level % 2)].as<std::int32_t>();
    }

    EagleModel& model_;
    DecoderBatch batch_;
    bool embeddings_refused_ = false;
    int topk_ = 0;
    std::vector<TokenId> ids_;  ///< as they lie there
    std::vector<Timed> timed_;
    std::vector<std::int32_t> candidates_;  ///< tokens, then log-probabilities, of all levels
    std::size_t cells_ = 0;                 ///< of either
    std::vector<int> slots_, counts_;
    kernels::DeviceBuffer embeddings_, ids_there_, narrow_, narrow_half_, scratch_, best_, logits_, sums_,
        scores_, tokens_, parents_, pool_, tails_[2];
};

}  // namespace draftscope
