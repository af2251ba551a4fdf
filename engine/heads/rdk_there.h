#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/heads/direct_there.h"
#include "kernels/device_array.h"

namespace draftscope {

/// What +rdk does on a device: rows of a head spread over the vocabulary there, for calls of the host and for
/// levels that stay there. Where the head underneath decides there what its rows can propose, that set is
/// spread, too: the level's set is what the head's own gives to, and behind it lies the head's own.
class RdkThere final : public HeadThere {
  public:
    /// Of token t, tokens[first[t]] .. tokens[first[t + 1] - 1] give it something, and `weights` what part.
    struct Givers {
        std::vector<std::int32_t> first;  ///< [V + 1]
        std::vector<TokenId> tokens;
        std::vector<float> weights;
    };
    /// Before the first call. `base` lives as long.
    void set(LmHead& base, Givers givers);

    bool fits(ProposeContext& context, int levels, int k, std::span<HeadState* const> states) override;
    DrawnColumns drawn_columns(int) const override { return {vocab(), vocab()}; }
    bool reserve(kernels::Device& device, int levels, int rows, int k) override;
    int set_room(int level, int rows) const override;
    bool reads_sets() const override { return base_->reads_sets(); }
    int note_room(int level, int rows) const override;
    bool reads_inputs() const override { return base_->reads_inputs(); }
    void begin(LevelThere& call) override { base_->begin(call); }
    void ask(LevelThere& call) override;
    void collect(const LevelBack& back) override;

    /// Rows of the host, with one wait: the best of each, and where there is a `support` all of them.
    void propose(kernels::Device& device, std::span<const SparseLogits> own, float temperature, int k,
                 Proposal& out, ReusableVector<SparseLogits>* support);

  private:
    int vocab() const { return static_cast<int>(givers_.first.size()) - 1; }
    /// The call's sequences as the head underneath sees them: its sets lie behind what they reach.
    std::span<const SequenceThere> own_sequences(const LevelThere& call);
    void reach(kernels::Device& device, const SequenceThere& own, int room, const SequenceThere& to);
    int rows_at_a_time() const;
    bool bring_givers(kernels::Device& device);
    bool reserve_rows(kernels::Device& device, int rows, int columns, int k);
    /// Of rows in logits_ to `out`, or to spread_.
    void spread(kernels::Device& device, kernels::RedistributeOp op, float* out, std::int64_t out_stride);
    void select(kernels::Device& device, int rows, int k, std::int32_t* ids, float* logits, float* sums);

    DirectThere direct_;
    HeadThere* base_ = &direct_;
    Givers givers_;
    bool fresh_ = false;
    DrawnColumns columns_;  ///< of the base
    std::vector<std::int32_t> sizes_;
    std::vector<SequenceThere> own_;
    kernels::DeviceArray<std::int32_t> first_there_, givers_there_, tokens_, sizes_there_, packed_;
    kernels::DeviceArray<float> weights_there_, logits_, spread_;
    kernels::DeviceArray<double> mass_;
    kernels::DeviceArray<std::uint32_t> bits_;
    kernels::DeviceArray<std::byte> scratch_;
};

}  // namespace draftscope
