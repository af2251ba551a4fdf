#pragma once

#include <imgui.h>

#include <algorithm>
#include <chrono>

#include "app/gui/panels/panel.h"

namespace draftscope {

/// Decides when a panel rebuilds its model. If the selection changed or nothing is running, it rebuilds at
/// once. While data streams in, builds take at most a twentieth of the time.
class RebuildThrottle {
  public:
    /// `key`: a hash of everything that the model depends on in the selection.
    bool needed(const PanelContext& context, std::uint64_t key) {
        if (valid_ && key == key_ && context.ui.data_key == data_key_) return false;
        const bool streaming =
            context.status.state == JobState::running || context.status.state == JobState::loading;
        return !valid_ || key != key_ || !streaming || ImGui::GetTime() >= not_before_;
    }
    template <typename Build>
    void run(const PanelContext& context, std::uint64_t key, Build&& build) {
        const auto start = std::chrono::steady_clock::now();
        build();
        const double cost = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        not_before_ = ImGui::GetTime() + std::min(20.0 * cost, 2.0);
        key_ = key;
        data_key_ = context.ui.data_key;
        valid_ = true;
    }

  private:
    bool valid_ = false;
    std::uint64_t key_ = 0, data_key_ = 0;
    double not_before_ = 0;
};

}  // namespace draftscope
