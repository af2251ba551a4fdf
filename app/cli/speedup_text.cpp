#include "app/cli/speedup_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/estimates.h"
#include "base/format_count.h"
#include "stats/speedup.h"

namespace draftscope::cli {

std::string speedup_text(const Snapshot& snapshot, RowId run_id) {
    const auto speed = compute_speedup(snapshot, run_id);
    if (!speed) {
        const auto earlier = legacy_baseline(snapshot, run_id);
        if (!earlier) return {};
        return fmt::format(
            "autoregressive decoding reached {:.1f} tok/s over the run's first prompts (one value, stored by "
            "an earlier version): no speed-up over the same prompts can be derived\n",
            *earlier);
    }
    std::string ratio = fmt::format("{:.2f}x", speed->ratio.value);
    if (speed->ratio.interval)
        ratio += fmt::format(" [{:.2f}, {:.2f}]", speed->ratio.interval->low, speed->ratio.interval->high);
    return fmt::format(
        "speed-up {} against autoregressive decoding: {:.1f} and {:.1f} tok/s over the same {} of {}{}\n",
        ratio, speed->tokens_per_second, speed->plain_tokens_per_second,
        format_count(static_cast<std::int64_t>(speed->prompts), "prompt"),
        format_count(static_cast<std::int64_t>(speed->conversations), "conversation"),
        speed->conversations < speed->conversations_of_run
            ? fmt::format(" (the run has {})", speed->conversations_of_run)
            : std::string());
}

nlohmann::json speedup_json(const Snapshot& snapshot, RowId run_id) {
    const auto speed = compute_speedup(snapshot, run_id);
    if (!speed)
        return {{"runs", nlohmann::json::array()},
                {"prompts", nullptr},
                {"conversations", nullptr},
                {"tokens_per_second", nullptr},
                {"run_tokens_per_second", nullptr},
                {"speedup", nullptr},
                {"interval", nullptr}};
    return {{"runs", speed->plain_runs},
            {"prompts", speed->prompts},
            {"conversations", speed->conversations},
            {"tokens_per_second", speed->plain_tokens_per_second},
            {"run_tokens_per_second", speed->tokens_per_second},
            {"speedup", speed->ratio.value},
            {"interval", estimate_interval_json(speed->ratio)}};
}

}  // namespace draftscope::cli
