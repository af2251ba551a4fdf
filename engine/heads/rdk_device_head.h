#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/heads/device_head.h"
#include "kernels/device_array.h"

namespace draftscope {

/// +rdk on a device: redistributes the rows of a base head over the vocabulary. If the base head selects its
/// tokens on the device, the level's set holds the tokens that receive probability from them. The base head's
/// own set is stored after it.
class RdkDeviceHead final : public DeviceHead {
  public:
    /// The transposed affinity matrix. Token t gets weights[i] of tokens[i] if first[t] <= i < first[t + 1].
    struct Givers {
        std::vector<std::int32_t> first;  ///< [V + 1]
        std::vector<TokenId> tokens;
        std::vector<float> weights;
    };
    /// Call it before any other function, with a prepared `base` that outlives this object.
    void set(LmHead& base, Givers givers);

    void finish_begin_round(ProposeContext& context, std::span<HeadState* const> states) override {
        base_->finish_begin_round(context, states);
    }
    SupportColumns support_columns(int) const override { return {vocab(), vocab()}; }
    bool reserve(kernels::Device& device, int levels, int rows, int k) override;
    int max_set_size(int level, int rows) const override;
    bool reads_sets() const override { return base_->reads_sets(); }
    int num_downloads(int level, int rows) const override;
    bool reads_inputs() const override { return base_->reads_inputs(); }
    void begin(DeviceLevel& call) override { base_->begin(call); }
    void enqueue(DeviceLevel& call) override;
    void collect(const DeviceLevelResult& back) override;

  private:
    int vocab() const { return static_cast<int>(givers_.first.size()) - 1; }
    /// Returns the call's sequences for the base head, whose sets follow the tokens that they reach.
    std::span<const DeviceSequence> own_sequences(const DeviceLevel& call);
    void reach(kernels::Device& device, const DeviceSequence& own, int room, const DeviceSequence& to);
    int rows_at_a_time() const;
    bool upload_sources(kernels::Device& device);
    /// Enqueues the redistribution of the rows in logits_ to `out`.
    void spread(kernels::Device& device, kernels::RedistributeOp op, float* out, std::int64_t out_stride);

    DeviceHead* base_ = nullptr;
    Givers givers_;
    bool fresh_ = false;
    SupportColumns columns_;  ///< of the base head
    std::vector<std::int32_t> sizes_;
    std::vector<DeviceSequence> own_;
    kernels::DeviceArray<std::int32_t> d_first_, d_sources_, tokens_, d_sizes_;
    kernels::DeviceArray<float> d_weights_, logits_, spread_;
    kernels::DeviceArray<double> mass_;
    kernels::DeviceArray<std::uint32_t> bits_;
    kernels::DeviceArray<std::byte> scratch_;
};

}  // namespace draftscope
